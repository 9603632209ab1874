# SPDX-License-Identifier: Apache-2.0
"""Resources sessions: a task's world, lent for one episode and graded once.

Seed and close follow the agent session's rules. Grading starts only when nothing
of the harness can still write, and the evidence for that is part of the fact. The
first verdict stands and is replayed.
"""

from enum import StrEnum
from typing import ClassVar, Final, NewType, assert_never

import attrs

from .activations import Stillness
from .claims import ClaimId
from .deciders import Decider, Instant, Table, may_follow, next_phase
from .digests import RequestDigest
from .evolved_values import evolved
from .refusals import Refusal
from .tasks import EpisodeId

ResourcesSessionId = NewType("ResourcesSessionId", str)


class ResourcesPhase(StrEnum):
    """Where a session stands."""

    ABSENT = "absent"
    SEEDING = "seeding"
    READY = "ready"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    CLOSING = "closing"
    CLOSED = "closed"


@attrs.frozen(kw_only=True)
class SeedResources:
    """Asks for the task's world to be built as `request` describes."""

    session: ResourcesSessionId
    episode: EpisodeId
    request: RequestDigest
    at: Instant


@attrs.frozen(kw_only=True)
class MarkBuilt:
    """Tells that the world stands; `claim` is the sandbox it lends, if any."""

    claim: ClaimId | None
    at: Instant


@attrs.frozen(kw_only=True)
class AbandonBuild:
    """Tells that the build failed and kept nothing."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class StartVerification:
    """Asks to grade; `stillness` is what was seen of the harness, None if nothing."""

    request: RequestDigest
    stillness: Stillness | None
    at: Instant


@attrs.frozen(kw_only=True)
class GiveVerdict:
    """Tells the verdict's reply, which is replayed from now on."""

    reply: str
    at: Instant


@attrs.frozen(kw_only=True)
class FailVerification:
    """Tells that no verdict came of it; it may be asked again."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class NoteProviderFailure:
    """Tells that a tool call failed for the sandbox's provider, not for the agent."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class StartResourcesClose:
    """Asks for the world to be ended and its sandbox released."""

    episode: EpisodeId
    at: Instant


@attrs.frozen(kw_only=True)
class FailResourcesClose:
    """Tells that something could not be released."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class CloseResources:
    """Tells that nothing is left of the session."""

    episode: EpisodeId
    at: Instant


Command = (
    SeedResources
    | MarkBuilt
    | AbandonBuild
    | StartVerification
    | GiveVerdict
    | FailVerification
    | NoteProviderFailure
    | StartResourcesClose
    | FailResourcesClose
    | CloseResources
)


@attrs.frozen(kw_only=True)
class BuildStarted:
    """The world is being built."""

    session: ResourcesSessionId
    episode: EpisodeId
    request: RequestDigest
    at: Instant


@attrs.frozen(kw_only=True)
class WorldBuilt:
    """The agent may work in it."""

    claim: ClaimId | None
    at: Instant


@attrs.frozen(kw_only=True)
class BuildAbandoned:
    """The build failed and left nothing."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class VerificationStarted:
    """Nothing of the harness writes any more; grading begins."""

    request: RequestDigest
    stillness: Stillness
    at: Instant


@attrs.frozen(kw_only=True)
class VerdictGiven:
    """The world is graded."""

    reply: str
    at: Instant


@attrs.frozen(kw_only=True)
class VerificationGivenUp:
    """No verdict came of it."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class ProviderFailed:
    """The agent was hindered by the sandbox's provider: its reward measures nothing."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class ResourcesCloseStarted:
    """The world is ending."""

    episode: EpisodeId
    at: Instant


@attrs.frozen(kw_only=True)
class ResourcesCloseFailed:
    """Something is not released yet."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class ResourcesClosed:
    """Nothing is left of the session."""

    episode: EpisodeId
    at: Instant


Event = (
    BuildStarted
    | WorldBuilt
    | BuildAbandoned
    | VerificationStarted
    | VerdictGiven
    | VerificationGivenUp
    | ProviderFailed
    | ResourcesCloseStarted
    | ResourcesCloseFailed
    | ResourcesClosed
)

_P = ResourcesPhase
TRANSITIONS: Final[Table[ResourcesPhase]] = {
    (_P.ABSENT, BuildStarted): _P.SEEDING,
    (_P.ABSENT, ResourcesClosed): _P.CLOSED,
    (_P.SEEDING, WorldBuilt): _P.READY,
    (_P.SEEDING, BuildAbandoned): _P.ABSENT,
    (_P.READY, ProviderFailed): _P.READY,
    (_P.READY, VerificationStarted): _P.VERIFYING,
    (_P.VERIFYING, VerdictGiven): _P.VERIFIED,
    (_P.VERIFYING, VerificationGivenUp): _P.READY,
    (_P.SEEDING, ResourcesCloseStarted): _P.CLOSING,
    (_P.READY, ResourcesCloseStarted): _P.CLOSING,
    (_P.VERIFYING, ResourcesCloseStarted): _P.CLOSING,
    (_P.VERIFIED, ResourcesCloseStarted): _P.CLOSING,
    (_P.CLOSING, ResourcesCloseFailed): _P.CLOSING,
    (_P.CLOSING, ResourcesClosed): _P.CLOSED,
}
_BUILT: Final = (_P.READY, _P.VERIFYING, _P.VERIFIED)


@attrs.frozen(kw_only=True)
class ResourcesSession:
    """What is known of a session."""

    phase: ResourcesPhase = ResourcesPhase.ABSENT
    built: BuildStarted | None = None
    world_built: bool = False
    """Whether the build came to its end, so that `claim` is all that was claimed."""
    claim: ClaimId | None = None
    verification: VerificationStarted | None = None
    verdict: str | None = None
    closed: ResourcesClosed | None = None
    reason: str = ""
    provider_failure: str = ""
    """Why the reward will measure nothing; the first reason is kept."""


@attrs.frozen
class ResourcesConflict(Refusal):
    """The id is bound to another seed, or the verdict to another answer."""

    kind: ClassVar[str] = "resources_conflict"
    message: ClassVar[str] = (
        "The resources session stands for another {field}; the first one stands."
    )

    field: str


@attrs.frozen
class HarnessMayWrite(Refusal):
    """Nobody has seen that the harness is over; its work is not graded yet."""

    kind: ClassVar[str] = "harness_may_write"
    message: ClassVar[str] = (
        "Grading of {episode} is refused: nobody saw that the harness is over."
        " Close the agent session first."
    )

    episode: EpisodeId


@attrs.frozen
class CallsEnded(Refusal):
    """The session's apps take no more calls: it is graded, closed, or its task is done.

    An agent reads this, so it names nothing but the call.
    """

    kind: ClassVar[str] = "calls_ended"
    message: ClassVar[str] = "This session has ended; no more calls are taken."


@attrs.frozen
class ResourcesNotUsable(Refusal):
    """The session is not in a phase that allows this."""

    kind: ClassVar[str] = "resources_not_usable"
    message: ClassVar[str] = "The resources session is {phase}."

    phase: ResourcesPhase


def decide(session: ResourcesSession, command: Command) -> tuple[Event, ...]:
    """Return what happens next.

    Raises:
        ResourcesConflict, HarnessMayWrite, ResourcesNotUsable: As they say.
    """
    match command:
        case SeedResources():
            return _seed(session, command)
        case StartVerification():
            return _start_verification(session, command)
        case GiveVerdict(reply=reply, at=at):
            if session.verdict is not None:
                return ()
            return _follow(session, VerdictGiven(reply=reply, at=at))
        case StartResourcesClose(episode=episode, at=at):
            return _start_close(session, episode, at)
        case CloseResources(episode=episode, at=at):
            return _close(session, episode, at)
        case MarkBuilt(claim=claim, at=at):
            known = session.phase in _BUILT and session.claim == claim
            return () if known else _follow(session, WorldBuilt(claim=claim, at=at))
        case AbandonBuild(reason=reason, at=at):
            return _follow(session, BuildAbandoned(reason=reason, at=at))
        case FailVerification(reason=reason, at=at):
            return _follow(session, VerificationGivenUp(reason=reason, at=at))
        case NoteProviderFailure(reason=reason, at=at):
            if session.provider_failure:
                return ()
            return _follow(session, ProviderFailed(reason=reason, at=at))
        case FailResourcesClose(reason=reason, at=at):
            return _follow(session, ResourcesCloseFailed(reason=reason, at=at))
        case _:
            assert_never(command)


def evolve(session: ResourcesSession, event: Event) -> ResourcesSession:
    """Return the session after `event`."""
    phase = next_phase(TRANSITIONS, session.phase, event)
    match event:
        case BuildStarted():
            return evolved(session, phase=phase, built=event, reason="")
        case WorldBuilt(claim=claim):
            return evolved(session, phase=phase, claim=claim, world_built=True)
        case BuildAbandoned():
            return ResourcesSession()
        case VerificationStarted():
            return evolved(session, phase=phase, verification=event)
        case VerdictGiven(reply=reply):
            return evolved(session, phase=phase, verdict=reply)
        case VerificationGivenUp(reason=reason):
            return evolved(session, phase=phase, verification=None, reason=reason)
        case ProviderFailed(reason=reason):
            return evolved(session, phase=phase, provider_failure=reason)
        case ResourcesCloseFailed(reason=reason):
            return evolved(session, phase=phase, reason=reason)
        case ResourcesClosed():
            return evolved(session, phase=phase, closed=event)
        case ResourcesCloseStarted():
            return evolved(session, phase=phase)
        case _:
            assert_never(event)


def _seed(session: ResourcesSession, command: SeedResources) -> tuple[Event, ...]:
    if session.phase in (ResourcesPhase.CLOSING, ResourcesPhase.CLOSED):
        raise ResourcesNotUsable(phase=session.phase)
    standing = session.built
    if standing is None:
        return (
            BuildStarted(
                session=command.session,
                episode=command.episode,
                request=command.request,
                at=command.at,
            ),
        )
    if (standing.request, standing.episode) != (command.request, command.episode):
        raise ResourcesConflict(field="seed")
    return ()


def _start_verification(
    session: ResourcesSession, command: StartVerification
) -> tuple[Event, ...]:
    standing = session.verification
    if standing is not None:
        if standing.request != command.request:
            raise ResourcesConflict(field="answer to verify")
        if session.verdict is None and session.phase is not ResourcesPhase.VERIFYING:
            raise ResourcesNotUsable(phase=session.phase)
        return ()
    if session.phase is not ResourcesPhase.READY or session.built is None:
        raise ResourcesNotUsable(phase=session.phase)
    if command.stillness is None:
        raise HarnessMayWrite(episode=session.built.episode)
    return (
        VerificationStarted(
            request=command.request, stillness=command.stillness, at=command.at
        ),
    )


def _start_close(
    session: ResourcesSession, episode: EpisodeId, at: Instant
) -> tuple[Event, ...]:
    _check_episode(session, episode)
    started = ResourcesCloseStarted(episode=episode, at=at)
    possible = may_follow(TRANSITIONS, session.phase, ResourcesCloseStarted)
    return (started,) if possible else ()


def _close(
    session: ResourcesSession, episode: EpisodeId, at: Instant
) -> tuple[Event, ...]:
    _check_episode(session, episode)
    if session.phase is ResourcesPhase.CLOSED:
        return ()
    return _follow(session, ResourcesClosed(episode=episode, at=at))


def _check_episode(session: ResourcesSession, episode: EpisodeId) -> None:
    known = session.closed or session.built
    if known is not None and known.episode != episode:
        raise ResourcesConflict(field="episode")


def _follow(session: ResourcesSession, event: Event) -> tuple[Event, ...]:
    if may_follow(TRANSITIONS, session.phase, type(event)):
        return (event,)
    raise ResourcesNotUsable(phase=session.phase)


DECIDER: Final[Decider[ResourcesSession, Command, Event]] = Decider(
    initial=ResourcesSession(), decide=decide, evolve=evolve
)
