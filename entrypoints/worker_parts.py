# SPDX-License-Identifier: Apache-2.0
"""The parts of one `/metrics` page, one of each worker behind an address.

Counters are a process's own, and whoever asks reaches one worker or another. So each
worker has a socket in a folder of theirs and tells its part there, and the one that is
asked puts the parts together.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import attrs

PATIENCE_SECONDS: Final = 1.0
"""How long a worker may take to tell its part; then it counts as silent."""
PART_BYTES_MAX: Final = 4 * 1024 * 1024


@attrs.define(eq=False)
class WorkerParts:
    """The parts of all workers; without `tell_at` this process is the only one."""

    own: Callable[[], bytes]
    """Returns this process's part."""
    _at: Path | None = attrs.field(default=None, init=False)

    @property
    def among_others(self) -> bool:
        """Whether there are other workers."""
        return self._at is not None

    async def tell_at(
        self,
        path: Path,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Tell this part, named by the last of `path`, to whoever connects there.

        What the worker before, which was killed, has left there goes. The last to leave
        takes the folder along: their first process may have been killed itself.
        """
        try:
            async with await _listener(path) as listener:
                self._at = path
                task_status.started()
                await listener.serve(self._tell)
        finally:
            _leave(path)

    async def _tell(self, stream: anyio.abc.ByteStream) -> None:
        async with stream:
            # Whoever asked may have gone.
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stream.send(self.own())

    async def told(self) -> dict[str, bytes | None]:
        """Return each worker's part by its name; None of one that does not tell it."""
        assert self._at is not None, "there are others"
        parts: dict[str, bytes | None] = {self._at.name: self.own()}
        async with anyio.create_task_group() as group:
            for path in _beside(self._at):
                group.start_soon(_ask, path, parts)
        return dict(sorted(parts.items()))


async def _listener(path: Path) -> anyio.abc.Listener[anyio.abc.SocketStream]:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return await anyio.create_unix_listener(path, mode=0o600)


def _leave(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def _beside(path: Path) -> list[Path]:
    try:
        return [other for other in path.parent.iterdir() if other != path]
    except OSError:
        return []  # The first process has gone, and all of them are about to end.


async def _ask(path: Path, parts: dict[str, bytes | None]) -> None:
    parts[path.name] = None
    part = bytearray()
    with anyio.move_on_after(PATIENCE_SECONDS):
        try:
            async with await anyio.connect_unix(path) as stream:
                async for piece in stream:
                    part += piece
                    if len(part) > PART_BYTES_MAX:
                        return
        except (OSError, anyio.BrokenResourceError):
            return
        parts[path.name] = bytes(part)
