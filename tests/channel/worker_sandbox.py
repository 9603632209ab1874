# SPDX-License-Identifier: Apache-2.0
"""A sandbox made of nothing but a worker and a folder, for what runs on top."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import attrs

from livery.ports.provided.worker_channel import ChannelEnded, WorkerChannel
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Endpoint,
    FileStat,
    Liveness,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    Status,
)

from .worker_process import worker_in

SANDBOX = SandboxId("worker")


@attrs.define(kw_only=True)
class WorkerSandbox:
    """Runs everything on this machine, in `workdir`."""

    channel: WorkerChannel
    workdir: str
    scratch: str
    sandbox_id: SandboxId = SANDBOX
    expires_at: float | None = None
    sent: list[Command] = attrs.field(factory=list[Command])
    """Every command, in the order in which it was run."""
    cut_after: set[str] = attrs.field(factory=set[str])
    """Words of commands whose reply is lost once."""
    cut_before: set[str] = attrs.field(factory=set[str])
    """Words of commands that do not get there once."""
    cuts_all: bool = False

    async def exec(self, command: Command) -> Ended:
        self.sent.append(command)
        if self.cuts_all:
            self.cut_before.add(command.argv[0])
        self._cut(self.cut_before, command)
        ended = await self.channel.exec(
            command, cwd=command.cwd or self.workdir, env={}, user=command.user
        )
        self._cut(self.cut_after, command)
        return ended

    def _cut(self, words: set[str], command: Command) -> None:
        for word in words & set(command.argv):
            words.remove(word)
            raise SandboxFailed("worker", self.sandbox_id, "exec", "the line was cut")

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        await self.channel.put(path, chunks, size=size, mode=mode, user=None)

    def get(self, path: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self.channel.get(path, user=None)

    async def stat(self, path: str) -> FileStat:
        return await self.channel.stat(path, user=None)

    async def status(self) -> Status:
        return Status(liveness=Liveness.RUNNING)

    async def endpoint(self, port: int) -> Endpoint:
        return Endpoint(url=f"http://127.0.0.1:{port}")

    def access(self) -> SandboxAccess:
        return SandboxAccess(provider="worker", descriptor={}, workdir=self.workdir)

    async def disconnect(self) -> None:
        return None


@asynccontextmanager
async def sandbox_in(folder: Path, python: str) -> AsyncGenerator[WorkerSandbox]:
    """Make a sandbox below `folder`, with a worker that `python` runs."""
    workdir, scratch = folder / "workdir", folder / "scratch"
    workdir.mkdir(exist_ok=True)
    scratch.mkdir(mode=0o700, exist_ok=True)
    async with worker_in(str(workdir), python=python) as worker:
        try:
            yield WorkerSandbox(
                channel=worker.channel, workdir=str(workdir), scratch=str(scratch)
            )
        except ChannelEnded as fault:
            raise AssertionError(f"the worker ended: {fault}") from fault
