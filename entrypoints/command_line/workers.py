# SPDX-License-Identifier: Apache-2.0
"""Several workers behind one address: processes that a first one begins and follows.

All accept from one listening socket, so what waits in it when a worker dies is
answered by the others. A worker that ends by itself is followed by a new one. It ends
in order when its standard input does, which is also what the end of the first process
comes to, however that ended. What they have done is told together (`worker_parts.py`),
by the names 1 to their count.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import attrs

from .shared import Status

WORKERS_MAX: Final = 256
READY: Final = b"ready\n"
PAUSE_SECONDS: Final = 0.25
PAUSE_SECONDS_MAX: Final = 10.0
"""How long it takes at most until a worker that ended is followed by another."""
LATE_SECONDS: Final = 5.0
"""What a worker may take beyond its own grace before it is killed."""
PROGRAM: Final = "from livery.entrypoints.command_line.main import main; main()"


@attrs.define(kw_only=True, eq=False)
class Workers:
    """The workers of one address; each runs `words`, a command line of ours."""

    listening: socket.socket
    words: Sequence[str]
    count: int
    grace_seconds: float
    say: Callable[[str], None]
    _ready: int = attrs.field(default=0, init=False)
    _all_ready: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _stopping: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _statuses: list[int] = attrs.field(factory=list[int], init=False)

    async def serve(self, told: str) -> int:
        """Serve until `stop`, and say `told` once all are ready; return the status."""
        with tempfile.TemporaryDirectory(
            prefix="livery-workers-", ignore_cleanup_errors=True
        ) as parts:
            async with anyio.create_task_group() as group:
                for number in range(1, self.count + 1):
                    group.start_soon(self._kept, number, Path(parts, str(number)))
                group.start_soon(self._tell, told)
        return max(self._statuses, default=Status.GRADED)

    def stop(self) -> None:
        """End all in order; no worker is followed by another any more."""
        self._stopping.set()
        self._all_ready.set()

    async def _tell(self, told: str) -> None:
        await self._all_ready.wait()
        if not self._stopping.is_set():
            self.say(told)

    async def _kept(self, number: int, part: Path) -> None:
        """Have a worker run, and another after it, until all are to end."""
        pause, was_ready = PAUSE_SECONDS, False
        while True:
            words = [*self.words, "--part", str(part)]
            async with _begun(words, self.listening.fileno()) as worker:
                is_ready = await self._attended(worker, first=not was_ready)
            status = _to_status(worker.returncode)
            if self._stopping.is_set():
                self._statuses.append(status)
                return
            if not was_ready and not is_ready:
                # What is wrong was told by it, and the next would say the same.
                self._statuses.append(status or Status.LEFT)
                self.stop()
                return
            pause = PAUSE_SECONDS if is_ready else min(pause * 2, PAUSE_SECONDS_MAX)
            was_ready = was_ready or is_ready
            self.say(f"Worker {number} has ended (status {status}); another follows.")
            with anyio.move_on_after(pause):
                await self._stopping.wait()
                return

    async def _attended(self, worker: anyio.abc.Process, *, first: bool) -> bool:
        """Wait for its end, having it end when all do; tell whether it was ready."""
        assert worker.stdout is not None, "it was begun with a pipe"
        is_ready = False
        async with anyio.create_task_group() as group:
            group.start_soon(self._ended_in_order, worker)
            async for _ in worker.stdout:
                is_ready = True
                if first:
                    first = False
                    self._count_ready()
            await worker.wait()
            group.cancel_scope.cancel()
        return is_ready

    def _count_ready(self) -> None:
        self._ready += 1
        if self._ready == self.count:
            self._all_ready.set()

    async def _ended_in_order(self, worker: anyio.abc.Process) -> None:
        await self._stopping.wait()
        assert worker.stdin is not None, "it was begun with a pipe"
        await worker.stdin.aclose()
        await anyio.sleep(self.grace_seconds + LATE_SECONDS)
        worker.kill()


def say_ready() -> None:
    """Tell the process that follows this worker that it serves."""
    os.write(sys.stdout.fileno(), READY)


async def until_left(stop: Callable[[], None]) -> None:
    """Call `stop` when the process that follows this worker wants its end, or is gone."""
    descriptor = sys.stdin.fileno()
    await anyio.wait_readable(descriptor)
    stop()


def inherited(descriptor: int) -> socket.socket:
    """Return the listening socket that this worker was begun with."""
    return socket.socket(fileno=descriptor)


@asynccontextmanager
async def _begun(
    words: Sequence[str], descriptor: int
) -> AsyncGenerator[anyio.abc.Process]:
    """Have a worker inside the block; left early, it is killed."""
    worker = await anyio.open_process(
        [
            *(sys.executable, "-P", "-c", PROGRAM),
            *(*words, "--worker", str(descriptor)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
        pass_fds=(descriptor,),
        # What a terminal sends to all of its processes is not for the worker.
        start_new_session=True,
    )
    try:
        yield worker
    finally:
        with anyio.CancelScope(shield=True):
            if worker.returncode is None:
                worker.kill()
            await worker.aclose()


def _to_status(returncode: int | None) -> int:
    """Return the status of a process as a shell tells it."""
    assert returncode is not None, "it has ended"
    return returncode if returncode >= 0 else 128 - returncode
