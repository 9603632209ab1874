# SPDX-License-Identifier: Apache-2.0
"""The real worker as a process of this machine, over real pipes."""

import contextlib
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import attrs
import psutil

from livery.adapters.worker_scripts import bootstrap
from livery.ports.provided.worker_channel import WorkerChannel, WorkerHello
from livery.ports.required.sandbox import Command, Ended, shell

PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.01


class ProcessStream:
    """The pipes of a process as a `ByteStream`."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def send(self, data: bytes) -> None:
        try:
            await self._stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as fault:
            raise OSError("the process takes no more") from fault

    async def receive(self) -> bytes:
        try:
            return await self._stdout.receive(65536)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as fault:
            raise OSError("the process was left") from fault

    async def aclose(self) -> None:
        with contextlib.suppress(OSError):
            await self._stdin.aclose()


@attrs.frozen(kw_only=True)
class RunningWorker:
    """A worker and its channel."""

    channel: WorkerChannel
    hello: WorkerHello
    process: anyio.abc.Process
    folder: str

    async def exec(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Ended:
        return await self.channel.exec(
            command, cwd=command.cwd or self.folder, env=env or {}, user=user
        )

    async def sh(self, script: str, *, timeout_seconds: float = 30.0) -> Ended:
        return await self.exec(shell(script, timeout_seconds=timeout_seconds))


@asynccontextmanager
async def worker_in(
    folder: str,
    *options: str,
    python: str = sys.executable,
    before: tuple[str, ...] = (),
) -> AsyncGenerator[RunningWorker]:
    """Run a worker until the block is left; it must end by itself then."""
    argv, first = bootstrap(python, *options)
    process = await anyio.open_process(
        [*before, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
    )
    async with process:
        stream = ProcessStream(process)
        channel = WorkerChannel(stream)
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                await stream.send(first)
            async with anyio.create_task_group() as tasks:
                hello = await tasks.start(channel.run)
                yield RunningWorker(
                    channel=channel, hello=hello, process=process, folder=folder
                )
                await channel.aclose()
            with anyio.fail_after(PATIENCE_SECONDS):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()


async def spare_of(worker: RunningWorker) -> psutil.Process:
    """Have a command run; return the spare once it is all that is below the worker."""
    ended = await worker.sh("echo $PPID")
    keeper = int(ended.stdout.kept)
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            below = psutil.Process(worker.hello.pid).children(recursive=True)
            if len(below) == 1 and below[0].pid != keeper:
                return below[0]
            await anyio.sleep(LOOK_SECONDS)
