# SPDX-License-Identifier: Apache-2.0
"""Put the files of a task, a harness or a grader into a sandbox."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from ..required.harness import PlacedFile
from ..required.sandbox import (
    Command,
    FileForbidden,
    NotAFile,
    PathRefused,
    Sandbox,
    SandboxFailed,
)

CLEARING_SECONDS: Final = 60.0

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
