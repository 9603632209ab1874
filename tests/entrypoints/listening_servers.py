# SPDX-License-Identifier: Apache-2.0
"""All servers of one process, each listening, by their names."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
from starlette.routing import BaseRoute

from livery.entrypoints.all_servers import open_all_servers
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.http_serving.serving import address_of, serving
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.settings_reading import read_settings
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.required.world import World

from ..resources_server.serving import BoxWorld

NAMES = ("environment", "agent", "resources")
SANDBOXES = "sandboxes"
"""Where the resources server listens for sandboxes, in a world with apps."""
GRACE_SECONDS = 0.5


@attrs.frozen
class Listening:
    """Where a server listens, and what it has."""

    url: str
    routes: Sequence[BaseRoute]


@asynccontextmanager
async def listening_servers(
    folder: Path, resources: str = "", bounds: str = "", world: World | None = None
) -> AsyncGenerator[Mapping[str, Listening]]:
    """Serve everything; `resources` is said of that server, and `bounds` of each."""
    path, state = folder / "livery.toml", folder / "state"
    path.write_text(
        f"""
[agent_server]
port = 0
harness = "nop"
{bounds}
[resources_server]
port = 0
{resources}
{bounds}
[environment_server]
port = 0
{bounds}
"""
    )
    async with (
        open_all_servers(
            read_settings(path),
            open_state_folder(state),
            Surroundings(name="all", state=state),
            world=world or BoxWorld(wants_sandbox=False),
        ) as servers,
        AsyncExitStack() as stack,
    ):
        (port,) = (state / "all-sandbox-ports").read_text().split()
        found = {SANDBOXES: Listening(f"http://127.0.0.1:{port}", ())}
        for name, each in zip(NAMES, servers, strict=True):
            served = each.served
            found[name] = Listening(address_of(each.socket), served.routes)
            app = to_application(served.routes, without_kind=served.without_kind)
            await stack.enter_async_context(
                serving(app, each.socket, grace_seconds=GRACE_SECONDS)
            )
        yield found
