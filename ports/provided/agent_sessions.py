# SPDX-License-Identifier: Apache-2.0
"""Agent sessions over the journal: seed, activate, close.

An activation's intent is written before anything is run, and its ending after. Who
asks again meanwhile waits for that ending, also in another process. What is under way
is in the hands of one process; when that one has died, whoever asks next takes it
over: a run that is still going, or has left its receipt, is found again in its
sandbox, and one that never began is forbidden to begin, and told as cancelled.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count
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
from ...domain.admissions import AdmissionIsShut, Ticket
from ...domain.agent_sessions import (
    DECIDER,
    AbandonSeed,
    AgentSession,
    AgentSessionId,
    Close,
    Command,
    FailClose,
    FailSetup,
    GiveUpSeed,
    GrantLost,
    MarkReady,
    Seed,
    SessionClosed,
    SessionIsClosing,
    SessionPhase,
    SessionUnknown,
    StartClose,
    TakeOver,
)
from ...domain.claims import Holder
from ...domain.digests import Json, RequestDigest
from ...domain.refusals import Refusal
from ...domain.requests import request_digest
from ...domain.tasks import EpisodeId
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.harness import Harness, HarnessRequest, ToolAccess
from ..required.holders import Holders
from ..required.journal import Journal, StreamMoved, agent_session_stream
from ..required.sandbox import Sandbox, SandboxLost
from .activate_harness import ActivateHarness, Attempt, Equipment
from .await_elsewhere import AwaitElsewhere
from .carry_out import (
    ATTEMPTS_MAX,
    Standing,
    carry_out,
    carry_out_at_once,
    read_state,
)
from .check_tools import CheckTools, check_honoured
from .json_texts import to_json
from .keyed_locks import KeyedLocks
from .latch import Latch
from .lent_uses import LentUses, Use
from .open_session import OpenSession
from .outfit import Outfit
from .session_grants import (
    SessionGrant,
    from_text,
    grant_digest,
    to_text,
)
from .session_replies import closed_reply, to_run_id
from .session_sandboxes import SessionSandboxes

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 30.0
"""How long ending a cancelled run and reading what it left may take."""
UNDO_SECONDS: Final = 90.0
"""How long a failed setup may take to be undone."""
CLOSES_MAX: Final = 16
"""How often a close begins anew, since something was written while it ended all."""
LOOK_SECONDS: Final = 1.0
"""How often who waits for another process looks whether that one is alive."""

CATEGORY: Final = "agent_sessions"

_FRESH: Final = Standing(DECIDER.initial, 0)


@attrs.frozen(kw_only=True)
class AgentSessions:
    """The sessions of one harness, as far as this process has to do with them."""

    journal: Journal
    clock: Clock
    holders: Holders
    harness: Harness
    sandboxes: SessionSandboxes
    activate_harness: ActivateHarness
    outfit: Outfit | None = None
    """Brings what the harness needs beside the sandbox."""
    check_tools: CheckTools | None = None
    """Looks whether granted tools are there, before their session is called ready."""
    inspect: Callable[[Sandbox], Awaitable[None]] | None = None
    """Raises what is wrong with a sandbox, before its session is called ready."""
    among_others: bool = False
    """Whether sessions come from callers that others serve as well, so that a lent
    sandbox may be lent twice."""
    _open: dict[AgentSessionId, OpenSession] = attrs.field(
        factory=dict[AgentSessionId, OpenSession], init=False
    )
    _intents: KeyedLocks = attrs.field(factory=KeyedLocks, init=False)
    """Held for a session while it is found out who runs what of it."""
    _shut: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _told: list[Callable[[AgentSessionId], None]] = attrs.field(
        factory=list[Callable[[AgentSessionId], None]], init=False
    )
    _waits: Iterator[int] = attrs.field(factory=count, init=False)

    @property
    def elsewhere(self) -> AwaitElsewhere:
        """Who waits at which worker."""
        return AwaitElsewhere(
            journal=self.journal,
            clock=self.clock,
            holders=self.holders,
            numbers=self._waits,
        )

    def tell_of_reopened(self, told: Callable[[AgentSessionId], None]) -> None:
        """Call `told` with each session that was seeded before and is open here now."""
        self._told.append(told)

    def shut(self) -> None:
        """Set no session up any more: shutdown has begun."""
        self._shut.set()

    @property
    def open_here(self) -> tuple[AgentSessionId, ...]:
        """The sessions that this process holds something of."""
        return tuple(self._open)

    def is_open_here(self, session: AgentSessionId) -> bool:
        """Whether this process holds something of a session, however many are open."""
        return session in self._open

    def runs(self, session: AgentSessionId) -> bool:
        """Whether an activation of the session runs here."""
        opened = self._open.get(session)
        return opened is not None and opened.running is not None

    async def standing(self, session: AgentSessionId) -> Standing[AgentSession]:
        """Return what the journal knows of a session."""
        opened = self._open.get(session)
        stream = agent_session_stream(session)
        known = opened.standing if opened is not None else None
        standing = await read_state(self.journal, stream, DECIDER, known)
        if opened is not None:
            opened.learned(standing)
        return standing

    async def known(self, session: AgentSessionId) -> Standing[AgentSession]:
        """Return what was last seen of a session that is open here, or what is known.

        What another process has done since is not in it.
        """
        opened = self._open.get(session)
        return await self.standing(session) if opened is None else opened.standing

    async def seed(
        self, session: AgentSessionId, episode: EpisodeId, grant: SessionGrant
    ) -> None:
        """Set the session up and reach its sandbox.

        Raises:
            Refusal, Fault: It cannot work. What was made was undone; what could not
                be is released by close.
        """
        check_honoured(self.harness, grant.tools)
        grant = await self._identified(session, grant)
        seed = Seed(
            session=session,
            episode=episode,
            request=grant_digest(episode, grant),
            stepwise=self.harness.stepwise,
            grant=to_text(grant),
            holder=self.holders.own,
            at=self.clock.now(),
        )
        if self._needs_nothing(grant):
            # Nothing is reached or made outside, so no intent of it is needed.
            ready = MarkReady(claim=None, at=seed.at)
            stream = agent_session_stream(session)
            at_once = await carry_out_at_once(
                self.journal, stream, DECIDER, seed, ready, known=_FRESH
            )
            if at_once is not None:
                await self._opened(session, at_once, grant)
                return
        known: Standing[AgentSession] | None = _FRESH
        while True:
            standing = await self._carry_out(session, seed, known=known)
            grant = _as_written(standing, grant)
            opened = self._open.get(session)
            if standing.state.seed_over:
                await self._seeded_before(session, standing, grant)
                return
            if opened is not None:
                await opened.reached.wait()
            elif await self._in_hand(session, standing):
                break
            known = None
        seeded = standing.state.seeded
        assert seeded is not None, "it was just written, or known"
        await self._set_up(session, OpenSession(standing, seeded, grant))

    async def activate(
        self,
        session: AgentSessionId,
        parameters: Mapping[str, Json],
        *,
        model_prefix: str = "",
        digest: RequestDigest | None = None,
    ) -> Ending:
        """Run the harness for this request, at most once, and tell how it ended.

        `model_prefix` goes before the paths of its model, where that one knows it;
        `digest` is the request's, where the caller knows it.

        Raises:
            Refusal, Fault: The request is refused, conflicts with another, or nobody
                can tell what became of it.
        """
        digest = digest or request_digest(parameters)
        standing = await self.known(session)
        if standing.state.activations.of(digest) is None:
            begun = await self._begun(
                session, standing, digest, parameters, model_prefix
            )
            if begun is not None:
                await self._run(session, *begun, fresh=True)
        return await self._ending(session, digest)

    async def close(
        self, session: AgentSessionId, episode: EpisodeId, *, reason: str = ""
    ) -> SessionClosed:
        """End the session, whatever it is doing; the same answer each time.

        `reason` is told to who comes later, when nobody asked for the end.

        Raises:
            Refusal: It belongs to another episode.
            Fault: It could not be ended; closing may be asked again.
        """
        opened = self._open.get(session)
        if opened is not None:
            start = StartClose(episode=episode, at=self.clock.now())
            closed = await self._closed_at_once(session, start, opened, reason)
            if closed is not None:
                await self._drop(session)
                await self._lent_no_more(session, opened.grant, opened.lent_use)
                return closed
        known = opened.standing if opened is not None else None
        for attempt in range(1, CLOSES_MAX + 1):
            start = StartClose(episode=episode, at=self.clock.now())
            standing = await self._carry_out(session, start, known=known)
            if standing.state.closed is None:
                try:
                    standing = await self._ended(session, episode, standing, reason)
                except StreamMoved:
                    if attempt == CLOSES_MAX:
                        raise
                    # Perhaps it was seeded meanwhile: then there is more to end.
                    known = None
                    continue
            await self._drop(session)
            assert standing.state.closed is not None, "it was just closed"
            if (seeded := standing.state.seeded) is not None:
                await self._lent_no_more(session, from_text(seeded.grant))
            return standing.state.closed
        raise AssertionError("the loop returns or raises")

    @property
    def _lent(self) -> LentUses:
        return LentUses(journal=self.journal, clock=self.clock, session=self.standing)

    async def _lent_no_more(
        self,
        session: AgentSessionId,
        grant: SessionGrant | None,
        known: Use | None = None,
    ) -> None:
        """Let a lent sandbox serve others, once the session is over."""
        if self.among_others and grant is not None:
            await self._lent.end(session, grant, known)

    async def _closed_at_once(
        self,
        session: AgentSessionId,
        start: StartClose,
        opened: OpenSession,
        reason: str,
    ) -> SessionClosed | None:
        """Close a session of which nothing runs, and that has nothing to give back."""
        state = opened.standing.state
        if (
            not state.seed_over
            or state.activations.under_way is not None
            or self.sandboxes.claim_for(opened.seeded, opened.grant) is not None
        ):
            return None
        told = closed_reply(state, reason)
        close = Close(
            session=session,
            episode=start.episode,
            reply=to_json(told),
            at=start.at,
        )
        stream = agent_session_stream(session)
        standing = await carry_out_at_once(
            self.journal, stream, DECIDER, start, close, known=opened.standing
        )
        if standing is None:
            return None
        opened.learned(standing)
        return standing.state.closed

    async def follow(self, session: AgentSessionId) -> None:
        """Heed what other processes do to a session that is open here.

        A close that another one was asked for stops what runs here; a session that
        another one closed is let go of. Returns when nothing of it is left here.
        """
        while (opened := self._open.get(session)) is not None:
            stream = agent_session_stream(session)
            known = opened.standing.version
            version = await self.journal.moved(stream, after=known)
            if version < known:  # Another closed it, and has forgotten it since.
                opened.cancel()
                await opened.reached.wait()
                await self._let_drop(session, opened)
                return
            if opened.standing.version < version:  # Not by what was done here alone.
                await self.standing(session)
            state = opened.standing.state
            if state.phase is SessionPhase.CLOSING and opened.running is not None:
                opened.cancel()
            if state.phase in (SessionPhase.CLOSED, SessionPhase.ABSENT):
                await self._let_drop(session, opened)
                return

    async def _let_drop(self, session: AgentSessionId, opened: OpenSession) -> None:
        """Let go of what is held, unless it is being set up or another has its place."""
        if self._open.get(session) is opened and opened.reached.is_set():
            await self._drop(session)

    async def adopt(self) -> tuple[AgentSessionId, ...]:
        """Have open sessions in care whose process died; return those sessions.

        The sandbox of one that has its own is held, and what runs there goes on until
        `finish` sees its end. What is under way in a lent one is left to who asks.
        """
        adopted: list[AgentSessionId] = []
        for key in await self.journal.open_streams(CATEGORY):
            session = AgentSessionId(key)
            if self._is_in_hand(session):
                continue
            standing = await self.standing(session)
            claim = standing.state.claim
            if claim is not None:
                if await self.sandboxes.adopt(claim):
                    adopted.append(session)
            elif await self._taken_over(session, standing):
                adopted.append(session)
        return tuple(adopted)

    def _is_in_hand(self, session: AgentSessionId) -> bool:
        """Whether the session is open here and this process's own, as far as is known.

        What others do to one that is open here is followed.
        """
        opened = self._open.get(session)
        return (
            opened is not None
            and opened.reached.is_set()
            and opened.standing.state.holder == self.holders.own
        )

    async def is_orphan(self, session: AgentSessionId) -> bool:
        """Tell whether the process that had the session in hand has died."""
        if self._is_in_hand(session):
            return False
        return await self._holder_died((await self.standing(session)).state)

    async def left_running(self, session: AgentSessionId) -> RequestDigest | None:
        """Return the request of an activation that has no ending yet, if any."""
        activation = (await self.standing(session)).state.activations.under_way
        return None if activation is None else activation.request

    async def finish(self, session: AgentSessionId, request: RequestDigest) -> Ending:
        """See an activation to its end that another process may have left.

        Raises:
            Refusal, Fault: Nobody can tell what became of it.
        """
        return await self._ending(session, request)

    async def stop(self, session: AgentSessionId) -> None:
        """End what runs here and give back what the session has; it stays open.

        One that another living process went on with is that one's to give back.

        Raises:
            Fault: Something was not seen gone.
        """
        opened = self._open.get(session)
        if opened is None:
            return
        if not opened.reached.is_set():
            if opened.scope is not None:
                opened.scope.cancel()
            await opened.reached.wait()
            return
        # A run that is just being begun is waited for; no other begins any more.
        async with self._intents.holding(session):
            await opened.stop_run()
            standing = await self.standing(session)
            is_ours = not await self._is_elsewhere(standing.state)
            if is_ours:
                await self._stopped(session, standing)
            await self._drop(session)
        if is_ours:
            reason = "the server shuts down"
            await self.sandboxes.release(opened.seeded, opened.grant, reason=reason)

    async def _begun(
        self,
        session: AgentSessionId,
        standing: Standing[AgentSession],
        digest: RequestDigest,
        parameters: Mapping[str, Json],
        model_prefix: str,
    ) -> tuple[OpenSession, Activation] | None:
        """Write the intent, unless there is one by now; return what is ours to run."""
        activate = Activate(
            request=digest,
            run=to_run_id(session, digest),
            parameters=to_json(parameters),
            model_prefix=model_prefix,
            holder=self.holders.own,
            at=self.clock.now(),
        )
        try:
            DECIDER.decide(standing.state, activate)
        except Refusal:  # What was seen last may have been long ago.
            standing = await self.standing(session)
            if standing.state.activations.of(digest) is not None:
                return None
            DECIDER.decide(standing.state, activate)
        try:
            opened = await self._opened(session, standing)
        except SandboxLost as lost:
            await self._start_without(session, standing, activate, lost)
            return None
        self.harness.check(_request(opened, parameters))
        async with self._intents.holding(session):
            standing = opened.standing
            if standing.state.activations.of(digest) is not None:
                return None
            if self._shut.is_set():
                raise AdmissionIsShut(ticket=Ticket(session))
            if opened.grant.tokens_lost:
                raise GrantLost(session=session)
            standing = await self._carry_out(session, activate, known=standing)
            activation = standing.state.activations.of(digest)
            assert activation is not None, "it was just written, by us or another"
            if standing.state.holder != self.holders.own or opened.running is not None:
                return None
            opened.running = digest
        return opened, activation

    async def _start_without(
        self,
        session: AgentSessionId,
        standing: Standing[AgentSession],
        activate: Activate,
        lost: SandboxLost,
    ) -> None:
        """Write down a run that never began, since its sandbox is gone.

        So a repeat has the same answer, whoever gives it.
        """
        parameters: Mapping[str, Json] = json.loads(activate.parameters)
        self.harness.check(_request(_unreached(standing), parameters))
        standing = await self._carry_out(session, activate, known=standing)
        activation = standing.state.activations.of(activate.request)
        assert activation is not None, "it was just written, by us or another"
        if standing.state.holder == self.holders.own and activation.ending is None:
            await self._end_lost(session, standing, activation, lost)

    async def _identified(
        self, session: AgentSessionId, grant: SessionGrant
    ) -> SessionGrant:
        """Find out which sandbox is lent, so that it is one to all who borrow it."""
        if not self.among_others or grant.access is None:
            return grant
        try:
            return await self.sandboxes.identified(grant)
        except Fault:
            # A seed that is repeated needs no look at its sandbox to be answered.
            if (await self.standing(session)).state.seeded is None:
                raise
            return grant

    def _needs_nothing(self, grant: SessionGrant) -> bool:
        """Whether a session is ready without anything being reached or made for it."""
        return (
            grant.access is None
            and not grant.tools
            and self.sandboxes.own is None
            and self.outfit is None
        )

    async def _seeded_before(
        self,
        session: AgentSessionId,
        standing: Standing[AgentSession],
        grant: SessionGrant,
    ) -> None:
        """Take what a repeated seed brings: its tokens, and a reason to look now."""
        if self.among_others and not grant.has_tokens:
            return
        opened = await self._opened(session, standing, grant)
        if opened.grant.tokens_lost:
            opened.grant = grant

    async def _set_up(self, session: AgentSessionId, opened: OpenSession) -> None:
        """Reach the sandbox, and say that the session is ready, or undo it all."""
        self._open[session] = opened
        try:
            is_late = self._shut.is_set()
            with anyio.CancelScope() as opened.scope:
                if not is_late:
                    await self._reach(session, opened)
            if opened.scope.cancelled_caught or is_late:
                raise AdmissionIsShut(ticket=Ticket(session))
        except BaseException as error:
            del self._open[session]
            reason = str(error) if isinstance(error, Fault | Refusal) else "cancelled"
            with anyio.move_on_after(UNDO_SECONDS, shield=True):
                await self._undo(session, opened, reason)
            raise
        finally:
            opened.scope = None
            opened.reached.set()

    async def _reach(self, session: AgentSessionId, opened: OpenSession) -> None:
        if self.among_others:
            opened.lent_use = await self._lent.begin(session, opened.grant)
        opened.sandbox = await self.sandboxes.reach(opened.seeded, opened.grant)
        if self.inspect is not None and opened.sandbox is not None:
            await self.inspect(opened.sandbox)
        if self.check_tools is not None:
            await self.check_tools(self.harness, opened.grant.tools, opened.sandbox)
        await self._equip(opened)
        claim = self.sandboxes.claim_for(opened.seeded, opened.grant)
        ready = MarkReady(claim=claim, at=self.clock.now())
        await self._carry_out(session, ready, known=opened.standing)

    async def _equip(self, opened: OpenSession) -> None:
        if self.outfit is not None:
            opened.equipment = await self.outfit.bring(
                opened.seeded, opened.grant, opened.sandbox
            )
        is_boundary = self.sandboxes.is_boundary(opened.grant)
        opened.equipment = attrs.evolve(opened.equipment, is_boundary=is_boundary)

    async def _let_go(self, session: AgentSessionId, opened: OpenSession) -> None:
        if self.outfit is not None:
            await self.outfit.take_back(session)
        await opened.let_go()

    async def _undo(
        self, session: AgentSessionId, opened: OpenSession, reason: str
    ) -> None:
        await self._let_go(session, opened)
        kept: Fault | None = None
        try:
            await self.sandboxes.release(opened.seeded, opened.grant, reason=reason)
        except Fault as fault:
            kept = fault
            log.error(
                "Session %s keeps its sandbox until it is closed: %s", session, fault
            )
        at = self.clock.now()
        over = (
            AbandonSeed(reason=reason, at=at)
            if kept is None
            else FailSetup(reason=f"{reason}; {kept}", at=at)
        )
        try:
            await self._carry_out(session, over, known=opened.standing)
        except SessionIsClosing:
            given_up = GiveUpSeed(reason=reason, at=at)
            await self._carry_out(session, given_up, known=opened.standing)
        await self._lent_no_more(session, opened.grant, opened.lent_use)

    async def _opened(
        self,
        session: AgentSessionId,
        standing: Standing[AgentSession],
        grant: SessionGrant | None = None,
    ) -> OpenSession:
        """Return what this process holds of a seeded session, reached if need be."""
        opened = self._open.get(session)
        if opened is not None:
            await opened.reached.wait()
            if self._open.get(session) is opened:
                return opened
        seeded = standing.state.seeded
        grant = grant or (from_text(seeded.grant) if seeded is not None else None)
        if seeded is None or grant is None:
            raise SessionUnknown(phase=standing.state.phase)
        opened = self._open[session] = OpenSession(standing, seeded, grant)
        try:
            opened.sandbox = await self.sandboxes.reach(seeded, grant)
            await self._equip(opened)
        except BaseException:
            del self._open[session]
            with anyio.move_on_after(UNDO_SECONDS, shield=True):
                await self._let_go(session, opened)
            raise
        finally:
            opened.reached.set()
        for told in self._told:
            told(session)
        return opened

    async def _taken_over(
        self, session: AgentSessionId, standing: Standing[AgentSession]
    ) -> bool:
        """Take a session over that is ready and that no living process has."""
        state = standing.state
        if state.phase is not SessionPhase.READY or not await self._holder_died(state):
            return False
        own = self.holders.own
        take = TakeOver(taken_from=state.holder, holder=own, at=self.clock.now())
        standing = await self._carry_out(session, take, known=standing)
        return standing.state.holder == own

    async def _is_elsewhere(self, state: AgentSession) -> bool:
        """Whether another living process has the session in hand."""
        other = self._other_holder(state)
        return other is not None and await self.holders.alive(other)

    async def _holder_died(self, state: AgentSession) -> bool:
        other = self._other_holder(state)
        return other is not None and not await self.holders.alive(other)

    def _other_holder(self, state: AgentSession) -> Holder | None:
        return None if state.holder == self.holders.own else state.holder

    async def _in_hand(
        self, session: AgentSessionId, standing: Standing[AgentSession]
    ) -> bool:
        """Tell whether what is under way is this process's to do; else wait a while.

        The work of a dead process is taken over.
        """
        holder, own = standing.state.holder, self.holders.own
        if holder == own:
            return True
        if await self._is_elsewhere(standing.state):
            stream = agent_session_stream(session)
            with anyio.move_on_after(LOOK_SECONDS):
                await self.journal.moved(stream, after=standing.version)
            return False
        take = TakeOver(taken_from=holder, holder=own, at=self.clock.now())
        standing = await self._carry_out(session, take, known=standing)
        return standing.state.holder == own

    async def _ending(self, session: AgentSessionId, request: RequestDigest) -> Ending:
        """Wait for who runs the activation, or take it over, until it has ended."""
        while True:
            if (ending := self._known_ending(session, request)) is not None:
                return ending
            standing = await self.standing(session)
            activation = standing.state.activations.of(request)
            if activation is None:
                raise SessionUnknown(phase=standing.state.phase)
            if activation.ending is not None:
                return activation.ending
            opened = self._open.get(session)
            if opened is not None and opened.running is not None:
                await opened.ended.wait()
                continue
            is_ours = standing.state.holder == self.holders.own
            if is_ours or await self._left(session, request):
                opened = await self._reopened(session, standing, activation)
                if opened is not None and opened.running is None:
                    opened.running = request
                    await self._run(session, opened, activation, fresh=False)

    async def _left(self, session: AgentSessionId, request: RequestDigest) -> bool:
        """Wait for another process to end the activation; tell whether it is ours now."""
        async with self.elsewhere.waiting(session):
            while True:
                standing = await self.standing(session)
                activation = standing.state.activations.of(request)
                if activation is None or activation.ending is not None:
                    return False
                if await self._in_hand(session, standing):
                    return True

    def _known_ending(
        self, session: AgentSessionId, request: RequestDigest
    ) -> Ending | None:
        """Return the ending that was written here, which nothing changes any more."""
        opened = self._open.get(session)
        if opened is None:
            return None
        activation = opened.standing.state.activations.of(request)
        return None if activation is None else activation.ending

    async def _reopened(
        self,
        session: AgentSessionId,
        standing: Standing[AgentSession],
        activation: Activation,
    ) -> OpenSession | None:
        """Reach the sandbox of a run; None when it is gone, which is the run's end."""
        try:
            return await self._opened(session, standing)
        except SandboxLost as lost:
            await self._end_lost(session, standing, activation, lost)
            return None

    async def _run(
        self,
        session: AgentSessionId,
        opened: OpenSession,
        activation: Activation,
        *,
        fresh: bool,
    ) -> None:
        """Run the activation here, or take it over, and write its ending down."""
        opened.ended = Latch()
        try:
            with anyio.CancelScope() as opened.scope:
                ending = await self._ran(opened, activation, fresh=fresh)
                await self._end(session, opened, activation, ending)
            if opened.scope.cancelled_caught:
                await self._stop_run(session, opened, activation)
        except anyio.get_cancelled_exc_class():
            await self._stop_run(session, opened, activation)
            raise
        finally:
            opened.running = opened.scope = None
            opened.ended.set()

    def _ran(
        self, opened: OpenSession, activation: Activation, *, fresh: bool
    ) -> Awaitable[Ending]:
        """Run the activation with all that it needs within its reach."""
        if self.outfit is None:
            return self.activate_harness(_attempt(opened, activation, fresh=fresh))
        return self._ran_in(self.outfit, opened, activation, fresh=fresh)

    async def _ran_in(
        self,
        outfit: Outfit,
        opened: OpenSession,
        activation: Activation,
        *,
        fresh: bool,
    ) -> Ending:
        attempt = _attempt(opened, activation, fresh=fresh)
        is_reached = False
        try:
            async with outfit.reach(
                opened.seeded,
                opened.grant,
                opened.sandbox,
                opened.equipment,
                model_prefix=activation.model_prefix,
            ) as equipment:
                is_reached = True
                attempt = _attempt(opened, activation, equipment, fresh=fresh)
                return await self.activate_harness(attempt)
        except Fault as fault:
            if is_reached or not fresh:
                raise
            # Nothing was launched, and nothing will be.
            outcome, reason = Outcome.SANDBOX_ERROR, str(fault)
            return await self.activate_harness.unseen(attempt, outcome, reason)

    async def _stop_run(
        self, session: AgentSessionId, opened: OpenSession, activation: Activation
    ) -> None:
        """End a run, keep what it wrote, and say so."""
        with anyio.CancelScope(shield=True):
            ending: Ending | None = None
            with anyio.move_on_after(STOP_SECONDS):
                attempt = _attempt(opened, activation, fresh=False)
                ending = await self.activate_harness.stop(attempt)
            if ending is not None:
                await self._end(session, opened, activation, ending)
                return
            reason = "it was not stopped in time"
            await self._end_unseen(
                session, opened, activation, Outcome.CANCELLED, reason
            )

    async def _end_lost(
        self,
        session: AgentSessionId,
        standing: Standing[AgentSession],
        activation: Activation,
        lost: SandboxLost,
    ) -> None:
        """End a run whose sandbox is gone, or was given back."""
        opened = _unreached(standing)
        await self._end_unseen(
            session, opened, activation, Outcome.SANDBOX_ERROR, str(lost)
        )

    async def _end_unseen(
        self,
        session: AgentSessionId,
        opened: OpenSession,
        activation: Activation,
        outcome: Outcome,
        reason: str,
    ) -> None:
        attempt = _attempt(opened, activation, fresh=False)
        ending = await self.activate_harness.unseen(attempt, outcome, reason)
        await self._end(session, opened, activation, ending)

    async def _end(
        self,
        session: AgentSessionId,
        opened: OpenSession,
        activation: Activation,
        ending: Ending,
    ) -> None:
        end = EndActivation(
            request=activation.request, ending=ending, at=self.clock.now()
        )
        await self._carry_out(session, end, known=opened.standing)

    async def _seed_over(
        self, session: AgentSessionId, standing: Standing[AgentSession]
    ) -> Standing[AgentSession]:
        """Wait until nobody sets the session up any more."""
        while standing.state.seeded is not None and not standing.state.seed_over:
            opened = self._open.get(session)
            if opened is not None:
                await opened.reached.wait()
            elif await self._in_hand(session, standing):
                reason = "the process that set it up is no more"
                over = GiveUpSeed(reason=reason, at=self.clock.now())
                await self._carry_out(session, over, known=standing)
                grant = from_text(standing.state.seeded.grant)
                await self._lent_no_more(session, grant)
            standing = await self.standing(session)
        return standing

    async def _stopped(
        self, session: AgentSessionId, standing: Standing[AgentSession]
    ) -> Standing[AgentSession]:
        """Stop the activation that is under way, wherever, and wait for its ending."""
        while (activation := standing.state.activations.under_way) is not None:
            opened = self._open.get(session)
            if opened is not None and opened.running is not None:
                await opened.stop_run()
            elif await self._in_hand(session, standing):
                await self._stop_left(session, standing, activation)
            standing = await self.standing(session)
        return standing

    async def _stop_left(
        self,
        session: AgentSessionId,
        standing: Standing[AgentSession],
        activation: Activation,
    ) -> None:
        """Stop a run that nobody attends; its own sandbox ends it for certain."""
        opened = await self._reopened(session, standing, activation)
        if opened is None:
            return
        try:
            await self._stop_run(session, opened, activation)
        except Fault as fault:
            if (
                fault.can_retry
                and self.sandboxes.claim_for(opened.seeded, opened.grant) is None
            ):
                raise
            await self._end_unseen(
                session, opened, activation, Outcome.CANCELLED, str(fault)
            )

    async def _ended(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        standing: Standing[AgentSession],
        reason: str,
    ) -> Standing[AgentSession]:
        """End all that is known of the session, and write the reply down.

        Raises:
            StreamMoved: Something was written meanwhile of which the reply says nothing.
        """
        standing = await self._seed_over(session, standing)
        standing = await self._stopped(session, standing)
        await self._release(session, standing)
        told = closed_reply(standing.state, reason)
        close = Close(
            session=session,
            episode=episode,
            reply=to_json(told),
            at=self.clock.now(),
        )
        return await self._carry_out(session, close, known=standing, attempts_max=1)

    async def _release(
        self, session: AgentSessionId, standing: Standing[AgentSession]
    ) -> None:
        seeded = standing.state.seeded
        if seeded is None:
            return
        try:
            grant = from_text(seeded.grant)
            await self.sandboxes.release(seeded, grant, reason="the session is closed")
        except Fault as fault:
            failed = FailClose(reason=str(fault), at=self.clock.now())
            await self._carry_out(session, failed, known=standing)
            raise

    async def _drop(self, session: AgentSessionId) -> None:
        opened = self._open.pop(session, None)
        if opened is not None:
            await self._let_go(session, opened)

    async def _carry_out(
        self,
        session: AgentSessionId,
        *commands: Command,
        known: Standing[AgentSession] | None,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> Standing[AgentSession]:
        stream = agent_session_stream(session)
        standing = await carry_out(
            self.journal,
            stream,
            DECIDER,
            *commands,
            known=known,
            attempts_max=attempts_max,
        )
        opened = self._open.get(session)
        if opened is not None:
            opened.learned(standing)
        return standing


def _as_written(standing: Standing[AgentSession], grant: SessionGrant) -> SessionGrant:
    """Return the grant with the lent sandbox's id as the journal has it.

    Whoever ends the session's use of the sandbox has nothing else to find it by.
    """
    seeded = standing.state.seeded
    if grant.access is None or seeded is None:
        return grant
    written = from_text(seeded.grant)
    return grant if written is None else attrs.evolve(grant, lent_id=written.lent_id)


def _unreached(standing: Standing[AgentSession]) -> OpenSession:
    """Return a seeded session of which this process holds nothing."""
    seeded = standing.state.seeded
    assert seeded is not None, "its sandbox was looked for"
    grant = from_text(seeded.grant)
    assert grant is not None, "it was read before the sandbox was looked for"
    return OpenSession(standing, seeded, grant)


def _request(
    opened: OpenSession,
    parameters: Mapping[str, Json],
    tools: tuple[ToolAccess, ...] | None = None,
) -> HarnessRequest:
    return HarnessRequest(
        episode=opened.seeded.episode,
        task=opened.grant.task,
        parameters=parameters,
        tool_accesses=opened.grant.tools if tools is None else tools,
    )


def _attempt(
    opened: OpenSession,
    activation: Activation,
    reached: Equipment | None = None,
    *,
    fresh: bool,
) -> Attempt:
    kept = activation.parameters
    parameters: Mapping[str, Json] = json.loads(kept) if kept else {}
    equipment = reached or opened.equipment
    return Attempt(
        run=activation.run,
        request=_request(opened, parameters, equipment.tools),
        sandbox=opened.sandbox,
        fresh=fresh,
        equipment=equipment,
    )
