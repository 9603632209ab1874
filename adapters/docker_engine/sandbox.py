# SPDX-License-Identifier: Apache-2.0
"""A container in use.

The work inside is done by hands that are found at the first need: the resident
worker where the image has a Python for it, an exec for each command where not.
When the hands are cut off, the container is looked at: it is gone and everything
says so, or it lives and new hands are found. What was under way is never done
again.
"""

import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio
import anyio.abc
import attrs

from ...ports.provided.worker_channel import (
    ChannelEnded,
    WorkerChannel,
    WorkerFailed,
    WorkerHello,
)
from ...ports.required.byte_stream import ByteStream
from ...ports.required.sandbox import (
    Command,
    Ended,
    Endpoint,
    ExitUnknown,
    FileStat,
    Liveness,
    Lost,
    NotStarted,
    PathRefused,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
    Status,
    shell,
)
from ...ports.required.sandbox_provider import (
    Capability,
    ProviderForbidden,
    ProviderUnreachable,
    Unsupported,
)
from ..worker_scripts import COUNT_OOM_KILLS, bootstrap
from .attached_exec import WorkerStream
from .bulk_files import BULK_BYTES_MAX, BULK_BYTES_MIN, BulkBroken, BulkFiles, NotBulk
from .container_config import ROOT
from .engine import Engine
from .engine_connection import BadAnswer
from .engine_facts import ContainerFacts
from .engine_faults import EngineRefused
from .opening import Opened, OpeningFailed, open_container
from .plain_dialogue import InputClosed, ScriptEnded
from .plain_files import PlainHands

LOOKS_MAX = 50
LOOK_SECONDS = 0.1
"""How often, and how long between, a container that lost its hands is looked at."""
OPENINGS_IN_ROW_MAX = 5
BACKSTOP_SECONDS = 45.0
"""What a command may take beyond deadline and grace before the host gives up."""
DISCONNECT_SECONDS = 15.0
CANNOT_RUN = 126
"""The least status of an exec that was not run, or was ended by a signal."""

STATUS_SECONDS = 5.0
ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for all of a host's, and its loopback for each."""

_log = logging.getLogger(__name__)

_Broken = (
    ChannelEnded,
    WorkerFailed,
    EngineRefused,
    OpeningFailed,
    BadAnswer,
    BulkBroken,
    ScriptEnded,
    InputClosed,
    ProviderUnreachable,
    ProviderForbidden,
)


class _Hands(Protocol):
    """Who does the work inside: `WorkerChannel` or `PlainHands`."""

    async def exec(
        self, command: Command, *, cwd: str, env: Mapping[str, str], user: str | None
    ) -> Ended: ...

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None,
        mode: int,
        user: str | None,
    ) -> None: ...

    def get(
        self, path: str, *, user: str | None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...

    async def stat(self, path: str, *, user: str | None) -> FileStat: ...

    async def aclose(self) -> None: ...


@attrs.frozen(kw_only=True)
class Berth:
    """Which container it is, and how it is used."""

    provider: str
    container_id: str
    name: str
    workdir: str
    scratch: str
    user: str
    expires_at: float | None
    """When it ends itself, as far as its labels tell."""
    lifetime_seconds: float | None = None
    """Counted from when it is made ready; None when that is long past."""
    is_borrowed: bool = False


class DockerSandbox:
    """A sandbox that is a container of a Docker Engine."""

    def __init__(
        self, berth: Berth, *, engine: Engine, tasks: anyio.abc.TaskGroup, python: str
    ) -> None:
        """Use a container; channels run in `tasks`, the provider's."""
        self._berth = berth
        self._engine = engine
        self._tasks = tasks
        self._python = python
        self._expires_at = berth.expires_at
        self._finding = anyio.Lock()
        self._hands: _Hands | None = None
        self._bulk: BulkFiles | None = None
        self._openings_in_row = 0
        self._plain_because: str | None = None
        self._lost_reason: str | None = None
        self._last_exec = ""

    @property
    def sandbox_id(self) -> SandboxId:
        """The container's name."""
        return SandboxId(self._berth.name)

    @property
    def workdir(self) -> str:
        """The absolute folder in which work is done; it exists."""
        return self._berth.workdir

    @property
    def scratch(self) -> str:
        """The folder of this claim or borrower, outside `workdir`."""
        return self._berth.scratch

    @property
    def expires_at(self) -> float | None:
        """When the container ends itself, in Unix seconds."""
        return self._expires_at

    @property
    def plain_because(self) -> str | None:
        """Why commands run without a worker; empty with one, None while unknown."""
        return self._plain_because

    async def make_ready(self) -> None:
        """Find hands and make the folders, at once instead of at the first need.

        Raises:
            OpeningFailed, EngineRefused, ChannelEnded: It cannot be made ready.
        """
        await self._take_hands()

    async def exec(self, command: Command) -> Ended:
        """Run `command` to its end."""
        start = time.monotonic()
        cwd = self._absolute(command.cwd or "")
        user = command.user or self._berth.user
        try:
            async with self._told("exec"):
                hands = await self._take_hands()
        except SandboxLost as lost:
            return Ended(how=Lost(lost.reason))
        patience = command.timeout_seconds + command.grace_seconds + BACKSTOP_SECONDS
        ended: Ended | None = None
        reason = "the sandbox did not answer in time; it may be frozen"
        try:
            with anyio.move_on_after(patience):
                ended = await hands.exec(command, cwd=cwd, env={}, user=user)
        except _Broken as broken:
            reason = str(broken)
        if ended is None:
            seconds = time.monotonic() - start
            ended = Ended(how=ExitUnknown(reason), duration_seconds=seconds)
        if not isinstance(ended.how, ExitUnknown | NotStarted):
            self._openings_in_row = 0
            return ended
        # What was not seen, or did not start, may be the sandbox's end.
        if (lost_reason := await self._find_again()) is not None:
            return attrs.evolve(ended, how=Lost(lost_reason))
        return ended

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        """Write a file, whole or not at all, owned by the sandbox's user."""
        target = self._absolute(path)
        async with self._told("put a file"):
            hands = await self._take_hands()
            if (
                self._bulk is not None
                and size is not None
                and BULK_BYTES_MIN <= size <= BULK_BYTES_MAX
            ):
                try:
                    await self._bulk.put(target, chunks, size=size, mode=mode)
                    return
                except NotBulk:
                    pass
            user = self._berth.user
            await hands.put(target, chunks, size=size, mode=mode, user=user)

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a file for reading in pieces; links are followed."""
        target = self._absolute(path)
        async with self._told("get a file"):
            hands = await self._take_hands()
            user = self._berth.user
            if self._bulk is not None and await _is_large(hands, target, user=user):
                try:
                    async with self._bulk.get(target) as pieces:
                        yield pieces
                        return
                except NotBulk:
                    pass
            async with hands.get(target, user=user) as pieces:
                yield pieces

    async def stat(self, path: str) -> FileStat:
        """Tell what is under `path`, links not followed."""
        target = self._absolute(path)
        async with self._told("look at a file"):
            hands = await self._take_hands()
            return await hands.stat(target, user=self._berth.user)

    @asynccontextmanager
    async def open_process(self, argv: tuple[str, ...]) -> AsyncGenerator[ByteStream]:
        """Run a program in the container with its streams attached."""
        async with self._told("open a process"):
            attached = await self._engine.exec_attached(
                self._berth.container_id, argv, user=self._berth.user
            )
        stream = WorkerStream(attached)
        try:
            yield stream
        finally:
            await stream.aclose()

    async def status(self) -> Status:
        """Ask the engine how the container is; never raises `SandboxLost`."""
        try:
            facts = await self._engine.inspect(self._berth.container_id)
        except _Broken as broken:
            return Status(liveness=Liveness.UNKNOWN, reason=str(broken))
        if facts is None:
            return Status(liveness=Liveness.ENDED, reason="its container is gone")
        if facts.is_live:
            if facts.state == "paused":
                return Status(liveness=Liveness.FROZEN)
            killed = await self._was_killed_for_memory()
            return Status(liveness=Liveness.RUNNING, out_of_memory=killed)
        if facts.state in {"created", "restarting"}:
            return Status(liveness=Liveness.UNKNOWN, reason=f"it is {facts.state}")
        return Status(
            liveness=Liveness.ENDED,
            reason=facts.end_reason,
            out_of_memory=facts.out_of_memory,
        )

    async def _was_killed_for_memory(self) -> bool:
        """Look at the kernel's count: the engine tells of it at the end only."""
        if self._hands is None:
            return False
        command = shell(COUNT_OOM_KILLS, timeout_seconds=STATUS_SECONDS)
        try:
            with anyio.move_on_after(STATUS_SECONDS):
                ended = await self._hands.exec(command, cwd="/", env={}, user=ROOT)
                return ended.succeeded
        except _Broken:
            return False  # The next command tells what is wrong.
        return False

    async def endpoint(self, port: int) -> Endpoint:
        """Tell where a published port is reached."""
        async with self._told("look up a port"):
            facts = await self._engine.inspect(self._berth.container_id)
            if facts is None or not facts.is_live:
                raise self._lost(_end_reason(facts))
        if port not in facts.ports or not self._engine.address.is_here:
            raise Unsupported(
                provider=self._berth.provider,
                capability=Capability.PORTS.value,
                detail=f"port {port} of this sandbox is not published to this host",
            )
        return Endpoint(url=_url_of(*facts.ports[port]))

    def access(self) -> SandboxAccess:
        """Return what a borrower needs."""
        return SandboxAccess(
            provider=self._berth.provider,
            descriptor={
                "sandbox_id": self._berth.name,
                "workdir": self._berth.workdir,
            },
            workdir=self._berth.workdir,
        )

    async def disconnect(self) -> None:
        """Let go of the worker; a borrower takes its scratch folder along."""
        with anyio.move_on_after(DISCONNECT_SECONDS, shield=True):
            hands, self._hands, self._bulk = self._hands, None, None
            if hands is None:
                return
            if self._berth.is_borrowed and self._lost_reason is None:
                await self._remove_scratch(hands)
            await hands.aclose()

    async def _is_paused(self) -> bool:
        try:
            facts = await self._engine.inspect(self._berth.container_id)
        except _Broken:
            return False  # Whoever asks next is told.
        return facts is not None and facts.state == "paused"

    async def _remove_scratch(self, hands: _Hands) -> None:
        if await self._is_paused():
            return  # It goes with its container.
        command = Command(
            argv=("rm", "-rf", self._berth.scratch), timeout_seconds=DISCONNECT_SECONDS
        )
        try:
            await hands.exec(command, cwd="/", env={}, user=ROOT)
        except _Broken as broken:
            _log.warning("%s keeps its scratch folder: %s", self.sandbox_id, broken)

    async def _take_hands(self) -> _Hands:
        async with self._finding:
            if self._lost_reason is not None:
                raise self._lost(self._lost_reason)
            if self._hands is None:
                if self._openings_in_row >= OPENINGS_IN_ROW_MAX:
                    raise ScriptEnded(
                        f"its worker ended {OPENINGS_IN_ROW_MAX} times in a row"
                    )
                self._openings_in_row += 1
                self._hands = await self._open()
            return self._hands

    async def _open(self) -> _Hands:
        berth = self._berth
        lifetime = berth.lifetime_seconds
        try:
            opened = await open_container(
                self._engine,
                berth.container_id,
                workdir=berth.workdir,
                user=berth.user,
                scratch=berth.scratch,
                expires_at=None if lifetime is None else time.time() + lifetime,
                worker=bootstrap(self._python),
            )
        except OpeningFailed as failed:
            self._last_exec = failed.exec_id or self._last_exec
            raise
        self._expires_at = opened.expires_at or self._expires_at
        if self._plain_because != opened.plain_because:
            self._plain_because = opened.plain_because
            way = "through a worker" if opened.stream else "one engine exec each"
            why = f" ({opened.plain_because})" if opened.plain_because else ""
            _log.info("%s: commands run %s%s", self.sandbox_id, way, why)
        if opened.stream is None:
            return PlainHands(self._engine, berth.container_id)
        return await self._open_channel(opened, opened.stream)

    async def _open_channel(
        self, opened: Opened, stream: WorkerStream
    ) -> WorkerChannel:
        channel = WorkerChannel(stream)
        self._last_exec = stream.exec_id
        try:
            hello: WorkerHello = await self._tasks.start(self._run_channel, channel)
        except ChannelEnded as ended:
            if not stream.complaint:
                raise
            raise ChannelEnded(f"{ended.reason}: {stream.complaint}") from ended
        except BaseException:
            await channel.aclose()  # The task may not have begun, nor will it.
            raise
        self._bulk = BulkFiles(
            engine=self._engine,
            container=self._berth.container_id,
            root_device=hello.root_device,
            worker=channel,
            user=self._berth.user,
            owner=(opened.uid, opened.gid),
            scratch=self._berth.scratch,
        )
        return channel

    async def _run_channel(
        self,
        channel: WorkerChannel,
        *,
        task_status: anyio.abc.TaskStatus[WorkerHello],
    ) -> None:
        try:
            await channel.run(task_status=task_status)
        finally:
            self._forget(channel)
            with anyio.CancelScope(shield=True):
                await channel.aclose()

    def _forget(self, hands: _Hands) -> None:
        if self._hands is hands:
            self._hands = self._bulk = None

    @asynccontextmanager
    async def _told(self, operation: str) -> AsyncGenerator[None]:
        """Tell what breaks inside as the sandbox's loss, or its provider's failure."""
        try:
            yield
            self._openings_in_row = 0
        except _Broken as broken:
            if (reason := await self._find_again()) is not None:
                raise self._lost(reason) from broken
            raise SandboxFailed(
                provider=self._berth.provider,
                sandbox=self._berth.name,
                operation=operation,
                reason=str(broken),
                from_inside=await self._was_ended_inside(),
            ) from broken

    async def _was_ended_inside(self) -> bool:
        """Whether the last exec was killed, or found nothing to run, in there.

        One whose connection broke ends by itself, or goes on.
        """
        if self._hands is not None or not self._last_exec:
            return False
        try:
            code = await self._engine.exec_exit_code(self._last_exec)
        except _Broken:
            return False
        return code is not None and code >= CANNOT_RUN

    async def _find_again(self) -> str | None:
        """Look whether the container lives; return why not, or None when it does.

        The engine calls a container running for a moment after its end. So it
        lives when it takes new hands, not when the engine says so.
        """
        reason = None
        if isinstance(self._hands, PlainHands):
            self._hands = None  # They hold nothing that would break with it.
        for _ in range(LOOKS_MAX):
            try:
                facts = await self._engine.inspect(self._berth.container_id)
                if facts is None or not facts.is_live:
                    self._lost_reason = _end_reason(facts)
                    return self._lost_reason
                if facts.state == "paused":
                    return None
                await self._take_hands()
            except SandboxLost as lost:
                return lost.reason
            except (ProviderUnreachable, ProviderForbidden, ScriptEnded):
                return None
            except _Broken as broken:
                reason = str(broken)
                await anyio.sleep(LOOK_SECONDS)
            else:
                return None
        _log.warning("%s lives and takes no commands: %s", self.sandbox_id, reason)
        return None

    def _lost(self, reason: str) -> SandboxLost:
        return SandboxLost(
            provider=self._berth.provider, sandbox=self._berth.name, reason=reason
        )

    def _absolute(self, path: str) -> str:
        if "\0" in path:
            raise PathRefused(path=path, reason="it holds a NUL")
        if ".." in path.split("/"):
            raise PathRefused(path=path, reason="it holds '..'")
        if path.startswith("/"):
            return path
        return f"{self._berth.workdir.rstrip('/')}/{path}".rstrip("/")


async def _is_large(hands: _Hands, path: str, *, user: str) -> bool:
    return (await hands.stat(path, user=user)).size >= BULK_BYTES_MIN


def _end_reason(facts: ContainerFacts | None) -> str:
    return "its container is gone" if facts is None else facts.end_reason


def _url_of(host: str, port: int) -> str:
    """Return the URL of a port of this host, published at one address of it or at all."""
    host = ANYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
