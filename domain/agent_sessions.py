# SPDX-License-Identifier: Apache-2.0
"""Agent sessions: seed, activate, close, each once however often it is asked.

The caller chooses the id. The same seed again is the same session, another seed
under the id is a conflict, and so is a seed after a close, for as long as the
closed reply is kept. Close answers the same thing each time, also for an id that
never was. A setup that failed keeps what close must still release, and never
activates. Nothing is activated once closing has begun.

What is under way, a setup or an activation, is in the hands of one process, its
holder. When that one has died, another takes it over.
"""

from enum import StrEnum
from typing import ClassVar, Final, NewType, assert_never

import attrs

from . import activations as activations_
from .activations import Activate, Activations, EndActivation
from .claims import ClaimId, Holder
from .deciders import Decider, Instant, Table, may_follow, next_phase
from .digests import RequestDigest
from .evolved_values import evolved
from .refusals import Refusal
from .tasks import EpisodeId

AgentSessionId = NewType("AgentSessionId", str)


class SessionPhase(StrEnum):
    """Where a session stands."""

    ABSENT = "absent"
    SEEDING = "seeding"
    SETUP_FAILED = "setup failed"
    READY = "ready"
    ACTIVATING = "activating"
    CAPTURING = "capturing"
    CLOSING = "closing"
    CLOSED = "closed"


@attrs.frozen(kw_only=True)
class Seed:
    """Asks for the session to be set up as `request` describes."""

    session: AgentSessionId
    episode: EpisodeId
    request: RequestDigest
    stepwise: bool = False
    grant: str = ""
    """What the caller granted, JSON text, for who goes on with the session."""
    holder: Holder | None = None
    """The process that sets it up."""
    at: Instant


@attrs.frozen(kw_only=True)
class MarkReady:
    """Tells that the setup is complete; `claim` is the session's own, if any."""

    claim: ClaimId | None
    at: Instant


@attrs.frozen(kw_only=True)
class AbandonSeed:
    """Tells that the setup failed and kept nothing: the id is free again."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class FailSetup:
    """Tells that the setup failed and left something that close must release."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class GiveUpSeed:
    """Tells that the setup stopped since a close had come, and what it kept, if any."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class TakeOver:
    """Asks for `holder` to go on with what `taken_from` left when it died."""

    taken_from: Holder | None
    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class StartCapture:
    """Tells that the harness is over and what it wrote is being read."""

    request: RequestDigest
    at: Instant


@attrs.frozen(kw_only=True)
class StartClose:
    """Asks for the session to be ended and everything of it released."""

    episode: EpisodeId
    at: Instant


@attrs.frozen(kw_only=True)
class FailClose:
    """Tells that something could not be released; close may be asked again."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class Close:
    """Tells the closed session's reply, which is replayed from now on."""

    session: AgentSessionId
    episode: EpisodeId
    reply: str
    at: Instant


@attrs.frozen(kw_only=True)
class Forget:
    """Asks to drop the closed reply, `retention_seconds` after the close."""

    retention_seconds: float
    at: Instant


Command = (
    Seed
    | MarkReady
    | AbandonSeed
    | FailSetup
    | GiveUpSeed
    | TakeOver
    | Activate
    | StartCapture
    | EndActivation
    | StartClose
    | FailClose
    | Close
    | Forget
)


@attrs.frozen(kw_only=True)
class SeedStarted:
    """The session is being set up."""

    session: AgentSessionId
    episode: EpisodeId
    request: RequestDigest
    stepwise: bool
    grant: str = ""
    holder: Holder | None = None
    at: Instant


@attrs.frozen(kw_only=True)
class SessionReady:
    """The session can be activated."""

    claim: ClaimId | None
    at: Instant


@attrs.frozen(kw_only=True)
class SeedAbandoned:
    """The setup failed and left nothing."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class SetupFailed:
    """The setup failed and left something to release."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class SeedGivenUp:
    """The setup stopped, since the session is closing."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class SessionTakenOver:
    """`holder` goes on with what is under way, or has the session in its care."""

    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class CaptureStarted:
    """The harness of `request` is over; its output is being read."""

    request: RequestDigest
    at: Instant


@attrs.frozen(kw_only=True)
class CloseStarted:
    """The session is ending; nothing more is activated."""

    episode: EpisodeId
    at: Instant


@attrs.frozen(kw_only=True)
class CloseFailed:
    """Something is not released yet."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class SessionClosed:
    """The session is over; `reply` answers every later close."""

    session: AgentSessionId
    episode: EpisodeId
    reply: str
    at: Instant


@attrs.frozen(kw_only=True)
class SessionForgotten:
    """The closed reply is dropped, and the id free again."""

    at: Instant


Event = (
    SeedStarted
    | SessionReady
    | SeedAbandoned
    | SetupFailed
    | SeedGivenUp
    | SessionTakenOver
    | activations_.ActivationStarted
    | CaptureStarted
    | activations_.ActivationEnded
    | CloseStarted
    | CloseFailed
    | SessionClosed
    | SessionForgotten
)

_P = SessionPhase
_STARTED, _ENDED = activations_.ActivationStarted, activations_.ActivationEnded
TRANSITIONS: Final[Table[SessionPhase]] = {
    (_P.ABSENT, SeedStarted): _P.SEEDING,
    (_P.ABSENT, SessionClosed): _P.CLOSED,
    (_P.SEEDING, SessionReady): _P.READY,
    (_P.SEEDING, SeedAbandoned): _P.ABSENT,
    (_P.SEEDING, SetupFailed): _P.SETUP_FAILED,
    (_P.SEEDING, SessionTakenOver): _P.SEEDING,
    (_P.READY, SessionTakenOver): _P.READY,
    (_P.ACTIVATING, SessionTakenOver): _P.ACTIVATING,
    (_P.CAPTURING, SessionTakenOver): _P.CAPTURING,
    (_P.CLOSING, SessionTakenOver): _P.CLOSING,
    (_P.READY, _STARTED): _P.ACTIVATING,
    (_P.ACTIVATING, CaptureStarted): _P.CAPTURING,
    (_P.ACTIVATING, _ENDED): _P.READY,
    (_P.CAPTURING, _ENDED): _P.READY,
    (_P.SEEDING, CloseStarted): _P.CLOSING,
    (_P.SETUP_FAILED, CloseStarted): _P.CLOSING,
    (_P.READY, CloseStarted): _P.CLOSING,
    (_P.ACTIVATING, CloseStarted): _P.CLOSING,
    (_P.CAPTURING, CloseStarted): _P.CLOSING,
    (_P.CLOSING, SeedGivenUp): _P.CLOSING,
    (_P.CLOSING, CaptureStarted): _P.CLOSING,
    (_P.CLOSING, _ENDED): _P.CLOSING,
    (_P.CLOSING, CloseFailed): _P.CLOSING,
    (_P.CLOSING, SessionClosed): _P.CLOSED,
    (_P.CLOSED, SessionForgotten): _P.ABSENT,
}
_SEEDED: Final = (_P.READY, _P.ACTIVATING, _P.CAPTURING)


@attrs.frozen(kw_only=True)
class AgentSession:
    """What is known of a session."""

    phase: SessionPhase = SessionPhase.ABSENT
    seeded: SeedStarted | None = None
    seed_over: bool = False
    """Whether the setup is complete, failed or given up."""
    holder: Holder | None = None
    """The process that has in hand what is under way, or had what was last."""
    claim: ClaimId | None = None
    activations: Activations = attrs.field(factory=Activations)
    closed: SessionClosed | None = None
    reason: str = ""
    """Why the setup or the last close failed."""


@attrs.frozen
class SeedConflict(Refusal):
    """The id is bound to another seed."""

    kind: ClassVar[str] = "seed_conflict"
    message: ClassVar[str] = (
        "{session} is already bound to another seed request; the first one stands."
    )

    session: AgentSessionId


@attrs.frozen
class SessionIsClosing(Refusal):
    """The session is ending, or its setup failed and it waits to be closed."""

    kind: ClassVar[str] = "session_closing"
    message: ClassVar[str] = "The agent session is {phase}; close it and use a new id."

    phase: SessionPhase


@attrs.frozen
class SessionIsClosed(Refusal):
    """The id was closed, and is not used again while the reply is kept."""

    kind: ClassVar[str] = "session_closed"
    message: ClassVar[str] = "The agent session is already closed; use a new id."

    at: Instant


@attrs.frozen
class SessionUnknown(Refusal):
    """There is no session that can be activated."""

    kind: ClassVar[str] = "session_unknown"
    message: ClassVar[str] = "The agent session is {phase}: seed it before activating."

    phase: SessionPhase


@attrs.frozen
class EpisodeMismatch(Refusal):
    """The session belongs to another episode."""

    kind: ClassVar[str] = "episode_mismatch"
    message: ClassVar[str] = "The session belongs to {standing}, not to {refused}."

    standing: EpisodeId
    refused: EpisodeId


@attrs.frozen
class StillRetained(Refusal):
    """The closed reply has to be kept a while longer."""

    kind: ClassVar[str] = "still_retained"
    message: ClassVar[str] = "The closed reply is kept until {until}; it is {at}."

    until: Instant
    at: Instant


@attrs.frozen
class SandboxInUse(Refusal):
    """The lent sandbox serves another session, and both did not ask to share it."""

    kind: ClassVar[str] = "sandbox_in_use"
    message: ClassVar[str] = (
        "Sandbox {sandbox} of provider {provider} serves session {session};"
        " close that one, or ask to share it in both seeds."
    )

    provider: str
    sandbox: str
    session: AgentSessionId


@attrs.frozen
class GrantLost(Refusal):
    """The tokens of its tools were known to another process alone."""

    kind: ClassVar[str] = "grant_lost"
    message: ClassVar[str] = (
        "The tokens for the tools of session {session} are not known to this process;"
        " send its seed again here, or close it and use a new id."
    )

    session: AgentSessionId


@attrs.frozen
class ActivationUnfinished(Refusal):
    """A session does not close over an activation without an ending."""

    kind: ClassVar[str] = "activation_unfinished"
    message: ClassVar[str] = "Activation {request:.12} has no ending yet."

    request: RequestDigest


def decide(session: AgentSession, command: Command) -> tuple[Event, ...]:
    """Return what happens next.

    Raises:
        SeedConflict, SessionIsClosing, SessionIsClosed, SessionUnknown,
        EpisodeMismatch, StillRetained, ActivationUnfinished, ActivationConflict,
        ActivationUnknown: As they say; nothing has happened.
    """
    match command:
        case Seed():
            return _seed(session, command)
        case Activate():
            return _activate(session, command)
        case EndActivation():
            return activations_.decide(session.activations, command)
        case StartClose():
            return _start_close(session, command)
        case Close():
            return _close(session, command)
        case Forget():
            return _forget(session, command)
        case MarkReady(claim=claim, at=at):
            return _mark_ready(session, SessionReady(claim=claim, at=at))
        case AbandonSeed(reason=reason, at=at):
            return _settle_seed(session, SeedAbandoned(reason=reason, at=at))
        case FailSetup(reason=reason, at=at):
            return _settle_seed(session, SetupFailed(reason=reason, at=at))
        case GiveUpSeed(reason=reason, at=at):
            return _give_up_seed(session, SeedGivenUp(reason=reason, at=at))
        case TakeOver():
            return _take_over(session, command)
        case StartCapture(request=request, at=at):
            return _start_capture(session, CaptureStarted(request=request, at=at))
        case FailClose(reason=reason, at=at):
            return _follow(session, CloseFailed(reason=reason, at=at))
        case _:
            assert_never(command)


def evolve(session: AgentSession, event: Event) -> AgentSession:
    """Return the session after `event`."""
    phase = next_phase(TRANSITIONS, session.phase, event)
    match event:
        case SeedStarted():
            fresh = Activations(stepwise=event.stepwise)
            return evolved(
                session,
                phase=phase,
                seeded=event,
                holder=event.holder,
                activations=fresh,
                reason="",
            )
        case SessionReady(claim=claim):
            return evolved(session, phase=phase, claim=claim, seed_over=True)
        case SeedAbandoned() | SessionForgotten():
            return AgentSession()
        case SetupFailed(reason=reason) | SeedGivenUp(reason=reason):
            return evolved(session, phase=phase, reason=reason, seed_over=True)
        case CloseFailed(reason=reason):
            return evolved(session, phase=phase, reason=reason)
        case SessionTakenOver(holder=holder):
            return evolved(session, phase=phase, holder=holder)
        case activations_.ActivationStarted(holder=holder):
            standing = activations_.evolve(session.activations, event)
            return evolved(session, phase=phase, activations=standing, holder=holder)
        case activations_.ActivationEnded():
            standing = activations_.evolve(session.activations, event)
            return evolved(session, phase=phase, activations=standing)
        case SessionClosed():
            return evolved(session, phase=phase, closed=event)
        case CaptureStarted() | CloseStarted():
            return evolved(session, phase=phase)
        case _:
            assert_never(event)


def _seed(session: AgentSession, command: Seed) -> tuple[Event, ...]:
    if session.closed is not None:
        raise SessionIsClosed(at=session.closed.at)
    if session.seeded is None:
        return (
            SeedStarted(
                session=command.session,
                episode=command.episode,
                request=command.request,
                stepwise=command.stepwise,
                grant=command.grant,
                holder=command.holder,
                at=command.at,
            ),
        )
    standing = session.seeded
    if (standing.request, standing.episode) != (command.request, command.episode):
        raise SeedConflict(session=command.session)
    if session.phase in (SessionPhase.CLOSING, SessionPhase.SETUP_FAILED):
        raise SessionIsClosing(phase=session.phase)
    return ()


def _activate(session: AgentSession, command: Activate) -> tuple[Event, ...]:
    known = session.activations.of(command.request)
    if known is not None and session.phase is not SessionPhase.CLOSED:
        return ()
    if session.phase in (SessionPhase.ABSENT, SessionPhase.SEEDING):
        raise SessionUnknown(phase=session.phase)
    if session.closed is not None:
        raise SessionIsClosed(at=session.closed.at)
    if session.phase in (SessionPhase.CLOSING, SessionPhase.SETUP_FAILED):
        raise SessionIsClosing(phase=session.phase)
    return activations_.decide(session.activations, command)


def _mark_ready(session: AgentSession, event: SessionReady) -> tuple[Event, ...]:
    if session.phase in _SEEDED and session.claim == event.claim:
        return ()
    return _settle_seed(session, event)


def _settle_seed(
    session: AgentSession, event: SessionReady | SeedAbandoned | SetupFailed
) -> tuple[Event, ...]:
    """Refuse when a close came while the seed ran: who seeds then releases."""
    if session.phase is SessionPhase.SEEDING:
        return (event,)
    if session.phase is SessionPhase.ABSENT:
        raise SessionUnknown(phase=session.phase)
    raise SessionIsClosing(phase=session.phase)


def _give_up_seed(session: AgentSession, event: SeedGivenUp) -> tuple[Event, ...]:
    return () if session.seed_over else _follow(session, event)


def _take_over(session: AgentSession, command: TakeOver) -> tuple[Event, ...]:
    """Of several who find it dead one wins; for the others nothing happens."""
    event = SessionTakenOver(holder=command.holder, at=command.at)
    follows = may_follow(TRANSITIONS, session.phase, SessionTakenOver)
    free = session.holder == command.taken_from != command.holder
    # Where nothing is under way there is nothing to go on with that nobody had.
    if session.phase is SessionPhase.READY and command.taken_from is None:
        return ()
    return (event,) if follows and free else ()


def _start_capture(session: AgentSession, event: CaptureStarted) -> tuple[Event, ...]:
    standing = session.activations.of(event.request)
    if standing is None:
        raise activations_.ActivationUnknown(request=event.request)
    if standing.ending is not None or session.phase is SessionPhase.CAPTURING:
        return ()
    return _follow(session, event)


def _start_close(session: AgentSession, command: StartClose) -> tuple[Event, ...]:
    _check_episode(session, command.episode)
    if session.phase in (
        SessionPhase.ABSENT,
        SessionPhase.CLOSING,
        SessionPhase.CLOSED,
    ):
        return ()
    return (CloseStarted(episode=command.episode, at=command.at),)


def _close(session: AgentSession, command: Close) -> tuple[Event, ...]:
    _check_episode(session, command.episode)
    if session.closed is not None:
        return ()
    under_way = session.activations.under_way
    if under_way is not None:
        raise ActivationUnfinished(request=under_way.request)
    return _follow(
        session,
        SessionClosed(
            session=command.session,
            episode=command.episode,
            reply=command.reply,
            at=command.at,
        ),
    )


def _forget(session: AgentSession, command: Forget) -> tuple[Event, ...]:
    if session.closed is None:
        return ()
    until = Instant(session.closed.at + command.retention_seconds)
    if command.at < until:
        raise StillRetained(until=until, at=command.at)
    return (SessionForgotten(at=command.at),)


def _check_episode(session: AgentSession, episode: EpisodeId) -> None:
    known = session.closed or session.seeded
    if known is not None and known.episode != episode:
        raise EpisodeMismatch(standing=known.episode, refused=episode)


def _follow(session: AgentSession, event: Event) -> tuple[Event, ...]:
    if may_follow(TRANSITIONS, session.phase, type(event)):
        return (event,)
    raise SessionUnknown(phase=session.phase)


DECIDER: Final[Decider[AgentSession, Command, Event]] = Decider(
    initial=AgentSession(), decide=decide, evolve=evolve
)
