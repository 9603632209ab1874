# SPDX-License-Identifier: Apache-2.0
"""A sandbox that is a folder and processes of this host.

Commands and files go through a resident worker, one for each handle. A worker
that ended while the sandbox lives is started anew, a bounded number of times;
how the commands under way ended is then unknown, and said so. A sandbox whose
folder is gone, or marked as ended, is lost.
"""

import hashlib
import logging
import os
import shutil
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from ...domain.claims import ClaimId
from ...ports.provided.worker_channel import ChannelEnded, WorkerFailed
from ...ports.required.byte_stream import ByteStream
from ...ports.required.faults import Fault
from ...ports.required.sandbox import (
    Command,
    Ended,
    Endpoint,
    ExitUnknown,
    FileStat,
    Liveness,
    Lost,
    NotStarted,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
    Status,
)
from ...ports.required.sandbox_provider import Capability, Unsupported
from .claim_folders import FolderState, RecordUnreadable, read_record
from .host_processes import MARKER
from .host_worker import HostWorker, reap, start_process, start_worker
from .sandbox_paths import to_host_path

WORKER_STARTS_MAX = 20
BORROWER_CHARACTERS = 12

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


@attrs.define(kw_only=True, eq=False)
class LocalHostSandbox:
    """One handle of a sandbox; others may be open here and elsewhere."""

    provider: str
    folder: Path
    workdir: str
    env: Mapping[str, str]
    """The variables of the spec."""
    worker_env: Mapping[str, str]
    """The whole environment that its worker starts with."""
    expires_at: float
    python: str
    borrower: ClaimId | None = None
    tasks: anyio.abc.TaskGroup
    threads: anyio.CapacityLimiter
    on_closed: Callable[["LocalHostSandbox"], None]
    in_use: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    """Cancelled when the handle is let go."""
    _worker: HostWorker | None = attrs.field(default=None, init=False)
    _starts: int = attrs.field(default=0, init=False)
    _starting: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)
    _let_go: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    @property
    def sandbox_id(self) -> SandboxId:
        """The name of its folder."""
        return SandboxId(self.folder.name)

    @property
    def scratch(self) -> str:
        """The folder of Livery's own things, one for each borrower."""
        if self.borrower is None:
            return str(self.folder / "scratch")
        digest = hashlib.sha256(self.borrower.encode()).hexdigest()
        return str(self.folder / f"scratch-{digest[:BORROWER_CHARACTERS]}")

    async def exec(self, command: Command) -> Ended:
        """Run `command` to its end, as a process of this host."""
        if command.user is not None:
            reason = f"commands run as this host's user, not as {command.user!r}"
            return Ended(how=NotStarted(reason))
        if command.cwd is not None and ".." in command.cwd.split("/"):
            return Ended(how=NotStarted(f"the folder {command.cwd!r} holds '..'"))
        # The marker goes over everything: by it what belongs here is found.
        env = {**command.env, MARKER: str(self.folder)}
        try:
            worker = await self._working("exec")
        except SandboxLost as lost:
            return Ended(how=Lost(lost.reason))
        try:
            ended = await worker.channel.exec(
                attrs.evolve(command, env=env),
                cwd=os.path.join(self.workdir, command.cwd or ""),
                env=self.env,
                user=None,
            )
        except (ChannelEnded, WorkerFailed) as fault:
            if isinstance(fault, ChannelEnded):
                await worker.give_up()
            loss = self._loss()
            return Ended(how=Lost(loss) if loss else ExitUnknown(str(fault)))
        if loss := self._loss():
            # Whoever ends a sandbox marks its folder first and kills then, so this may
            # be a signal of ours, or a shell's status for one that hit its child.
            return attrs.evolve(ended, how=Lost(loss))
        return ended

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        """Write a file below the sandbox's folder, whole or not at all."""
        whole = self._host_path(path, is_followed=False)
        worker = await self._working("put")
        putting = worker.channel.put(whole, chunks, size=size, mode=mode, user=None)
        await self._told("put", worker, putting)

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a file below the sandbox's folder for reading in pieces."""
        whole = self._host_path(path, is_followed=True)
        worker = await self._working("get")
        async with AsyncExitStack() as stack:
            opened = stack.enter_async_context(worker.channel.get(whole, user=None))
            chunks = await self._told("get", worker, opened)
            yield _Chunks(lambda: self._told("get", worker, anext(chunks)))

    async def stat(self, path: str) -> FileStat:
        """Tell what is under a path below the sandbox's folder."""
        whole = self._host_path(path, is_followed=False)
        worker = await self._working("stat")
        return await self._told("stat", worker, worker.channel.stat(whole, user=None))

    @asynccontextmanager
    async def open_process(self, argv: tuple[str, ...]) -> AsyncGenerator[ByteStream]:
        """Run a program of this host with its streams attached."""
        self._check_lives()
        if self._is_closed:
            raise self._failed("open a process", "this handle was let go")
        # The marker goes over everything: by it what belongs here is found.
        env = {**self.worker_env, **self.env, MARKER: str(self.folder)}
        try:
            process, stream = await start_process(
                argv, cwd=self.folder, env=env, threads=self.threads
            )
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise self._failed("open a process", reason) from fault
        try:
            yield stream
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
                await reap(process)

    async def status(self) -> Status:
        """Tell from its folder whether the sandbox lives."""
        if loss := self._loss():
            return Status(liveness=Liveness.ENDED, reason=loss)
        return Status(liveness=Liveness.RUNNING)

    async def endpoint(self, port: int) -> Endpoint:
        """Refuse: no port is published, since none is the sandbox's own."""
        raise Unsupported(self.provider, Capability.PORTS.value, f"port {port}")

    def access(self) -> SandboxAccess:
        """Return what a borrower on this host needs."""
        return SandboxAccess(
            provider=self.provider,
            descriptor={"folder": str(self.folder), "workdir": self.workdir},
            workdir=self.workdir,
        )

    async def disconnect(self) -> None:
        """End this handle's worker, and what runs through it; nothing more."""
        if self._is_closed:
            await self._let_go.wait()
            return
        self._is_closed = True
        self.in_use.cancel()
        with anyio.CancelScope(shield=True):
            async with self._starting:
                if self._worker is not None:
                    await self._worker.aclose()
            if self.borrower is not None and not self._loss():
                await anyio.to_thread.run_sync(
                    lambda: shutil.rmtree(self.scratch, ignore_errors=True),
                    limiter=self.threads,
                )
            self.on_closed(self)
            self._let_go.set()

    async def check_ready(self, *, seconds: float) -> str | None:
        """Run a first command; return what is wrong, or None."""
        try:
            with anyio.fail_after(seconds):
                ended = await self.exec(
                    Command(argv=("true",), timeout_seconds=seconds)
                )
        except TimeoutError:
            return f"the first command did not end within {seconds:g} s"
        except Fault as fault:
            return str(fault)
        return None if ended.succeeded else f"the first command ended as {ended.how}"

    def _loss(self) -> str | None:
        """Return why the sandbox is no more, or None while it lives."""
        try:
            record = read_record(self.folder)
        except RecordUnreadable as fault:
            return str(fault)
        if record is None:
            return f"its folder {self.folder} is gone"
        if record.state is not FolderState.LIVE:
            return record.reason
        if time.time() >= record.expires:
            return "its lifetime is over"
        return None

    def _host_path(self, path: str, *, is_followed: bool) -> str:
        return to_host_path(
            path, folder=self.folder, workdir=self.workdir, is_followed=is_followed
        )

    async def _working(self, operation: str) -> HostWorker:
        """Return a worker that runs, started anew where it must be.

        Raises:
            SandboxLost: The sandbox is no more.
            SandboxFailed: No worker could be started.
        """
        self._check_lives()
        async with self._starting:
            if self._is_closed:
                raise self._failed(operation, "this handle was let go")
            if self._worker is None or self._worker.is_over:
                self._worker = await self._started(operation)
            return self._worker

    async def _started(self, operation: str) -> HostWorker:
        self._starts += 1
        if self._starts > WORKER_STARTS_MAX:
            reason = f"its worker was ended {WORKER_STARTS_MAX} times"
            raise self._failed(operation, reason)
        if self._starts > 1:
            _LOG.warning("The worker of %s was ended; starting another", self.folder)
        try:
            return await start_worker(
                self.tasks,
                python=self.python,
                cwd=self.folder,
                env=self.worker_env,
                threads=self.threads,
            )
        except (OSError, ChannelEnded) as fault:
            self._check_lives()
            raise self._failed(operation, f"no worker: {fault}") from fault

    async def _told(
        self, operation: str, worker: HostWorker, answer: Awaitable[T]
    ) -> T:
        """Await `answer`, and tell the worker's failures as the sandbox's."""
        try:
            return await answer
        except (ChannelEnded, WorkerFailed) as fault:
            if isinstance(fault, ChannelEnded):
                await worker.give_up()
            self._check_lives()
            raise self._failed(operation, str(fault)) from fault

    def _check_lives(self) -> None:
        if loss := self._loss():
            raise SandboxLost(self.provider, self.sandbox_id, loss)

    def _failed(self, operation: str, reason: str) -> SandboxFailed:
        return SandboxFailed(self.provider, self.sandbox_id, operation, reason)


@attrs.frozen
class _Chunks(AsyncIterator[bytes]):
    """The pieces of a file, each had by `next_chunk`."""

    next_chunk: Callable[[], Awaitable[bytes]]

    async def __anext__(self) -> bytes:
        return await self.next_chunk()
