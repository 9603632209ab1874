# SPDX-License-Identifier: Apache-2.0
"""Serve resources sessions to callers that come and go.

Seed, verify and close run to their end whoever leaves, and equal calls share them.
Closed sessions are kept for a while and then forgotten, and one that nobody uses is
closed. At shutdown a flag comes first; then every sandbox that is lent is stopped,
many at once, and what could not be is named.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.abc
import attrs

from ...domain.activations import Stillness
from ...domain.admissions import AdmissionIsShut, Ticket
from ...domain.deciders import Instant
from ...domain.digests import Json
from ...domain.refusals import Refusal
from ...domain.resources_sessions import (
    ResourcesNotUsable,
    ResourcesPhase,
    ResourcesSessionId,
)
from ...domain.tasks import EpisodeId, Task
from ..required.faults import Fault
from ..required.journal import resources_session_stream
from ..required.participants import TaskState, Turn
from .close_late import CloseLate
from .closed_sessions import ClosedSessions, sweeping
from .log_context import logged_as
from .open_resources import OpenResources
from .resources_sessions import ResourcesSessions
from .shared_calls import SharedCalls, open_shared_calls

log = logging.getLogger(__name__)

STOPPED_AT_ONCE: Final = 64
SHARE_OF_STOP: Final = 0.5
"""How much of the shutdown one sandbox may take, so that a few that hang leave room."""
REOPENED_AT_ONCE: Final = 16


@attrs.frozen(kw_only=True)
class ResourcesPatience:
    """The times and numbers that bound what is served. All times are in seconds."""

    close_timeout_seconds: float = 120.0
    close_retry_window_seconds: float = 300.0
    closed_max: int = 10_000
    idle_timeout_seconds: float = 24 * 3600.0
    shutdown_seconds: float = 28.0


def _none_closed(served: "ServedResources") -> ClosedSessions[ResourcesSessionId]:
    return ClosedSessions(
        clock=served.sessions.clock,
        keep_seconds=served.patience.close_retry_window_seconds,
        kept_max=served.patience.closed_max,
        closed_at=served.closed_at,
        erase=served.erase,
    )


@attrs.frozen(kw_only=True)
class ServedResources:
    """The sessions that this process serves."""

    sessions: ResourcesSessions
    patience: ResourcesPatience
    group: anyio.abc.TaskGroup
    calls: SharedCalls
    forgotten: Callable[[ResourcesSessionId], None] = lambda session: None
    """Told of each session that nothing is kept of any more."""
    _used: dict[ResourcesSessionId, float] = attrs.field(
        factory=dict[ResourcesSessionId, float], init=False
    )
    _closed: ClosedSessions[ResourcesSessionId] = attrs.field(
        default=attrs.Factory(_none_closed, takes_self=True), init=False
    )
    _draining: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    @property
    def draining(self) -> bool:
        """Whether shutdown has begun."""
        return self._draining.is_set()

    @property
    def remembered(self) -> int:
        """How many sessions this process holds anything of, the closed included."""
        return len({*self.sessions.open_here, *self._used, *self._closed.names})

    def check_open(self) -> None:
        """Raise `AdmissionIsShut` once shutdown has begun."""
        if self.draining:
            raise AdmissionIsShut(ticket=Ticket("resources"))

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> OpenResources:
        """Build a session's world; equal seeds share one.

        Raises:
            AdmissionIsShut: Shutdown has begun.
            Refusal, Fault: As `ResourcesSessions.seed` says.
        """
        self.check_open()

        async def work() -> OpenResources:
            with logged_as(episode=episode.key, session=session):
                try:
                    opened = await self.sessions.seed(session, episode, task)
                except ResourcesNotUsable:
                    if not await self._closed.forget_if_old(session):
                        raise
                    opened = await self.sessions.seed(session, episode, task)
                self.used(session)
                return opened

        key = ("seed", session, episode, task.task_id, task.request)
        return await self.calls(key, work, linger_seconds=None)

    async def verify(
        self,
        session: ResourcesSessionId,
        task: Task,
        turn: Turn,
        *,
        stillness: Stillness | None = None,
    ) -> Mapping[str, Json]:
        """Grade a session; equal calls share one verdict.

        Raises:
            Refusal, Fault: As `ResourcesSessions.verify` says.
        """

        async def work() -> Mapping[str, Json]:
            with logged_as(session=session):
                self.used(session)
                return await self.sessions.verify(
                    session, task, turn, stillness=stillness
                )

        key = ("verify", session, turn.answer)
        return await self.calls(key, work, linger_seconds=None)

    async def close(
        self, session: ResourcesSessionId, episode: EpisodeId, *, reason: str = ""
    ) -> None:
        """End a session; the same answer each time.

        Raises:
            CloseLate: It took too long, and can be asked again.
            Refusal, Fault: As `ResourcesSessions.close` says.
        """
        seconds = self.patience.close_timeout_seconds

        async def work() -> None:
            with logged_as(episode=episode.key, session=session):
                if not self.sessions.is_open_here(session):
                    await self._closed.forget_if_old(session)
                try:
                    with anyio.fail_after(seconds):
                        closed = await self.sessions.close(session, episode)
                except TimeoutError as late:
                    raise CloseLate(session, seconds) from late
                self._used.pop(session, None)
                await self._closed.note(session, closed.at)

        if reason:
            log.warning("Session %s is closed: %s", session, reason)
        await self.calls(("close", session, episode), work, linger_seconds=None)

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        """Return what the last finished call left."""
        return await self.sessions.task_state(session)

    def used(self, session: ResourcesSessionId) -> None:
        """Note that somebody uses a session."""
        if self.sessions.is_open_here(session):
            self._used[session] = self.sessions.clock.monotonic()

    async def restore(self) -> tuple[ResourcesSessionId, ...]:
        """Open again what another process left open; return what there is of sessions.

        One that cannot be gone on with is among them: who asks for it is told why.
        """
        names = await self.sessions.journal.open_streams("resources_sessions")
        limiter = anyio.CapacityLimiter(REOPENED_AT_ONCE)

        async def reopen(session: ResourcesSessionId) -> None:
            async with limiter:
                with logged_as(session=session):
                    try:
                        opened = await self.sessions.reopen(session)
                    except (Fault, Refusal) as error:
                        log.error("Session %s is not gone on with: %s", session, error)
                        return
            if opened is not None:
                self.used(session)

        found = tuple(map(ResourcesSessionId, names))
        async with anyio.create_task_group() as group:
            for session in found:
                group.start_soon(reopen, session)
        return found

    async def drain(self) -> None:
        """Build and make nothing any more, and stop every sandbox that is lent, once."""
        if self.draining:
            return
        self._draining.set()
        limiter = anyio.CapacityLimiter(STOPPED_AT_ONCE)
        seeding = self.sessions.making
        owed = {*self.sessions.open_here, *seeding}
        stopped: set[ResourcesSessionId] = set()
        with anyio.move_on_after(self.patience.shutdown_seconds, shield=True):
            async with anyio.create_task_group() as group:
                for session in owed:
                    group.start_soon(self._stop, session, limiter, stopped)
        left = owed - stopped
        _tell("Lent sandboxes were not stopped in time", left - seeding)
        _tell("Sandboxes being made were not stopped in time", left & seeding)

    async def _stop(
        self,
        session: ResourcesSessionId,
        limiter: anyio.CapacityLimiter,
        stopped: set[ResourcesSessionId],
    ) -> None:
        """Stop what a session lends, once its seed is over, if one is under way."""
        with logged_as(session=session):
            try:
                await self.sessions.seed_over(session)
                async with limiter:
                    with anyio.fail_after(
                        self.patience.shutdown_seconds * SHARE_OF_STOP
                    ):
                        await self.sessions.give_back(session)
            except (Fault, Refusal, TimeoutError) as fault:
                reason = str(fault) or "it took too long"
                log.error("Session %s keeps its sandbox: %s", session, reason)
            else:
                stopped.add(session)

    async def sweep(self) -> None:
        """Forget closed sessions, and close those that nobody uses, until cancelled."""
        patience = self.patience
        await sweeping(
            self.sessions.clock,
            self._sweep_once,
            shortest_seconds=min(
                patience.close_retry_window_seconds, patience.idle_timeout_seconds
            ),
        )

    async def _sweep_once(self) -> None:
        await self._closed.forget_old()
        for session in self._idle():
            await self._close_idle(session)

    def _idle(self) -> list[ResourcesSessionId]:
        now = self.sessions.clock.monotonic()
        before = now - self.patience.idle_timeout_seconds
        old = [session for session, used in self._used.items() if used < before]
        for session in filter(self.sessions.is_in_hand, old):
            self._used[session] = now  # A call may take longer than a session may idle.
        return [session for session in old if not self.sessions.is_in_hand(session)]

    async def _close_idle(self, session: ResourcesSessionId) -> None:
        built = (await self.sessions.standing(session)).state.built
        if built is None:
            self._used.pop(session, None)
            return
        seconds = self.patience.idle_timeout_seconds
        reason = f"nobody used it for {seconds:g} seconds"
        await self.close(session, built.episode, reason=reason)

    async def closed_at(self, session: ResourcesSessionId) -> Instant | None:
        """Return when a session was closed; None while it is not."""
        closed = (await self.sessions.standing(session)).state.closed
        return None if closed is None else closed.at

    async def erase(self, session: ResourcesSessionId) -> None:
        """Forget a closed session; may raise `StreamMoved`."""
        self.forgotten(session)
        standing = await self.sessions.standing(session)
        if standing.state.phase is ResourcesPhase.CLOSED:
            await self.sessions.journal.forget(
                resources_session_stream(session), expected_version=standing.version
            )


def _tell(told: str, sessions: set[ResourcesSessionId]) -> None:
    if sessions:
        names = ", ".join(sorted(sessions))
        log.error(
            "%s (%d): %s. `livery claims reap` ends them.", told, len(sessions), names
        )


@asynccontextmanager
async def serve_resources(
    make: Callable[[Callable[[], None]], ResourcesSessions],
    patience: ResourcesPatience,
    forgotten: Callable[[ResourcesSessionId], None] = lambda session: None,
) -> AsyncGenerator[ServedResources]:
    """Serve sessions inside the block; on leaving, what is lent is stopped.

    `make` is given what raises once shutdown has begun.
    """
    served: list[ServedResources] = []

    def check() -> None:
        if served:
            served[0].check_open()

    raised: Exception | None = None
    async with anyio.create_task_group() as group, open_shared_calls() as calls:
        served.append(
            ServedResources(
                sessions=make(check),
                patience=patience,
                group=group,
                calls=calls,
                forgotten=forgotten,
            )
        )
        group.start_soon(served[0].sweep)
        try:
            yield served[0]
        except Exception as error:
            raised = error  # Raised below: from in here it would come in a group.
        finally:
            with anyio.CancelScope(shield=True):
                await served[0].drain()
            group.cancel_scope.cancel()
    if raised is not None:
        raise raised
