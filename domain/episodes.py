# SPDX-License-Identifier: Apache-2.0
"""Episodes: one attempt at one task, from waiting to a result or a failure.

An episode waits, seeds its participants, acts, verifies, cleans up and is done,
with a result or a failure, never both. That a participant will have to be closed
is a fact before it is seeded, so whatever happens in between, cleaning knows whom
to close, in reverse order. Verification starts only when the agent is closed.
An episode is in the hands of one process, its holder; when that one has died,
another takes it over.
"""

from enum import StrEnum
from typing import ClassVar, Final, assert_never

import attrs

from .claims import Holder
from .deciders import Decider, Instant, Table, may_follow, next_phase
from .digests import RequestDigest
from .evolved_values import evolved
from .failures import Failure
from .refusals import Refusal
from .tasks import EpisodeId, TaskId


class Participant(StrEnum):
    """Who takes part in an episode, under a session of its own."""

    RESOURCES = "resources"
    AGENT = "agent"


class EpisodePhase(StrEnum):
    """Where an episode stands."""

    ABSENT = "absent"
    WAITING = "waiting"
    SEEDING = "seeding"
    ACTING = "acting"
    VERIFYING = "verifying"
    CLEANING = "cleaning"
    DONE = "done"


@attrs.frozen(kw_only=True)
class QueueEpisode:
    """Asks for the episode to be run as `request` describes."""

    episode: EpisodeId
    task: TaskId
    request: RequestDigest
    holder: Holder | None = None
    """The process that runs it; None where only one can."""
    at: Instant


@attrs.frozen(kw_only=True)
class TakeOverEpisode:
    """Asks for `holder` to go on with what `taken_from` left when it died."""

    taken_from: Holder | None
    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class Admit:
    """Tells that there is room for it."""

    at: Instant


@attrs.frozen(kw_only=True)
class StartSeed:
    """Asks to seed a participant under `session`."""

    participant: Participant
    session: str
    at: Instant


@attrs.frozen(kw_only=True)
class NoteSeeded:
    """Tells that the participant is ready."""

    participant: Participant
    at: Instant


@attrs.frozen(kw_only=True)
class StartTurn:
    """Asks to activate the agent."""

    at: Instant


@attrs.frozen(kw_only=True)
class NoteStep:
    """Tells what one step of the turn came to, JSON text; more may follow."""

    number: int
    """From 0, in order."""
    step: str
    at: Instant


@attrs.frozen(kw_only=True)
class EndTurn:
    """Tells the agent's answer, JSON text."""

    response: str
    at: Instant


@attrs.frozen(kw_only=True)
class StartVerifying:
    """Asks to have the answer graded."""

    at: Instant


@attrs.frozen(kw_only=True)
class NoteVerified:
    """Tells the result, JSON text."""

    result: str
    at: Instant


@attrs.frozen(kw_only=True)
class Fail:
    """Tells that the episode cannot go on."""

    failure: Failure
    at: Instant


@attrs.frozen(kw_only=True)
class NoteClosed:
    """Tells that a participant's session was closed."""

    participant: Participant
    at: Instant


@attrs.frozen(kw_only=True)
class NoteUnclosed:
    """Tells that it was not, in the time it had; its own journal keeps the debt."""

    participant: Participant
    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class Finish:
    """Asks to end the episode; every debt was tried."""

    at: Instant


Command = (
    QueueEpisode
    | TakeOverEpisode
    | Admit
    | StartSeed
    | NoteSeeded
    | StartTurn
    | NoteStep
    | EndTurn
    | StartVerifying
    | NoteVerified
    | Fail
    | NoteClosed
    | NoteUnclosed
    | Finish
)


@attrs.frozen(kw_only=True)
class EpisodeQueued:
    """The episode waits and holds nothing."""

    episode: EpisodeId
    task: TaskId
    request: RequestDigest
    holder: Holder | None = None
    at: Instant


@attrs.frozen(kw_only=True)
class EpisodeTakenOver:
    """`holder` goes on with the episode."""

    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class EpisodeAdmitted:
    """The episode's turn has come."""

    at: Instant


@attrs.frozen(kw_only=True)
class CleanupOwed:
    """From here on `session` may exist and has to be closed."""

    participant: Participant
    session: str
    at: Instant


@attrs.frozen(kw_only=True)
class ParticipantSeeded:
    """The participant is ready."""

    participant: Participant
    at: Instant


@attrs.frozen(kw_only=True)
class TurnStarted:
    """The agent was asked to act."""

    at: Instant


@attrs.frozen(kw_only=True)
class StepEnded:
    """The agent went one step of the turn."""

    step: str
    at: Instant


@attrs.frozen(kw_only=True)
class TurnEnded:
    """The agent answered."""

    response: str
    at: Instant


@attrs.frozen(kw_only=True)
class VerifyingStarted:
    """The answer is being graded."""

    at: Instant


@attrs.frozen(kw_only=True)
class EpisodeVerified:
    """The episode has its result; only cleaning is left."""

    result: str
    at: Instant


@attrs.frozen(kw_only=True)
class EpisodeFailed:
    """The episode has its failure; only cleaning is left."""

    failure: Failure
    at: Instant


@attrs.frozen(kw_only=True)
class ParticipantClosed:
    """The debt is paid."""

    participant: Participant
    at: Instant


@attrs.frozen(kw_only=True)
class ParticipantUnclosed:
    """The debt was tried and is left to the participant's own journal."""

    participant: Participant
    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class EpisodeDone:
    """Nothing more happens."""

    at: Instant


Event = (
    EpisodeQueued
    | EpisodeTakenOver
    | EpisodeAdmitted
    | CleanupOwed
    | ParticipantSeeded
    | TurnStarted
    | StepEnded
    | TurnEnded
    | VerifyingStarted
    | EpisodeVerified
    | EpisodeFailed
    | ParticipantClosed
    | ParticipantUnclosed
    | EpisodeDone
)

_P = EpisodePhase
_RUNNING: Final = (_P.WAITING, _P.SEEDING, _P.ACTING, _P.VERIFYING)
TRANSITIONS: Final[Table[EpisodePhase]] = {
    (_P.ABSENT, EpisodeQueued): _P.WAITING,
    **{(phase, EpisodeTakenOver): phase for phase in (*_RUNNING, _P.CLEANING)},
    (_P.WAITING, EpisodeAdmitted): _P.SEEDING,
    (_P.SEEDING, CleanupOwed): _P.SEEDING,
    (_P.SEEDING, ParticipantSeeded): _P.SEEDING,
    (_P.SEEDING, TurnStarted): _P.ACTING,
    (_P.ACTING, StepEnded): _P.ACTING,
    (_P.ACTING, TurnEnded): _P.ACTING,
    (_P.ACTING, ParticipantClosed): _P.ACTING,
    (_P.ACTING, ParticipantUnclosed): _P.ACTING,
    (_P.ACTING, VerifyingStarted): _P.VERIFYING,
    (_P.VERIFYING, EpisodeVerified): _P.CLEANING,
    **{(phase, EpisodeFailed): _P.CLEANING for phase in _RUNNING},
    (_P.CLEANING, ParticipantClosed): _P.CLEANING,
    (_P.CLEANING, ParticipantUnclosed): _P.CLEANING,
    (_P.CLEANING, EpisodeDone): _P.DONE,
}


@attrs.frozen(kw_only=True)
class Episode:
    """What is known of an episode."""

    phase: EpisodePhase = EpisodePhase.ABSENT
    queued: EpisodeQueued | None = None
    holder: Holder | None = None
    owed: tuple[tuple[Participant, str], ...] = ()
    """Whom cleaning still has to close, in the order of their seeds."""
    seeded: frozenset[Participant] = frozenset()
    unclosed: tuple[tuple[Participant, str], ...] = ()
    """Whom cleaning tried to close in vain, with the reason."""
    turn_started: Instant | None = None
    turn_ended: Instant | None = None
    steps: tuple[str, ...] = ()
    """What the steps of the turn came to, in order; none where it has one."""
    response: str | None = None
    result: str | None = None
    failure: Failure | None = None


@attrs.frozen
class EpisodeConflict(Refusal):
    """The episode's name is taken by another request."""

    kind: ClassVar[str] = "episode_conflict"
    message: ClassVar[str] = (
        "{episode} already stands for another request; use a new attempt."
    )

    episode: EpisodeId


@attrs.frozen
class EpisodeOutOfStep(Refusal):
    """The episode is not in a phase that allows this."""

    kind: ClassVar[str] = "episode_out_of_step"
    message: ClassVar[str] = "The episode is {phase}: {command} does not fit: {reason}."

    phase: EpisodePhase
    command: str
    reason: str


@attrs.frozen
class EpisodeElsewhere(Refusal):
    """The episode is in the hands of another process."""

    kind: ClassVar[str] = "episode_elsewhere"
    message: ClassVar[str] = "{episode} is run by another process, {holder}."

    episode: EpisodeId
    holder: Holder


def decide(episode: Episode, command: Command) -> tuple[Event, ...]:
    """Return what happens next.

    Raises:
        EpisodeConflict, EpisodeOutOfStep: As they say.
    """
    match command:
        case QueueEpisode():
            return _queue(episode, command)
        case TakeOverEpisode():
            return _take_over(episode, command)
        case StartSeed():
            return _start_seed(episode, command)
        case StartTurn(at=at):
            return _start_turn(episode, command, at)
        case StartVerifying(at=at):
            return _start_verifying(episode, command, at)
        case NoteClosed(participant=who, at=at):
            closed = ParticipantClosed(participant=who, at=at)
            return _settle(episode, command, who, closed)
        case NoteUnclosed(participant=who, reason=reason, at=at):
            left = ParticipantUnclosed(participant=who, reason=reason, at=at)
            return _settle(episode, command, who, left)
        case Finish(at=at):
            return _finish(episode, command, at)
        case Admit(at=at):
            return _follow(episode, command, EpisodeAdmitted(at=at))
        case NoteSeeded(participant=who, at=at):
            seeded = ParticipantSeeded(participant=who, at=at)
            return _note_seeded(episode, command, seeded)
        case NoteStep(step=step, at=at):
            return _note_step(episode, command, StepEnded(step=step, at=at))
        case EndTurn(response=response, at=at):
            ended = TurnEnded(response=response, at=at)
            known = episode.response is not None
            return () if known else _follow(episode, command, ended)
        case NoteVerified(result=result, at=at):
            return _follow(episode, command, EpisodeVerified(result=result, at=at))
        case Fail(failure=failure, at=at):
            return _follow(episode, command, EpisodeFailed(failure=failure, at=at))
        case _:
            assert_never(command)


def evolve(episode: Episode, event: Event) -> Episode:
    """Return the episode after `event`."""
    phase = next_phase(TRANSITIONS, episode.phase, event)
    match event:
        case EpisodeQueued():
            return evolved(episode, phase=phase, queued=event, holder=event.holder)
        case EpisodeTakenOver(holder=holder):
            return evolved(episode, phase=phase, holder=holder)
        case CleanupOwed(participant=who, session=session):
            return evolved(episode, phase=phase, owed=(*episode.owed, (who, session)))
        case ParticipantSeeded(participant=who):
            return evolved(episode, phase=phase, seeded=episode.seeded | {who})
        case StepEnded(step=step):
            return evolved(episode, phase=phase, steps=(*episode.steps, step))
        case TurnStarted(at=at):
            return evolved(episode, phase=phase, turn_started=at)
        case TurnEnded(response=response, at=at):
            return evolved(episode, phase=phase, response=response, turn_ended=at)
        case EpisodeVerified(result=result):
            return evolved(episode, phase=phase, result=result)
        case EpisodeFailed(failure=failure):
            return evolved(episode, phase=phase, failure=failure)
        case ParticipantClosed(participant=who):
            return evolved(episode, phase=phase, owed=_without(episode, who))
        case ParticipantUnclosed(participant=who, reason=reason):
            return evolved(
                episode,
                phase=phase,
                owed=_without(episode, who),
                unclosed=(*episode.unclosed, (who, reason)),
            )
        case EpisodeAdmitted() | VerifyingStarted() | EpisodeDone():
            return evolved(episode, phase=phase)
        case _:
            assert_never(event)


def _queue(episode: Episode, command: QueueEpisode) -> tuple[Event, ...]:
    standing = episode.queued
    if standing is None:
        return (
            EpisodeQueued(
                episode=command.episode,
                task=command.task,
                request=command.request,
                holder=command.holder,
                at=command.at,
            ),
        )
    for field in ("episode", "task", "request"):
        if getattr(standing, field) != getattr(command, field):
            raise EpisodeConflict(episode=command.episode)
    return ()


def _take_over(episode: Episode, command: TakeOverEpisode) -> tuple[Event, ...]:
    if episode.holder != command.taken_from:
        return ()  # Another was first.
    taken = EpisodeTakenOver(holder=command.holder, at=command.at)
    return _follow(episode, command, taken)


def _note_step(
    episode: Episode, command: NoteStep, event: StepEnded
) -> tuple[Event, ...]:
    if episode.response is not None:
        raise _out_of_step(episode, command, "its turn is over")
    if command.number > len(episode.steps):
        raise _out_of_step(episode, command, "a step before it is missing")
    if command.number < len(episode.steps):
        return ()
    return _follow(episode, command, event)


def _start_seed(episode: Episode, command: StartSeed) -> tuple[Event, ...]:
    started = CleanupOwed(
        participant=command.participant, session=command.session, at=command.at
    )
    events = _follow(episode, command, started)
    standing = dict(episode.owed).get(command.participant)
    if standing is None:
        return events
    if standing != command.session:
        raise _out_of_step(episode, command, "it has another session")
    return ()


def _note_seeded(
    episode: Episode, command: NoteSeeded, event: ParticipantSeeded
) -> tuple[Event, ...]:
    if command.participant in episode.seeded:
        return ()
    if command.participant not in dict(episode.owed):
        raise _out_of_step(episode, command, "nobody asked for its seed")
    return _follow(episode, command, event)


def _start_turn(episode: Episode, command: StartTurn, at: Instant) -> tuple[Event, ...]:
    if Participant.AGENT not in episode.seeded:
        raise _out_of_step(episode, command, "the agent is not seeded")
    return _follow(episode, command, TurnStarted(at=at))


def _start_verifying(
    episode: Episode, command: StartVerifying, at: Instant
) -> tuple[Event, ...]:
    if episode.response is None:
        raise _out_of_step(episode, command, "there is no answer to grade")
    if Participant.AGENT in dict(episode.owed + episode.unclosed):
        raise _out_of_step(episode, command, "the agent is not closed")
    return _follow(episode, command, VerifyingStarted(at=at))


def _settle(
    episode: Episode,
    command: Command,
    who: Participant,
    event: ParticipantClosed | ParticipantUnclosed,
) -> tuple[Event, ...]:
    if who not in dict(episode.owed):
        return ()
    if episode.owed[-1][0] is not who:
        raise _out_of_step(episode, command, "whoever was seeded later is closed first")
    return _follow(episode, command, event)


def _finish(episode: Episode, command: Finish, at: Instant) -> tuple[Event, ...]:
    if episode.phase is EpisodePhase.DONE:
        return ()
    if episode.owed:
        raise _out_of_step(episode, command, "a participant is still to be closed")
    return _follow(episode, command, EpisodeDone(at=at))


def _without(episode: Episode, who: Participant) -> tuple[tuple[Participant, str], ...]:
    return tuple(owed for owed in episode.owed if owed[0] is not who)


def _follow(episode: Episode, command: Command, event: Event) -> tuple[Event, ...]:
    if may_follow(TRANSITIONS, episode.phase, type(event)):
        return (event,)
    raise _out_of_step(episode, command, "it is too early or too late for that")


def _out_of_step(episode: Episode, command: Command, reason: str) -> EpisodeOutOfStep:
    return EpisodeOutOfStep(
        phase=episode.phase, command=type(command).__name__, reason=reason
    )


DECIDER: Final[Decider[Episode, Command, Event]] = Decider(
    initial=Episode(), decide=decide, evolve=evolve
)
