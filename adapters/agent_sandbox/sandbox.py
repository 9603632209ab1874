# SPDX-License-Identifier: Apache-2.0
"""A claimed sandbox in use.

The work inside is done by the resident worker, over calls of the runtime server.
When it is cut off, the cluster is asked: the claim or its Sandbox is gone or
another, and everything says so, or it lives and takes a new worker. What was under
way is never done again. While a worker is there, the namespace's watch tells of the
sandbox's end at once.
"""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import attrs

from ...ports.provided.worker_channel import ChannelEnded, WorkerFailed
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
)
from ...ports.required.sandbox_provider import Capability, Unsupported
from .berths import ENV_FILE, Berth, read_env, write_env
from .claim_watch import ClaimWatch, Followed
from .cluster_faults import ClusterRefused, ClusterSilent
from .connections import Connections, NoWay
from .hands import Hands, HandsConfig, Wanted, run_hands
from .opening import OpeningFailed
from .runtime_api import RuntimeFailed, RuntimeRefused
from .standing import Standing

FIND_SECONDS = 6.0
"""How long a sandbox that the cluster calls ready may answer nothing, once its
worker was lost, before it is called lost itself."""
LOOK_SECONDS = 0.3
OPENINGS_IN_ROW_MAX = 5
BACKSTOP_SECONDS = 60.0
"""What a command may take beyond deadline and grace before the host gives up."""
DISCONNECT_SECONDS = 15.0

_log = logging.getLogger(__name__)

_Broken = (
    ChannelEnded,
    WorkerFailed,
    OpeningFailed,
    RuntimeFailed,
    RuntimeRefused,
    NoWay,
    ClusterRefused,
    ClusterSilent,
)


class AgentSandbox:
    """A sandbox that is bound to a SandboxClaim."""

    def __init__(
        self,
        berth: Berth,
        *,
        standing: Standing,
        connections: Connections,
        watch: ClaimWatch,
        tasks: anyio.abc.TaskGroup,
        config: HandsConfig,
    ) -> None:
        """Use a bound sandbox; workers' channels run in `tasks`, the provider's."""
        self._berth = berth
        self._standing = standing
        self._connections = connections
        self._watch = watch
        self._tasks = tasks
        self._config = config
        self._env = dict(berth.env or {})
        self._has_env = berth.env is not None
        self._scratch = ""
        self._finding = anyio.Lock()
        self._hands: Hands | None = None
        self._openings_in_row = 0
        self._lost_reason: str | None = None
        self.holds_token = False
        """Whether a token of the cluster's API server was found inside."""

    @property
    def sandbox_id(self) -> SandboxId:
        """Namespace and name of the claim."""
        return SandboxId(self._berth.name)

    @property
    def workdir(self) -> str:
        """The absolute folder in which work is done; it exists."""
        return self._berth.workdir

    @property
    def scratch(self) -> str:
        """The folder of this claim or borrower, outside `workdir`."""
        return self._scratch

    @property
    def expires_at(self) -> float | None:
        """When the cluster ends the claim, in Unix seconds."""
        return self._berth.expires_at

    async def make_ready(self, *, seconds: float) -> None:
        """Start the worker and make the folders, at once instead of at first need.

        Raises:
            OpeningFailed, RuntimeFailed, RuntimeRefused, NoWay, ChannelEnded: It
                cannot be made ready.
            SandboxLost: It ended meanwhile.
        """
        hands = await self._take_hands(seconds=seconds)
        self.holds_token = hands.holds_token
        path = f"{self._scratch}/{ENV_FILE}"
        with hands.stream.needed():
            if not self._has_env:
                self._env = await read_env(hands, path)
                self._has_env = True
            elif self._env:
                await write_env(hands, path, self._env)

    def expires(self, at: float) -> None:
        """Note when the cluster ends the claim."""
        self._berth = attrs.evolve(self._berth, expires_at=at)

    async def exec(self, command: Command) -> Ended:
        """Run `command` to its end."""
        start = time.monotonic()
        cwd = self._absolute(command.cwd or "")
        try:
            async with self._told("exec"):
                hands = await self._take_hands()
        except SandboxLost as lost:
            return Ended(how=Lost(lost.reason))
        patience = command.timeout_seconds + command.grace_seconds + BACKSTOP_SECONDS
        ended: Ended | None = None
        reason = "the sandbox did not answer in time"
        try:
            with anyio.move_on_after(patience), hands.stream.needed():
                ended = await hands.channel.exec(
                    command, cwd=cwd, env=self._env, user=command.user
                )
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
            with hands.stream.needed():
                await hands.channel.put(target, chunks, size=size, mode=mode, user=None)

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a file for reading in pieces; links are followed."""
        target = self._absolute(path)
        async with self._told("get a file"):
            hands = await self._take_hands()
            with hands.stream.needed():
                async with hands.channel.get(target, user=None) as pieces:
                    yield pieces

    async def stat(self, path: str) -> FileStat:
        """Tell what is under `path`, links not followed."""
        target = self._absolute(path)
        async with self._told("look at a file"):
            hands = await self._take_hands()
            with hands.stream.needed():
                return await hands.channel.stat(target, user=None)

    async def status(self) -> Status:
        """Ask the cluster how the sandbox is; never raises `SandboxLost`."""
        if self._lost_reason is not None:
            return Status(liveness=Liveness.ENDED, reason=self._lost_reason)
        try:
            return await self._standing.status(self._berth.bound)
        except (ClusterRefused, ClusterSilent) as broken:
            return Status(liveness=Liveness.UNKNOWN, reason=str(broken))

    async def endpoint(self, port: int) -> Endpoint:
        """Tell where a port that was asked for is reached."""
        if port not in self._berth.ports:
            raise Unsupported(
                provider=self._berth.provider,
                capability=Capability.PORTS.value,
                detail=f"port {port} of this sandbox was not asked for",
            )
        async with self._told("look up a port"):
            if self._lost_reason is not None:
                raise self._lost(self._lost_reason)
            return await self._connections.endpoint(self._berth.bound.place, port=port)

    def access(self) -> SandboxAccess:
        """Return what a borrower needs."""
        return SandboxAccess(
            provider=self._berth.provider,
            descriptor={
                "sandbox_id": self._berth.name,
                "sandbox_uid": self._berth.bound.sandbox.uid,
            },
            workdir=self._berth.workdir,
        )

    async def disconnect(self) -> None:
        """Let go of the worker; a borrower takes its scratch folder along."""
        with anyio.move_on_after(DISCONNECT_SECONDS, shield=True):
            hands, self._hands = self._hands, None
            if hands is None:
                return
            if self._berth.is_borrowed and self._lost_reason is None:
                await self._remove_scratch(hands)
            await hands.channel.aclose()

    async def _remove_scratch(self, hands: Hands) -> None:
        # The porter, whose folder it is, takes the empty one along when it ends.
        script = 'rm -rf "$1"; rm -f "$2"/porter-*'
        command = Command(
            argv=("/bin/sh", "-c", script, "sandbox", self._scratch, hands.folder),
            timeout_seconds=DISCONNECT_SECONDS,
        )
        try:
            with hands.stream.needed():
                await hands.channel.exec(command, cwd="/", env={}, user=None)
        except _Broken as broken:
            _log.warning("%s keeps its scratch folder: %s", self.sandbox_id, broken)

    async def _take_hands(self, *, seconds: float = FIND_SECONDS) -> Hands:
        async with self._finding:
            if self._lost_reason is not None:
                raise self._lost(self._lost_reason)
            hands = self._hands
            if hands is not None and not await hands.stream.is_there():
                self._forget(hands)
                hands.stream.cut()
                hands = None
            if hands is None:
                if self._openings_in_row >= OPENINGS_IN_ROW_MAX:
                    raise ChannelEnded(
                        f"its worker ended {OPENINGS_IN_ROW_MAX} times in a row"
                    )
                self._openings_in_row += 1
                hands = await self._open(seconds)
                self._hands = hands
            return hands

    async def _open(self, seconds: float) -> Hands:
        endpoint = await self._connections.endpoint(self._berth.bound.place)
        wanted = Wanted(
            endpoint=endpoint,
            workdir=self._berth.workdir,
            key=self._berth.key,
            is_known=bool(self._scratch) or self._berth.env is None,
            seconds=seconds,
            is_lost=self._is_lost,
            until_lost=self._until_lost,
            forget=self._forget,
        )
        hands: Hands = await self._tasks.start(
            run_hands, self._config, self._connections, wanted
        )
        self._scratch = hands.scratch
        return hands

    async def _until_lost(self) -> None:
        """Wait until the watch tells of the sandbox's end, and note it."""
        bound = self._berth.bound

        def is_over(followed: Followed) -> bool:
            facts = None if followed.is_gone else followed.facts
            return bound.end_of(facts) is not None

        with self._watch.follow(bound.claim.name, facts=bound.claim) as followed:
            while True:
                try:
                    await followed.until(is_over)
                except ClusterRefused:
                    # Nothing is heard, so every call asks by itself.
                    await anyio.sleep_forever()
                facts = None if followed.is_gone else followed.facts
                self._lost_reason = bound.end_of(facts)
                return

    def _forget(self, hands: Hands) -> None:
        if self._hands is hands:
            self._hands = None

    async def _is_lost(self) -> bool:
        """Whether the sandbox was seen gone; not when nothing could be seen."""
        if self._lost_reason is None:
            try:
                now, reason = await self._standing.now(self._berth.bound)
            except (ClusterRefused, ClusterSilent):
                return False
            self._berth = attrs.evolve(self._berth, bound=now)
            self._lost_reason = reason
        return self._lost_reason is not None

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
            ) from broken

    async def _find_again(self) -> str | None:
        """Look whether the sandbox lives; return why not, or None when it may.

        It lives when it takes a new worker, not when the cluster calls it ready: a
        pod may be gone for a while before that is told.
        """
        broken: Exception | None = None
        until = time.monotonic() + FIND_SECONDS
        while time.monotonic() < until:
            if await self._is_lost():
                return self._lost_reason
            try:
                await self._take_hands(seconds=until - time.monotonic())
            except SandboxLost as lost:
                return lost.reason
            except OpeningFailed as failed:
                if failed.is_loss:
                    self._lost_reason = f"its pod is another one: {failed.reason}"
                    return self._lost_reason
                return None
            except (RuntimeRefused, ChannelEnded, ClusterRefused, ClusterSilent):
                return None
            except (RuntimeFailed, NoWay) as failed:
                broken = failed
                self._connections.forget()
                await anyio.sleep(LOOK_SECONDS)
            else:
                return None
        return self._silent(broken)

    def _silent(self, broken: Exception | None) -> str | None:
        """Tell what a long silence means: a router's own is not the sandbox's."""
        through = self._connections.is_through_router
        if through and not (isinstance(broken, RuntimeFailed) and broken.status == 502):
            return None
        told = self._berth.bound.claim.told
        self._lost_reason = f"it does not answer ({broken}); its claim tells {told}"
        return self._lost_reason

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
