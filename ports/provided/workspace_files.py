# SPDX-License-Identifier: Apache-2.0
"""Files of a workspace that calls read and save, and whose fault it is when they fail.

What the agent did wrong (no such file, a folder in the way) is refused in words for
the model. Everything else is the provider's failure, and so is a file that is said to
be missing and stands there when one looks again. When in doubt, it is the provider's.
"""

from collections.abc import Sequence
from typing import Final

from ..required.apps import SavedFile, ToolRefused
from ..required.faults import Fault
from ..required.sandbox import (
    Command,
    DiskFull,
    FileForbidden,
    FileMissing,
    NotAFile,
    PathRefused,
    Sandbox,
    SandboxFailed,
    TransferCut,
)
from .place_files import whole

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most that one file of a call may hold."""
PATH_BYTES_MAX: Final = 4095
NAME_BYTES_MAX: Final = 255
LOOK_SECONDS: Final = 30.0
LOOK_BYTES_MAX: Final = 64 * 1024
"""What the paths of one look may take of a command line."""
READS_MAX: Final = 2
"""How often a file is read that changes meanwhile."""

FILE: Final = "f"
FOLDER: Final = "d"
NOTHING: Final = "-"
OTHER: Final = "o"
_LOOK: Final = """
for path do
  if [ -d "$path" ]; then echo d
  elif [ -f "$path" ]; then echo f
  elif [ -e "$path" ] || [ -h "$path" ]; then echo o
  else echo -
  fi
done
"""
_AGENTS: Final = (NotAFile, FileForbidden, PathRefused, DiskFull)


async def read_file(sandbox: Sandbox, path: str) -> bytes:
    """Return what a file of the workspace holds.

    Raises:
        ToolRefused: The agent's mistake.
        Fault: The provider failed.
    """
    _check_length(sandbox, path)
    for _ in range(READS_MAX):
        try:
            return await _read(sandbox, path)
        except FileMissing as missing:
            (found,) = await look(sandbox, [path])
            if found == FILE:
                raise _failed(sandbox, f"read {path}", str(missing)) from missing
            raise ToolRefused(f"There is no file {path} in the workspace.") from missing
        except _AGENTS as error:
            raise ToolRefused(str(error)) from error
        except TransferCut:
            continue
    raise ToolRefused(f"{path} changes while it is read.")


async def save_file(sandbox: Sandbox, file: SavedFile) -> None:
    """Save a file in the workspace.

    Raises:
        ToolRefused: Something of the agent's is in the way.
        Fault: The provider failed.
    """
    _check_length(sandbox, file.name)
    content = whole(file.content)
    try:
        await sandbox.put(file.name, content, size=len(file.content))
    except _AGENTS as error:
        raise ToolRefused(str(error)) from error
    except SandboxFailed:
        if not await _is_blocked(sandbox, file.name):
            raise
        told = f"{file.name} cannot be saved: a file or folder is in the way."
        raise ToolRefused(told) from None


async def look(sandbox: Sandbox, paths: Sequence[str]) -> list[str]:
    """Return what stands under each path, links followed: one letter each.

    Raises:
        SandboxFailed: The look failed, or told of fewer paths than were asked.
    """
    ended = await sandbox.exec(
        Command(
            argv=("/bin/sh", "-c", _LOOK, "sh", *paths), timeout_seconds=LOOK_SECONDS
        )
    )
    found = ended.stdout.kept.decode(errors="replace").split()
    if not ended.succeeded:
        raise _failed(sandbox, "look at paths", f"it ended with {ended.how}")
    if len(found) != len(paths) or not {*found} <= {FILE, FOLDER, NOTHING, OTHER}:
        reason = f"{len(found)} answers to {len(paths)} paths"
        raise _failed(sandbox, "look at paths", reason)
    return found


async def _read(sandbox: Sandbox, path: str) -> bytes:
    content = bytearray()
    async with sandbox.get(path) as chunks:
        async for chunk in chunks:
            content += chunk
            if len(content) > FILE_BYTES_MAX:
                told = f"{path} holds more than {FILE_BYTES_MAX} bytes."
                raise ToolRefused(told)
    return bytes(content)


async def _is_blocked(sandbox: Sandbox, path: str) -> bool:
    parts = path.split("/")
    parents = ["/".join(parts[:end]) for end in range(1, len(parts)) if parts[end - 1]]
    (there,) = await look(sandbox, [path])
    if there in (FOLDER, OTHER):
        return True
    size = max(1, LOOK_BYTES_MAX // len(path.encode()))
    for begin in range(0, len(parents), size):
        above = await look(sandbox, parents[begin : begin + size])
        if any(found in (FILE, OTHER) for found in above):
            return True
    return False


def _check_length(sandbox: Sandbox, path: str) -> None:
    """Refuse a path that no system takes; some providers only say that they failed."""
    below = path if path.startswith("/") else f"{sandbox.workdir}/{path}"
    if len(below.encode()) > PATH_BYTES_MAX:
        told = f"A path may not be longer than {PATH_BYTES_MAX} bytes, with its folder."
        raise ToolRefused(told)
    if any(len(name.encode()) > NAME_BYTES_MAX for name in path.split("/")):
        told = f"A name in a path may not be longer than {NAME_BYTES_MAX} bytes."
        raise ToolRefused(told)


def _failed(sandbox: Sandbox, operation: str, reason: str) -> Fault:
    return SandboxFailed(
        sandbox.access().provider, sandbox.sandbox_id, operation, reason
    )
