# SPDX-License-Identifier: Apache-2.0
"""The resident worker of a sandbox as a process of this host.

It has a session of its own and is reached over two pipes. It ends when they
are closed, also when that is because this process was killed; what it runs ends
with it. No thread belongs to it, and no process is left unreaped.
"""

import logging
import os
import subprocess
from collections.abc import Awaitable, Mapping
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from ...ports.provided.worker_channel import WorkerChannel, WorkerHello
from ..worker_scripts import bootstrap

RECEIVE_BYTES = 64 * 1024
END_SECONDS_MAX = 20.0
"""How long a worker may take to end what it runs, before it is killed."""
KILLED_SECONDS_MAX = 5.0
POLL_SECONDS = 0.01
UMASK = 0o022

_LOG = logging.getLogger(__name__)


@attrs.define(eq=False)
class PipePair:
    """A `ByteStream` over the descriptors of two pipes; it owns them."""

    _reading: int = attrs.field(alias="reading")
    _writing: int = attrs.field(alias="writing")
    _is_closed: bool = attrs.field(default=False, init=False)

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""
        left = memoryview(data)
        while left:
            self._check_open()
            try:
                left = left[os.write(self._writing, left) :]
            except BlockingIOError:
                await _ready(anyio.wait_writable(self._writing))

    async def receive(self) -> bytes:
        """Return the next bytes; empty at the end, ours or theirs."""
        while not self._is_closed:
            try:
                return os.read(self._reading, RECEIVE_BYTES)
            except BlockingIOError:
                await _ready(anyio.wait_readable(self._reading))
        return b""

    async def aclose(self) -> None:
        """Close both pipes; whoever waits for one is woken."""
        if self._is_closed:
            return
        self._is_closed = True
        for descriptor in (self._reading, self._writing):
            anyio.notify_closing(descriptor)
            os.close(descriptor)

    def _check_open(self) -> None:
        if self._is_closed:
            raise BrokenPipeError("the pipe to the worker is closed")


@attrs.define(eq=False)
class HostWorker:
    """A worker that runs, or ran, as a child of this process."""

    channel: WorkerChannel
    _stream: PipePair
    _process: subprocess.Popen[bytes]
    _gone: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    is_over: bool = attrs.field(default=False, init=False)
    """Whether nothing more can be asked of it."""

    async def serve(
        self,
        *,
        task_status: anyio.abc.TaskStatus[WorkerHello] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read what the worker says until its end, and reap it."""
        try:
            await self.channel.run(task_status=task_status)
        finally:
            self.is_over = True
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()
                await reap(self._process)
            self._gone.set()

    async def give_up(self) -> None:
        """Ask nothing more of it, without waiting for its end."""
        self.is_over = True
        await self._stream.aclose()

    async def aclose(self) -> None:
        """Have the worker end what it runs, and itself; return when it is gone."""
        await self.channel.aclose()
        await self._gone.wait()


async def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process whose pipes are closed, and kill it when it stays."""
    if await _ended_within(process, END_SECONDS_MAX):
        return
    process.kill()
    if not await _ended_within(process, KILLED_SECONDS_MAX):
        _LOG.error("The process %s does not end when killed", process.pid)


async def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        while True:
            if process.poll() is not None:
                return True
            await anyio.sleep(POLL_SECONDS)
    return process.poll() is not None


async def start_process(
    argv: tuple[str, ...],
    *,
    cwd: Path,
    env: Mapping[str, str],
    threads: anyio.CapacityLimiter,
) -> tuple[subprocess.Popen[bytes], PipePair]:
    """Start a process of its own session, with its input and output as pipes.

    Raises:
        OSError: It could not be started.
    """
    to_process, from_process = os.pipe(), os.pipe()
    stream = PipePair(reading=from_process[0], writing=to_process[1])
    try:
        for ours in (from_process[0], to_process[1]):
            os.set_blocking(ours, False)
        process = await anyio.to_thread.run_sync(
            lambda: subprocess.Popen(
                argv,
                stdin=to_process[0],
                stdout=from_process[1],
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
                umask=UMASK,
            ),
            limiter=threads,
        )
    except BaseException:
        await stream.aclose()
        raise
    finally:
        os.close(to_process[0])
        os.close(from_process[1])
    return process, stream


async def start_worker(
    tasks: anyio.abc.TaskGroup,
    *,
    python: str,
    cwd: Path,
    env: Mapping[str, str],
    threads: anyio.CapacityLimiter,
) -> HostWorker:
    """Start a worker that `tasks` serves; return it when it has said hello.

    Raises:
        OSError: It could not be started.
        ChannelEnded: It started and said no hello; it is gone again.
    """
    argv, program = bootstrap(python)
    process, stream = await start_process(argv, cwd=cwd, env=env, threads=threads)
    worker = HostWorker(WorkerChannel(stream), stream, process)
    await tasks.start(_fed_and_served, worker, stream, program)
    return worker


async def _fed_and_served(
    worker: HostWorker,
    stream: PipePair,
    program: bytes,
    *,
    task_status: anyio.abc.TaskStatus[WorkerHello],
) -> None:
    try:
        await stream.send(program)
    except OSError:
        # It ended before it read its program: the missing hello tells so.
        await stream.aclose()
    finally:
        await worker.serve(task_status=task_status)


async def _ready(waiting: Awaitable[None]) -> None:
    """Wait for a descriptor; its closing wakes too, and is seen by the caller."""
    try:
        await waiting
    except anyio.ClosedResourceError:
        return
