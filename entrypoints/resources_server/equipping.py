# SPDX-License-Identifier: Apache-2.0
"""What lies in a lent sandbox beside the task's files: a guide, and the apps' commands."""

from typing import Final

import attrs

from ...domain.resources_sessions import ResourcesSessionId
from ...ports.provided.place_files import place_files
from ...ports.provided.reach_apps import ReachApps
from ...ports.provided.session_apps import OpenApps
from ...ports.required.apps import Reach
from ...ports.required.harness import PlacedFile
from ...ports.required.sandbox import Command, Sandbox
from .commands import FOLDER, app_commands, docs_command
from .documentation import guide
from .tokens import SessionTokens

LINK_SECONDS: Final = 30.0

# Puts links to the commands where the shell looks for commands, if it may write there.
_LINK: Final = """
here=$1; shift
IFS=:
for dir in $PATH; do
  if [ -d "$dir" ] && [ -w "$dir" ]; then
    for name do ln -sf "$here/$name" "$dir/$name" || exit 1; done
    exit 0
  fi
done
exit 1
"""


@attrs.frozen(kw_only=True)
class SandboxEquipment:
    """The `Equip` of one server."""

    reach: ReachApps
    tokens: SessionTokens
    guide_file: str | None
    links: bool
    """Whether commands may be linked outside the workspace: in an isolated sandbox."""

    async def __call__(
        self, session: ResourcesSessionId, sandbox: Sandbox, apps: OpenApps | None
    ) -> None:
        """Put the guide and the commands there.

        Raises:
            Fault: The sandbox does not take them, or no relay runs.
        """
        url = ""
        files: tuple[PlacedFile, ...] = ()
        if apps is not None and apps.reaching.way is not Reach.MCP:
            url = await self.reach(session, sandbox)
            files = self._commands(session, apps, url)
            await place_files(sandbox, files)
        folder = f"{FOLDER}/"
        if files and self.links and await _linked(sandbox, files):
            folder = ""
        if self.guide_file is not None:
            text = guide(
                () if apps is None else tuple(apps.tools.values()),
                None if apps is None else apps.reaching,
                folder=folder,
                url=url,
            )
            placed = PlacedFile(path=self.guide_file, content=text.encode())
            await place_files(sandbox, (placed,))

    async def let_go(self, session: ResourcesSessionId) -> None:
        """End the session's relay, if it has one."""
        await self.reach.let_go(session)

    def _commands(
        self, session: ResourcesSessionId, apps: OpenApps, url: str
    ) -> tuple[PlacedFile, ...]:
        headers = self.tokens.headers(session)
        if apps.reaching.way is Reach.ENDPOINTS:
            name = apps.reaching.documentation
            return (docs_command(name, url=url, headers=headers),)
        return app_commands(tuple(apps.tools.values()), url=url, headers=headers)


async def _linked(sandbox: Sandbox, files: tuple[PlacedFile, ...]) -> bool:
    names = [file.path.removeprefix(f"{FOLDER}/") for file in files]
    here = f"{sandbox.workdir}/{FOLDER}"
    ended = await sandbox.exec(
        Command(
            argv=("/bin/sh", "-c", _LINK, "sh", here, *names),
            timeout_seconds=LINK_SECONDS,
        )
    )
    return ended.succeeded
