# SPDX-License-Identifier: Apache-2.0
"""An agent in this process: a harness under sessions, in borrowed sandboxes.

An activation's intent is written before anything is run, and its ending after. Who
asks again meanwhile waits for that ending. After a restart the run is looked for in
its sandbox: one that is still going, or has left its receipt, is taken over; one
that never began is forbidden to begin, and told as cancelled.
"""

import json
import logging
from collections.abc import Mapping
from typing import Final

import anyio
import attrs

from ...domain.activations import (
    Activate,
    Activation,
    EndActivation,
    Ending,
    Outcome,
)
from ...domain.agent_sessions import (
    DECIDER,
    AbandonSeed,
    AgentSession,
    AgentSessionId,
    Close,
    Command,
    MarkReady,
    Seed,
    SessionPhase,
    SessionUnknown,
    StartClose,
)
from ...domain.claims import ClaimId
from ...domain.digests import Json, RequestDigest
from ...domain.failures import (
    AGENT_RUN_ERROR,
    PROVIDER_UNAVAILABLE,
    REQUEST_REFUSED,
    SESSION_LOST,
    FailureKind,
)
from ...domain.refusals import Refusal
from ...domain.requests import request_digest
from ...domain.tasks import EpisodeId, TaskId
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.harness import Harness, HarnessRequest, RequestRefused
from ..required.journal import Journal, agent_session_stream
from ..required.participants import AgentClosed, ParticipantFailed, Turn
from ..required.sandbox import Sandbox, SandboxAccess, SandboxLost
from ..required.sandbox_provider import SandboxProvider
from .activate_harness import ActivateHarness, Attempt
from .carry_out import Standing, carry_out, read_state
from .log_context import logged_as
from .session_replies import (
    closed_reply,
    seed_digest,
    to_closed,
    to_run_id,
    turn_of,
)

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 30.0
"""How long ending a cancelled run and reading what it left may take."""

_FRESH: Final = Standing(DECIDER.initial, 0)


@attrs.define(eq=False)
class _Session:
    """What this process holds of an open session."""

    standing: Standing[AgentSession]
    episode: EpisodeId
    task: TaskId
    sandbox: Sandbox | None = None
    running: RequestDigest | None = None
    """The request that a task of this process is running."""
    scope: anyio.CancelScope | None = None
    """Cancels the activation that runs here."""
    ended: anyio.Event = attrs.field(factory=anyio.Event)
    """Set when the activation that runs here has its ending."""


@attrs.frozen(kw_only=True)
class InProcessAgent:
    """The `Agent` of one harness."""

    journal: Journal
    clock: Clock
    harness: Harness
    providers: Mapping[str, SandboxProvider]
    """Where lent sandboxes are reached, by the name in their access."""
    activate_harness: ActivateHarness
    _open: dict[AgentSessionId, _Session] = attrs.field(
        factory=dict[AgentSessionId, _Session], init=False
    )

    async def seed(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        task: TaskId,
        access: SandboxAccess | None,
    ) -> None:
        """Set the session up and reach its sandbox.

        Raises:
            ParticipantFailed: It cannot work; nothing of it is kept.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                await self._seed(session, episode, task, access)
            except (Fault, Refusal) as error:
                raise _failed("seed", error) from error

    async def activate(
        self, session: AgentSessionId, parameters: Mapping[str, Json]
    ) -> Turn:
        """Run the harness for this request, at most once, and tell how it ended.

        Raises:
            ParticipantFailed: The request is refused, or conflicts with another.
        """
        with logged_as(session=session):
            try:
                return await self._activate(session, parameters)
            except (Fault, Refusal) as error:
                raise _failed("activate", error) from error

    async def close(self, session: AgentSessionId, episode: EpisodeId) -> AgentClosed:
        """End the session, whatever it is doing, and tell what was observed.

        Raises:
            ParticipantFailed: It could not be ended; closing may be asked again.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                return await self._close(session, episode)
            except (Fault, Refusal) as error:
                raise _failed("close", error) from error

    async def _seed(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        task: TaskId,
        access: SandboxAccess | None,
    ) -> None:
        seed = Seed(
            session=session,
            episode=episode,
            request=seed_digest(episode, task, access),
            stepwise=self.harness.stepwise,
            at=self.clock.now(),
        )
        standing = await self._carry_out(session, seed, known=_FRESH)
        if session in self._open:
            return
        opened = _Session(standing, episode, task)
        self._open[session] = opened
        try:
            opened.sandbox = await self._connect(session, access)
        except BaseException:
            del self._open[session]
            await self._abandon(session, standing)
            raise
        if standing.state.phase is SessionPhase.SEEDING:
            ready = MarkReady(claim=None, at=self.clock.now())
            opened.standing = await self._carry_out(session, ready, known=standing)

    async def _connect(
        self, session: AgentSessionId, access: SandboxAccess | None
    ) -> Sandbox | None:
        if access is None:
            return None
        provider = self.providers.get(access.provider)
        if provider is None:
            raise RequestRefused(
                harness=self.harness.name,
                field="sandbox_access.connection.provider_config_ref",
                reason=f"no provider {access.provider!r} is configured"
                f" (there are: {', '.join(sorted(self.providers))})",
            )
        return await provider.connect(access, borrower=ClaimId(session))

    async def _abandon(
        self, session: AgentSessionId, standing: Standing[AgentSession]
    ) -> None:
        if standing.state.phase is not SessionPhase.SEEDING:
            return
        with anyio.CancelScope(shield=True):
            abandon = AbandonSeed(reason="not reached", at=self.clock.now())
            abandoned = await self._carry_out(session, abandon, known=standing)
            # Nothing is kept of it, in the journal neither.
            await self.journal.forget(
                agent_session_stream(session), expected_version=abandoned.version
            )

    async def _activate(
        self, session: AgentSessionId, parameters: Mapping[str, Json]
    ) -> Turn:
        digest = request_digest(parameters)
        opened = self._open.get(session)
        if opened is None:
            return await self._replayed(session, digest)
        request = HarnessRequest(
            episode=opened.episode, task=opened.task, parameters=parameters
        )
        if opened.standing.state.activations.of(digest) is None:
            self.harness.check(request)
        activate = Activate(
            request=digest, run=to_run_id(session, digest), at=self.clock.now()
        )
        before = opened.standing.version
        opened.standing = await self._carry_out(
            session, activate, known=opened.standing
        )
        activation = opened.standing.state.activations.of(digest)
        assert activation is not None, "it was just started or known"
        fresh = opened.standing.version > before
        while activation.ending is None:
            if opened.running is None:
                activation = await self._run(
                    session, opened, activation, request, fresh=fresh
                )
            else:
                await opened.ended.wait()
                known = opened.standing.state.activations.of(digest)
                assert known is not None, "it does not vanish"
                activation = known
        return turn_of(activation.ending)

    async def _replayed(self, session: AgentSessionId, request: RequestDigest) -> Turn:
        """Answer for a session that is not open here: only what has an ending."""
        state = (await self._read(session)).state
        activation = state.activations.of(request)
        if activation is None or activation.ending is None:
            raise SessionUnknown(phase=state.phase)
        return turn_of(activation.ending)

    async def _run(
        self,
        session: AgentSessionId,
        opened: _Session,
        activation: Activation,
        request: HarnessRequest,
        *,
        fresh: bool,
    ) -> Activation:
        """Run the activation here, or take it over, and write its ending down."""
        attempt = Attempt(
            run=activation.run, request=request, sandbox=opened.sandbox, fresh=fresh
        )
        opened.running, opened.ended = activation.request, anyio.Event()
        try:
            with anyio.CancelScope() as opened.scope:
                ending = await self.activate_harness(attempt)
                await self._end(session, opened, activation, ending)
            if opened.scope.cancelled_caught:
                await self._stop(session, opened, activation, attempt)
        except anyio.get_cancelled_exc_class():
            await self._stop(session, opened, activation, attempt)
            raise
        finally:
            opened.running = opened.scope = None
            opened.ended.set()
        known = opened.standing.state.activations.of(activation.request)
        assert known is not None, "its ending was just written"
        return known

    async def _stop(
        self,
        session: AgentSessionId,
        opened: _Session,
        activation: Activation,
        attempt: Attempt,
    ) -> None:
        """End a cancelled run, keep what it wrote, and say so."""
        with anyio.CancelScope(shield=True):
            ending = Ending(
                outcome=Outcome.CANCELLED,
                reply="{}",
                reason="it was not stopped in time",
            )
            with anyio.move_on_after(STOP_SECONDS):
                ending = await self.activate_harness.stop(attempt)
            await self._end(session, opened, activation, ending)

    async def _end(
        self,
        session: AgentSessionId,
        opened: _Session,
        activation: Activation,
        ending: Ending,
    ) -> None:
        end = EndActivation(
            request=activation.request, ending=ending, at=self.clock.now()
        )
        opened.standing = await self._carry_out(session, end, known=opened.standing)

    async def _close(self, session: AgentSessionId, episode: EpisodeId) -> AgentClosed:
        opened = self._open.get(session)
        standing = opened.standing if opened else await self._read(session)
        start = StartClose(episode=episode, at=self.clock.now())
        standing = await self._carry_out(session, start, known=standing)
        if opened is not None:
            opened.standing = standing
            if opened.scope is not None:
                opened.scope.cancel()
                await opened.ended.wait()
            standing = opened.standing
        if standing.state.closed is None:
            standing = await self._settle(session, standing, opened)
            reply = json.dumps(closed_reply(standing.state), ensure_ascii=False)
            close = Close(
                session=session, episode=episode, reply=reply, at=self.clock.now()
            )
            standing = await self._carry_out(session, close, known=standing)
        if opened is not None and opened.sandbox is not None:
            await opened.sandbox.disconnect()
        self._open.pop(session, None)
        assert standing.state.closed is not None, "it was just closed"
        return to_closed(standing.state.closed.reply)

    async def _settle(
        self,
        session: AgentSessionId,
        standing: Standing[AgentSession],
        opened: _Session | None,
    ) -> Standing[AgentSession]:
        """End an activation that a process before this one left without an ending."""
        under_way = standing.state.activations.under_way
        if under_way is None:
            return standing
        ending = Ending(
            outcome=Outcome.CANCELLED,
            reply="{}",
            reason="the process that ran it was killed, and its sandbox is not in reach",
        )
        if opened is not None and opened.sandbox is not None:
            request = HarnessRequest(
                episode=opened.episode, task=opened.task, parameters={}
            )
            attempt = Attempt(
                run=under_way.run,
                request=request,
                sandbox=opened.sandbox,
                fresh=False,
            )
            ending = await self.activate_harness.stop(attempt)
        end = EndActivation(
            request=under_way.request, ending=ending, at=self.clock.now()
        )
        return await self._carry_out(session, end, known=standing)

    async def _read(self, session: AgentSessionId) -> Standing[AgentSession]:
        stream = agent_session_stream(session)
        return await read_state(self.journal, stream, DECIDER)

    async def _carry_out(
        self,
        session: AgentSessionId,
        *commands: Command,
        known: Standing[AgentSession],
    ) -> Standing[AgentSession]:
        stream = agent_session_stream(session)
        return await carry_out(self.journal, stream, DECIDER, *commands, known=known)


def _failed(step: str, error: Fault | Refusal) -> ParticipantFailed:
    if isinstance(error, ParticipantFailed):
        return error
    return ParticipantFailed(
        participant="agent",
        step=step,
        failure_kind=_kind(error),
        reason=str(error),
        terminal=not isinstance(error, SandboxLost)
        and not (isinstance(error, Fault) and error.can_retry),
    )


def _kind(error: Fault | Refusal) -> FailureKind:
    if isinstance(error, SandboxLost):
        return SESSION_LOST
    if isinstance(error, Refusal | RequestRefused):
        return REQUEST_REFUSED
    if error.can_retry:
        return PROVIDER_UNAVAILABLE
    return AGENT_RUN_ERROR
