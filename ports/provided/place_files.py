# SPDX-License-Identifier: Apache-2.0
"""Put the files of a task, a harness or a grader into a sandbox."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from ..required.harness import PlacedFile
from ..required.sandbox import (
    Command,
    FileForbidden,
    Lost,
    NotAFile,
    PathRefused,
    Sandbox,
    SandboxFailed,
    SandboxLost,
)

CLEARING_SECONDS: Final = 60.0
MAKING_SECONDS: Final = 60.0

_MAKE_PRIVATE: Final = 'umask 077; mkdir -p "$1" && chmod 700 "$1"'

# Walks down to the file and removes the first thing in the way: a file or a link
# where a folder must be, or anything where the file must be.
_CLEAR_WAY: Final = """
path=.; rest=$1
while :; do
  chmod u+rwx "$path"
  case $rest in
    */*) path=$path/${rest%%/*}; rest=${rest#*/} ;;
    *) path=$path/$rest; rest= ;;
  esac
  if [ -z "$rest" ] || [ -h "$path" ] || [ ! -d "$path" ]; then break; fi
done
if [ -d "$path" ] && [ ! -h "$path" ]; then chmod -R u+rwx "$path"; fi
rm -rf "$path"
"""


async def make_private_folders(sandbox: Sandbox, folders: tuple[str, ...]) -> None:
    """Make folders that the sandbox's user alone can look into, mode 0700.

    Raises:
        SandboxFailed: One was not made.
        Fault: As `Sandbox.exec` says.
    """
    for folder in folders:
        ended = await sandbox.exec(
            Command(
                argv=("/bin/sh", "-c", _MAKE_PRIVATE, "sh", folder),
                timeout_seconds=MAKING_SECONDS,
            )
        )
        if isinstance(ended.how, Lost):
            raise SandboxLost(
                sandbox.access().provider, sandbox.sandbox_id, ended.how.reason
            )
        if not ended.succeeded:
            raise SandboxFailed(
                sandbox.access().provider,
                sandbox.sandbox_id,
                f"make the folder {folder}",
                ended.stderr.kept.decode(errors="replace").strip() or str(ended.how),
            )


async def place_files(sandbox: Sandbox, files: Iterable[PlacedFile]) -> None:
    """Put the files one after the other, each whole or not at all.

    Raises:
        Fault: As `Sandbox.put` says.
    """
    for file in files:
        await _put(sandbox, file)


async def place_over(sandbox: Sandbox, files: Iterable[PlacedFile]) -> None:
    """Put files below the workdir, removing what the agent left in their way.

    A folder under a file's name, or a link that leads out, is the agent's doing, and
    must not look like a sandbox that failed.

    Raises:
        Fault: As `Sandbox.put` says, with nothing in the way any more.
    """
    for file in files:
        try:
            await _put(sandbox, file)
        except (NotAFile, FileForbidden, PathRefused, SandboxFailed):
            await sandbox.exec(
                Command(
                    argv=("/bin/sh", "-c", _CLEAR_WAY, "sh", file.path),
                    timeout_seconds=CLEARING_SECONDS,
                )
            )
            await _put(sandbox, file)


async def _put(sandbox: Sandbox, file: PlacedFile) -> None:
    content = whole(file.content)
    await sandbox.put(file.path, content, size=len(file.content), mode=file.mode)


async def whole(content: bytes) -> AsyncIterator[bytes]:
    """Give `content` as a stream of one piece."""
    yield content
