# SPDX-License-Identifier: Apache-2.0
"""A sandbox of an OpenSandbox server in use.

The work inside is done by our resident worker, over a tunnel to the door that execd
left there. When it is cut, the server is asked: the sandbox is gone and everything
says so, or another tunnel is made. What was under way is never done again.
"""

import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
)
from contextlib import asynccontextmanager

import anyio
import attrs

from ...ports.provided.worker_channel import (
    ChannelEnded,
    WorkerChannel,
    WorkerFailed,
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
from ..worker_scripts import COUNT_OOM_KILLS
from .berths import Berth
from .bulk_reading import NotBulk, is_bulk
from .command_events import StreamBroken
from .execd import ExecdGone
from .lifecycle_facts import ApiRefused, SandboxFacts, State
from .opening import OpeningFailed, until_answering
from .paths import absolute
from .places import Places
from .spec_terms import ROOT
from .tunnel import NoDoor
from .way_in import ANSWERING_SECONDS, WayIn

LOOK_SECONDS = 0.1
OPENINGS_IN_ROW_MAX = 5
BACKSTOP_SECONDS = 45.0
"""What a command may take beyond deadline and grace before the host gives up."""
FINDING_SECONDS = 10.0
DISCONNECT_SECONDS = 15.0
STATUS_SECONDS = 5.0

_log = logging.getLogger(__name__)

_Broken = (
    ApiRefused,
    ChannelEnded,
    ExecdGone,
    NoDoor,
    OpeningFailed,
    ProviderForbidden,
    ProviderUnreachable,
    StreamBroken,
    WorkerFailed,
)
_LIVENESS = {
    State.RUNNING: Liveness.RUNNING,
    State.PAUSED: Liveness.FROZEN,
    State.TERMINATED: Liveness.ENDED,
    State.FAILED: Liveness.ENDED,
    State.STOPPING: Liveness.ENDED,
}


class OpenSandbox:
    """A sandbox that an OpenSandbox server made."""

    def __init__(
        self,
        berth: Berth,
        *,
        places: Places,
        way: WayIn,
        on_disconnect: Callable[[], None],
    ) -> None:
        """Use a sandbox."""
        self._berth = berth
        self._places = places
        self._way = way
        self._on_disconnect = on_disconnect
        self._finding = anyio.Lock()
        self._channel: WorkerChannel | None = None
        self._openings_in_row = 0
        self._lost_reason: str | None = None

    @property
    def sandbox_id(self) -> SandboxId:
        """The server's id of the sandbox."""
        return SandboxId(self._berth.sandbox_id)

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
        """When the sandbox ends at the latest, in Unix seconds."""
        return self._berth.expires_at

    async def make_ready(
        self, look: Callable[[], Awaitable[None]], *, seconds: float
    ) -> None:
        """Wait for execd, make the folders and start the worker.

        Raises:
            OpeningFailed, ExecdGone, NoDoor, ChannelEnded: It cannot be made ready.
        """
        await until_answering(await self._way.execd(), look, seconds=seconds)
        await self._take_channel()

    def expire_at(self, expires_at: float) -> None:
        """Note when it ends at the latest, which counts from when it was ready."""
        self._berth = attrs.evolve(self._berth, expires_at=expires_at)

    async def exec(self, command: Command) -> Ended:
        """Run `command` to its end."""
        start = time.monotonic()
        cwd = self._absolute(command.cwd or "")
        user = command.user or self._berth.user
        try:
            async with self._told("exec"):
                channel = await self._take_channel()
        except SandboxLost as lost:
            return Ended(how=Lost(lost.reason))
        patience = command.timeout_seconds + command.grace_seconds + BACKSTOP_SECONDS
        ended: Ended | None = None
        reason = "the sandbox did not answer in time; it may be frozen"
        try:
            with anyio.move_on_after(patience):
                ended = await channel.exec(command, cwd=cwd, env={}, user=user)
        except _Broken as broken:
            reason = str(broken)
        if ended is None:
            taken = time.monotonic() - start
            ended = Ended(how=ExitUnknown(reason), duration_seconds=taken)
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
        """Write a file, whole or not at all, owned by the sandbox's user.

        It goes in by pieces with a bound, so that a small sandbox takes a large file.
        """
        target = self._absolute(path)
        async with self._told("put a file"):
            channel, user = await self._take_channel(), self._berth.user
            await channel.put(target, chunks, size=size, mode=mode, user=user)

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a file for reading in pieces; links are followed."""
        target = self._absolute(path)
        async with self._told("get a file"):
            channel, user = await self._take_channel(), self._berth.user
            if is_bulk(target, await channel.stat(target, user=user), user=user):
                try:
                    async with self._way.download(target) as pieces:
                        yield pieces
                        return
                except NotBulk:
                    pass
            async with channel.get(target, user=user) as pieces:
                yield pieces

    async def stat(self, path: str) -> FileStat:
        """Tell what is under `path`, links not followed."""
        target = self._absolute(path)
        async with self._told("look at a file"):
            channel = await self._take_channel()
            return await channel.stat(target, user=self._berth.user)

    @asynccontextmanager
    async def open_process(self, argv: tuple[str, ...]) -> AsyncGenerator[ByteStream]:
        """Run a program in the sandbox with its streams attached."""
        async with self._told("open a process"):
            await self._take_channel()
            stream = await self._way.open_program(argv)
        try:
            yield stream
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()

    async def status(self) -> Status:
        """Ask the server how the sandbox is; never raises `SandboxLost`."""
        try:
            facts = await self._facts()
        except _Broken as broken:
            return Status(liveness=Liveness.UNKNOWN, reason=str(broken))
        if facts is None:
            return Status(liveness=Liveness.ENDED, reason=self._end_reason(None))
        liveness = _LIVENESS.get(facts.state, Liveness.UNKNOWN)
        if liveness is Liveness.RUNNING:
            killed = await self._was_killed_for_memory()
            return Status(liveness=liveness, out_of_memory=killed)
        return Status(liveness=liveness, reason=facts.reason)

    async def endpoint(self, port: int) -> Endpoint:
        """Tell where a published port is reached."""
        if port not in self._berth.ports:
            raise Unsupported(
                provider=self._berth.provider,
                capability=Capability.PORTS.value,
                detail=f"port {port} was not asked for in this sandbox's spec",
            )
        async with self._told("look up a port"):
            facts = await self._facts()
            if facts is None or not facts.is_live:
                raise self._lost(self._end_reason(facts))
            return await self._places.endpoint(
                self._berth.sandbox_id, port, self._berth.token
            )

    def access(self) -> SandboxAccess:
        """Return what a borrower needs; the server gives him the token."""
        return SandboxAccess(
            provider=self._berth.provider,
            descriptor={"sandbox_id": self._berth.sandbox_id},
            workdir=self._berth.workdir,
        )

    async def disconnect(self) -> None:
        """Let go of the worker; a borrower takes its scratch folder along."""
        self._on_disconnect()
        with anyio.move_on_after(DISCONNECT_SECONDS, shield=True):
            channel, self._channel = self._channel, None
            if channel is None:
                return
            if self._berth.is_borrowed and self._lost_reason is None:
                await self._remove_scratch(channel)
            await channel.aclose()

    async def _remove_scratch(self, channel: WorkerChannel) -> None:
        command = Command(
            argv=("rm", "-rf", self._berth.scratch), timeout_seconds=DISCONNECT_SECONDS
        )
        try:
            await channel.exec(command, cwd="/", env={}, user=ROOT)
        except _Broken as broken:
            _log.warning("%s keeps its scratch folder: %s", self.sandbox_id, broken)

    def _forget(self, channel: WorkerChannel) -> None:
        if self._channel is channel:
            self._channel = None

    async def _was_killed_for_memory(self) -> bool:
        """Look at the kernel's count: the server does not tell of it."""
        if self._channel is None:
            return False
        command = shell(COUNT_OOM_KILLS, timeout_seconds=STATUS_SECONDS)
        try:
            with anyio.move_on_after(STATUS_SECONDS):
                ended = await self._channel.exec(command, cwd="/", env={}, user=ROOT)
                return ended.succeeded
        except _Broken:
            return False  # The next command tells what is wrong.
        return False

    async def _take_channel(
        self, *, patience: float = ANSWERING_SECONDS
    ) -> WorkerChannel:
        async with self._finding:
            if self._lost_reason is not None:
                raise self._lost(self._lost_reason)
            if self._channel is None:
                if self._openings_in_row >= OPENINGS_IN_ROW_MAX:
                    raise ExecdGone(
                        f"its worker ended {OPENINGS_IN_ROW_MAX} times in a row"
                    )
                self._channel = await self._way.open_worker(
                    patience=patience, forget=self._forget
                )
                self._openings_in_row += 1
            return self._channel

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
                sandbox=self._berth.sandbox_id,
                operation=operation,
                reason=str(broken),
                from_inside=isinstance(broken, OpeningFailed) and broken.lacks_python,
            ) from broken

    async def _find_again(self) -> str | None:
        """Look whether the sandbox lives; return why not, or None when it does.

        The server calls it running for as long as its container is, whatever became
        of execd. So it lives when it takes a worker, and is lost when nobody in
        there has answered for `FINDING_SECONDS`.
        """
        until = anyio.current_time() + FINDING_SECONDS
        while True:
            try:
                facts = await self._facts()
            except (ApiRefused, ProviderUnreachable, ProviderForbidden):
                return None
            if facts is None or not facts.is_live:
                self._lost_reason = self._end_reason(facts)
                return self._lost_reason
            if facts.state is State.PAUSED:
                return None
            try:
                await self._take_channel(patience=0.0)
                return None
            except SandboxLost as lost:
                return lost.reason
            except (ProviderUnreachable, ProviderForbidden, OpeningFailed):
                return None
            except _Broken as broken:
                if anyio.current_time() > until:
                    return self._given_up(facts, broken)
            await anyio.sleep(LOOK_SECONDS)

    def _given_up(self, facts: SandboxFacts, broken: Exception) -> str | None:
        """Take a sandbox for lost in which nobody answers any more.

        The server's own words go along: it may know why, and nobody here does.
        """
        if isinstance(broken, ExecdGone | NoDoor):
            self._lost_reason = (
                f"nobody in it answers any more ({broken}), and the server calls it"
                f" {facts.word} ({facts.reason})"
            )
            return self._lost_reason
        _log.warning("%s takes no commands: %s", self.sandbox_id, broken)
        return None

    async def _facts(self) -> SandboxFacts | None:
        return await self._places.lifecycle.get(self._berth.sandbox_id)

    def _end_reason(self, facts: SandboxFacts | None) -> str:
        until = self._berth.expires_at
        if until is not None and time.time() >= until:
            return "expired: its lifetime is over"
        return "its sandbox is gone" if facts is None else facts.end_reason

    def _lost(self, reason: str) -> SandboxLost:
        return SandboxLost(self._berth.provider, self._berth.sandbox_id, reason)

    def _absolute(self, path: str) -> str:
        return absolute(path, workdir=self._berth.workdir)
