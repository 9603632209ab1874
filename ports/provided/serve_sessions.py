# SPDX-License-Identifier: Apache-2.0
"""Serve agent sessions to callers that come and go.

Seed and close run to their end whoever leaves. An activation goes on without a caller
for a while, so that a repeat finds it. So many sessions are open at once; closed ones
are kept for a while and then forgotten, and one that nobody uses is closed.
"""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.abc
import attrs

from ...domain.activations import Ending
from ...domain.admissions import AdmissionIsShut, Ticket
from ...domain.agent_sessions import (
    AgentSessionId,
    SessionClosed,
    SessionIsClosed,
    SessionPhase,
)
from ...domain.deciders import Instant
from ...domain.digests import Json, RequestDigest
from ...domain.refusals import Refusal
from ...domain.requests import request_digest
from ...domain.tasks import EpisodeId
from ..required.faults import Fault
from ..required.journal import agent_session_stream
from .admit_over_workers import AdmitOverWorkers
from .agent_sessions import AgentSessions
from .close_late import CloseLate
from .closed_sessions import ClosedSessions, sweeping
from .log_context import logged_as
from .session_grants import SessionGrant, grant_digest
from .shared_calls import SharedCalls, open_shared_calls

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""How long a follower pauses when the journal could not be looked at."""
SEEDS_LOOK_SECONDS: Final = 0.05
"""How often a shutdown looks what became of seeds that it found under way."""


@attrs.frozen(kw_only=True)
class Patience:
    """The times and numbers that bound what is served. All times are in seconds."""

    disconnect_grace_seconds: float = 30.0
    close_timeout_seconds: float = 120.0
    close_retry_window_seconds: float = 300.0
    closed_max: int = 10_000
    idle_timeout_seconds: float = 24 * 3600.0
    shutdown_seconds: float = 30.0


def _none_closed(served: "ServedSessions") -> ClosedSessions[AgentSessionId]:
    return ClosedSessions(
        clock=served.sessions.clock,
        keep_seconds=served.patience.close_retry_window_seconds,
        kept_max=served.patience.closed_max,
        closed_at=served.closed_at,
        erase=served.erase,
    )


@attrs.frozen(kw_only=True)
class ServedSessions:
    """The sessions that this process serves."""

    sessions: AgentSessions
    admit: AdmitOverWorkers
    patience: Patience
    group: anyio.abc.TaskGroup
    calls: SharedCalls
    _followed: set[AgentSessionId] = attrs.field(
        factory=set[AgentSessionId], init=False
    )
    _used: dict[AgentSessionId, float] = attrs.field(
        factory=dict[AgentSessionId, float], init=False
    )
    _adopted: set[AgentSessionId] = attrs.field(factory=set[AgentSessionId], init=False)
    """Those of dead processes, until they are over."""
    _closed: ClosedSessions[AgentSessionId] = attrs.field(
        default=attrs.Factory(_none_closed, takes_self=True), init=False
    )
    _seeding: Counter[AgentSessionId] = attrs.field(
        factory=Counter[AgentSessionId], init=False
    )
    """How many seeds of a session are under way; only equal ones share one."""
    _draining: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    @property
    def draining(self) -> bool:
        """Whether shutdown has begun."""
        return self._draining.is_set()

    @property
    def remembered(self) -> int:
        """How many sessions this process holds anything of, the closed included."""
        held = {
            *self.sessions.open_here,
            *self._used,
            *self._followed,
            *self._closed.names,
        }
        return len(held)

    async def seed(
        self, session: AgentSessionId, episode: EpisodeId, grant: SessionGrant
    ) -> None:
        """Set a session up; equal seeds share one setup.

        Raises:
            Refusal, Fault: As `AgentSessions.seed` and `AdmitOverWorkers.admit` say.
        """
        self._check_open(session)
        await self.calls(
            ("seed", session, grant_digest(episode, grant)),
            lambda: self._seed(session, episode, grant),
            linger_seconds=None,
        )

    async def activate(
        self,
        session: AgentSessionId,
        parameters: Mapping[str, Json],
        *,
        model_prefix: str = "",
    ) -> Ending:
        """Run the harness for this request, at most once; equal requests share it.

        Raises:
            Refusal, Fault: As `AgentSessions.activate` says.
        """
        self._check_open(session)
        digest = request_digest(parameters)
        return await self.calls(
            ("activate", session, digest),
            lambda: self._activate(session, parameters, model_prefix, digest),
            linger_seconds=self.patience.disconnect_grace_seconds,
            wanted=lambda: self._is_awaited(session),
        )

    async def close(
        self, session: AgentSessionId, episode: EpisodeId, *, reason: str = ""
    ) -> SessionClosed:
        """End a session; the same answer each time.

        Raises:
            CloseLate: It took too long, and can be asked again.
            Refusal, Fault: As `AgentSessions.close` says.
        """
        return await self.calls(
            ("close", session, episode),
            lambda: self._close(session, episode, reason),
            linger_seconds=None,
        )

    async def drain(self) -> None:
        """Begin no session any more, end what runs, and give everything back, once."""
        if self.draining:
            return
        self._draining.set()
        self.admit.shut()
        self.sessions.shut()
        left: list[str] = []
        seen: set[AgentSessionId] = set()
        with anyio.move_on_after(self.patience.shutdown_seconds, shield=True):
            async with anyio.create_task_group() as group:
                while True:
                    for session in {*self.sessions.open_here} - seen:
                        seen.add(session)
                        group.start_soon(self._stop, session, left)
                    if not self._seeding:
                        break
                    # One that was let in before may come to be open yet.
                    await anyio.sleep(SEEDS_LOOK_SECONDS)
        left += self.sessions.open_here
        for name in dict.fromkeys(left):
            log.error("Session %s was not given back in time", name)

    async def _seed(
        self, session: AgentSessionId, episode: EpisodeId, grant: SessionGrant
    ) -> None:
        with logged_as(episode=episode.key, session=session):
            self._seeding[session] += 1
            try:
                await self._admitted(session)
                self._check_open(session)
                try:
                    await self.sessions.seed(session, episode, grant)
                except SessionIsClosed:
                    if not await self._closed.forget_if_old(session):
                        raise
                    await self._admitted(session)
                    await self.sessions.seed(session, episode, grant)
            finally:
                self._seeding[session] -= 1
                if not self._seeding[session]:
                    del self._seeding[session]
                    # Refused, undone, or set up by another server meanwhile.
                    if not self.sessions.is_open_here(session):
                        await self.admit.leave(Ticket(session))
            self.follow_if_open(session)

    async def _admitted(self, session: AgentSessionId) -> None:
        """Have a place for a session, unless it is one that needs none.

        Whether it does is looked up when no place is free; a place that turns out to
        be for nothing is given back after the seed.
        """
        if await self.admit.admit_at_once(Ticket(session)):
            return
        await self._closed.forget_if_old(session)
        state = (await self.sessions.standing(session)).state
        if state.seeded is None and state.closed is None:
            await self.admit.admit(Ticket(session))

    async def _activate(
        self,
        session: AgentSessionId,
        parameters: Mapping[str, Json],
        model_prefix: str,
        digest: RequestDigest,
    ) -> Ending:
        with logged_as(session=session):
            closed = (await self.sessions.known(session)).state.closed
            if closed is not None:
                raise SessionIsClosed(at=closed.at)
            if await self.sessions.is_orphan(session):
                self.admit.keep(Ticket(session))
            try:
                return await self.sessions.activate(
                    session, parameters, model_prefix=model_prefix, digest=digest
                )
            finally:
                self.follow_if_open(session)
                is_open = self.sessions.is_open_here(session)
                if not is_open and session not in self._adopted:
                    await self.admit.leave(Ticket(session))

    async def _close(
        self, session: AgentSessionId, episode: EpisodeId, reason: str
    ) -> SessionClosed:
        seconds = self.patience.close_timeout_seconds
        with logged_as(episode=episode.key, session=session):
            if not self.sessions.is_open_here(session):
                await self._closed.forget_if_old(session)
            try:
                with anyio.fail_after(seconds):
                    closed = await self.sessions.close(session, episode, reason=reason)
            except TimeoutError as late:
                raise CloseLate(session, seconds) from late
            self._used.pop(session, None)
            await self.admit.leave(Ticket(session))
            await self._closed.note(session, closed.at)
            return closed

    async def _is_awaited(self, session: AgentSessionId) -> bool:
        """Tell whether somebody waits for it at another worker, or may do."""
        try:
            return await self.sessions.elsewhere.is_awaited(session)
        except Fault as fault:
            log.warning("Who waits for session %s is unknown: %s", session, fault)
            return True

    def _check_open(self, session: AgentSessionId) -> None:
        if self.draining:
            raise AdmissionIsShut(ticket=Ticket(session))

    def follow_if_open(self, session: AgentSessionId) -> None:
        """Follow a session that is open here, and note that it is in use."""
        if not self.sessions.is_open_here(session):
            return
        self._used[session] = self.sessions.clock.monotonic()
        if session not in self._followed:
            self._followed.add(session)
            self.group.start_soon(self._followed_to_its_end, session)

    async def _followed_to_its_end(self, session: AgentSessionId) -> None:
        with logged_as(session=session):
            while self.sessions.is_open_here(session) and not self.draining:
                try:
                    await self.sessions.follow(session)
                except Fault as fault:
                    log.warning("Not followed for a moment: %s", fault)
                    await anyio.sleep(RETRY_SECONDS)
        self._followed.discard(session)
        self._used.pop(session, None)
        await self.admit.leave(Ticket(session))

    async def sweep(self) -> None:
        """Forget closed sessions, close those that nobody uses, and hold the sandboxes
        of those whose process died, until cancelled.
        """
        patience = self.patience
        await sweeping(
            self.sessions.clock,
            self._sweep_once,
            shortest_seconds=min(
                patience.close_retry_window_seconds, patience.idle_timeout_seconds
            ),
        )

    async def _sweep_once(self) -> None:
        for session in await self.sessions.adopt():
            log.warning("Session %s of a dead process is held here", session)
            self._adopt(session)
        for session in tuple(self._adopted):
            await self._let_go_if_over(session)
        await self._closed.forget_old()
        for session in self._idle():
            await self._close_idle(session)
        await self.sessions.elsewhere.forget_dead()

    def _adopt(self, session: AgentSessionId) -> None:
        self._used[session] = self.sessions.clock.monotonic()
        self._adopted.add(session)
        self.admit.keep(Ticket(session))
        self.group.start_soon(self._finish, session)

    async def _finish(self, session: AgentSessionId) -> None:
        """See what a dead process left running to its end, also if nobody comes back."""
        with logged_as(session=session):
            try:
                request = await self.sessions.left_running(session)
                if request is not None:
                    await self.calls(
                        ("activate", session, request),
                        lambda: self.sessions.finish(session, request),
                        linger_seconds=None,
                    )
            except (Fault, Refusal) as fault:
                log.warning("What a dead process left is not finished: %s", fault)
            finally:
                self.follow_if_open(session)

    async def _let_go_if_over(self, session: AgentSessionId) -> None:
        """Give up the place of an adopted session that another server has closed."""
        phase = (await self.sessions.standing(session)).state.phase
        if phase in (SessionPhase.CLOSED, SessionPhase.ABSENT):
            self._adopted.discard(session)
            self._used.pop(session, None)
            await self.admit.leave(Ticket(session))

    def _idle(self) -> list[AgentSessionId]:
        before = self.sessions.clock.monotonic() - self.patience.idle_timeout_seconds
        return [
            session
            for session, used in self._used.items()
            if used < before and not self.sessions.runs(session)
        ]

    async def _close_idle(self, session: AgentSessionId) -> None:
        seeded = (await self.sessions.standing(session)).state.seeded
        if seeded is None:
            self._used.pop(session, None)
            return
        seconds = self.patience.idle_timeout_seconds
        log.warning("Session %s is closed: nobody used it for %gs", session, seconds)
        reason = f"nobody used it for {seconds:g} seconds"
        await self.close(session, seeded.episode, reason=reason)

    async def closed_at(self, session: AgentSessionId) -> Instant | None:
        """Return when a session was closed; None while it is not."""
        closed = (await self.sessions.standing(session)).state.closed
        return None if closed is None else closed.at

    async def erase(self, session: AgentSessionId) -> None:
        """Forget a closed session; may raise `StreamMoved`."""
        standing = await self.sessions.standing(session)
        if standing.state.phase is SessionPhase.CLOSED:
            await self.sessions.journal.forget(
                agent_session_stream(session), expected_version=standing.version
            )

    async def _stop(self, session: AgentSessionId, left: list[str]) -> None:
        with logged_as(session=session):
            try:
                await self.sessions.stop(session)
            except (Fault, Refusal) as fault:
                left.append(session)
                log.error("Session %s was not given back: %s", session, fault)


@asynccontextmanager
async def serve_sessions(
    sessions: AgentSessions, admit: AdmitOverWorkers, patience: Patience
) -> AsyncGenerator[ServedSessions]:
    """Serve sessions inside the block; on leaving, what runs is ended and given back."""
    async with anyio.create_task_group() as group, open_shared_calls() as calls:
        served = ServedSessions(
            sessions=sessions,
            admit=admit,
            patience=patience,
            group=group,
            calls=calls,
        )
        # What is about to run for a session that another process seeded ends when that
        # one, or a third, is asked to close it.
        sessions.tell_of_reopened(served.follow_if_open)
        group.start_soon(served.sweep)
        try:
            yield served
        finally:
            with anyio.CancelScope(shield=True):
                await served.drain()
            group.cancel_scope.cancel()
