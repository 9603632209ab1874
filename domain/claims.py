# SPDX-License-Identifier: Apache-2.0
"""Claims: the right to use one sandbox, and the duty to release it.

A claim is requested, its sandbox is made, held, perhaps lent and handed back,
and released. Creation is named by the claim's id, so one whose reply was lost is
in doubt until somebody looked outside. Release is done when the sandbox was seen
gone; a release that fails stays open for the reaper.

- A claim has at most one sandbox, ever, and one owner.
- A borrower can use and hand back, never release.
- Nothing is made for a claim whose release has begun.
"""

from enum import StrEnum
from typing import ClassVar, Final, NewType, assert_never

import attrs

from .deciders import Decider, Instant, Table, may_follow, next_phase
from .evolved_values import evolved
from .refusals import Refusal

ClaimId = NewType("ClaimId", str)
OwnerId = NewType("OwnerId", str)
Borrower = NewType("Borrower", str)
"""Who borrows: the id of an agent session."""
SpecDigest = NewType("SpecDigest", str)
Holder = NewType("Holder", str)
"""Which process uses the claim; while it lives, the reaper keeps away."""


class ClaimPhase(StrEnum):
    """Where a claim stands."""

    ABSENT = "absent"
    REQUESTED = "requested"
    CREATING = "creating"
    IN_DOUBT = "in doubt"
    HELD = "held"
    LENT = "lent"
    LOST = "lost"
    EXPIRED = "expired"
    RELEASING = "releasing"
    RELEASED = "released"


@attrs.frozen(kw_only=True)
class RequestClaim:
    """Asks for the right to one sandbox of `provider`, as `spec` describes it."""

    claim: ClaimId
    owner: OwnerId
    provider: str
    spec: SpecDigest
    used_by: str
    """For whom: the episode, in words for a person who reads the list."""
    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class TakeOver:
    """Asks to go on with the claim of a process that is no more."""

    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class StartCreation:
    """Asks to make the sandbox now; the fact is the intent before the call."""

    at: Instant


@attrs.frozen(kw_only=True)
class Hold:
    """Tells that the sandbox is there, made or found again."""

    sandbox: str
    expires_at: Instant | None
    at: Instant


@attrs.frozen(kw_only=True)
class Doubt:
    """Tells that a creation ended without an answer."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class Lend:
    """Asks to let `borrower` use the sandbox; `shared` if others may as well."""

    borrower: Borrower
    shared: bool = False
    at: Instant


@attrs.frozen(kw_only=True)
class HandBack:
    """Tells that `borrower` no longer uses it."""

    borrower: Borrower
    at: Instant


@attrs.frozen(kw_only=True)
class NoteLost:
    """Tells that the sandbox was found ended."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class NoteExpired:
    """Tells that the time of the sandbox is over."""

    at: Instant


@attrs.frozen(kw_only=True)
class StartRelease:
    """Asks to give the sandbox back."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class NoteReleaseFailed:
    """Tells that the sandbox was not seen gone."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class NoteReleased:
    """Tells that the sandbox was seen gone, or that there never was one."""

    at: Instant


Command = (
    RequestClaim
    | TakeOver
    | StartCreation
    | Hold
    | Doubt
    | Lend
    | HandBack
    | NoteLost
    | NoteExpired
    | StartRelease
    | NoteReleaseFailed
    | NoteReleased
)


@attrs.frozen(kw_only=True)
class ClaimRequested:
    """Somebody wants a sandbox; nothing has been made."""

    claim: ClaimId
    owner: OwnerId
    provider: str
    spec: SpecDigest
    used_by: str
    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class ClaimTakenOver:
    """Another process goes on with the claim."""

    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class CreationStarted:
    """From here on there may be a sandbox of this claim."""

    at: Instant


@attrs.frozen(kw_only=True)
class CreationDoubted:
    """There may or may not be one; somebody has to look."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class ClaimHeld:
    """The sandbox is there and ours."""

    sandbox: str
    expires_at: Instant | None
    at: Instant


@attrs.frozen(kw_only=True)
class ClaimLent:
    """The borrower may use the sandbox."""

    borrower: Borrower
    shared: bool
    at: Instant


@attrs.frozen(kw_only=True)
class BorrowerLeft:
    """One of several borrowers of a shared sandbox is through with it."""

    borrower: Borrower
    at: Instant


@attrs.frozen(kw_only=True)
class ClaimHandedBack:
    """The last borrower is through with it."""

    borrower: Borrower
    at: Instant


@attrs.frozen(kw_only=True)
class ClaimLost:
    """The sandbox ended before we ended it."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class ClaimExpired:
    """The sandbox's time is over."""

    at: Instant


@attrs.frozen(kw_only=True)
class ReleaseStarted:
    """From here on nobody uses the sandbox, and it is being ended."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class ReleaseFailed:
    """It is still there, or may be; the claim stays open."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class ClaimReleased:
    """The sandbox was seen gone."""

    at: Instant


Event = (
    ClaimRequested
    | ClaimTakenOver
    | CreationStarted
    | CreationDoubted
    | ClaimHeld
    | ClaimLent
    | BorrowerLeft
    | ClaimHandedBack
    | ClaimLost
    | ClaimExpired
    | ReleaseStarted
    | ReleaseFailed
    | ClaimReleased
)

_P = ClaimPhase
_OPEN: Final = tuple(phase for phase in _P if phase not in (_P.ABSENT, _P.RELEASED))
TRANSITIONS: Final[Table[ClaimPhase]] = {
    (_P.ABSENT, ClaimRequested): _P.REQUESTED,
    **{(phase, ClaimTakenOver): phase for phase in _OPEN},
    (_P.REQUESTED, CreationStarted): _P.CREATING,
    (_P.CREATING, ClaimHeld): _P.HELD,
    (_P.CREATING, CreationDoubted): _P.IN_DOUBT,
    (_P.IN_DOUBT, ClaimHeld): _P.HELD,
    (_P.HELD, ClaimLent): _P.LENT,
    (_P.LENT, ClaimLent): _P.LENT,
    (_P.LENT, BorrowerLeft): _P.LENT,
    (_P.LENT, ClaimHandedBack): _P.HELD,
    (_P.HELD, ClaimLost): _P.LOST,
    (_P.LENT, ClaimLost): _P.LOST,
    (_P.HELD, ClaimExpired): _P.EXPIRED,
    (_P.LENT, ClaimExpired): _P.EXPIRED,
    (_P.REQUESTED, ReleaseStarted): _P.RELEASING,
    (_P.CREATING, ReleaseStarted): _P.RELEASING,
    (_P.IN_DOUBT, ReleaseStarted): _P.RELEASING,
    (_P.HELD, ReleaseStarted): _P.RELEASING,
    (_P.LENT, ReleaseStarted): _P.RELEASING,
    (_P.LOST, ReleaseStarted): _P.RELEASING,
    (_P.EXPIRED, ReleaseStarted): _P.RELEASING,
    (_P.RELEASING, ReleaseFailed): _P.RELEASING,
    (_P.RELEASING, ClaimReleased): _P.RELEASED,
}


@attrs.frozen(kw_only=True)
class Claim:
    """What is known of a claim."""

    phase: ClaimPhase = ClaimPhase.ABSENT
    requested: ClaimRequested | None = None
    holder: Holder | None = None
    sandbox: str | None = None
    expires_at: Instant | None = None
    borrowers: frozenset[Borrower] = frozenset()
    shared: bool = False
    reason: str = ""
    """Why it is lost, in doubt, or not released yet."""
    release_attempts: int = 0

    @property
    def open(self) -> bool:
        """Whether a sandbox of this claim may be somewhere."""
        return self.phase not in (ClaimPhase.ABSENT, ClaimPhase.RELEASED)


@attrs.frozen
class ClaimConflict(Refusal):
    """The id is taken by a claim for something else."""

    kind: ClassVar[str] = "claim_conflict"
    message: ClassVar[str] = (
        "Claim {claim} already stands for another {field}; the first one stands."
    )

    claim: ClaimId
    field: str


@attrs.frozen
class ClaimNotUsable(Refusal):
    """The claim is not in a phase that allows this."""

    kind: ClassVar[str] = "claim_not_usable"
    message: ClassVar[str] = "The claim is {phase}: {command} is too late or too early."

    phase: ClaimPhase
    command: str


@attrs.frozen
class SecondSandbox(Refusal):
    """A claim has one sandbox, ever, and this is another."""

    kind: ClassVar[str] = "second_sandbox"
    message: ClassVar[str] = (
        "The claim has sandbox {standing}; {refused} cannot be its sandbox too."
    )

    standing: str
    refused: str


@attrs.frozen
class AlreadyLent(Refusal):
    """Another borrower has the sandbox, and sharing was not asked for on both sides."""

    kind: ClassVar[str] = "already_lent"
    message: ClassVar[str] = (
        "The sandbox is lent to {standing}; {refused} has to wait until it is back,"
        " or both have to ask for a shared one."
    )

    standing: str
    refused: Borrower


@attrs.frozen
class NotTheBorrower(Refusal):
    """Who hands back did not borrow."""

    kind: ClassVar[str] = "not_the_borrower"
    message: ClassVar[str] = "{borrower} has not borrowed the sandbox of this claim."

    borrower: Borrower


@attrs.frozen
class NotExpiredYet(Refusal):
    """The sandbox has time left."""

    kind: ClassVar[str] = "not_expired_yet"
    message: ClassVar[str] = "The sandbox lives until {expires_at}, and it is {at}."

    expires_at: Instant | None
    at: Instant


@attrs.frozen
class BornExpired(Refusal):
    """A sandbox cannot become ready and be expired in one step."""

    kind: ClassVar[str] = "born_expired"
    message: ClassVar[str] = (
        "Sandbox {sandbox} was ready at {at} and expired at {expires_at}:"
        " its lifetime is shorter than its making. Ask for a longer one."
    )

    sandbox: str
    at: Instant
    expires_at: Instant


def decide(claim: Claim, command: Command) -> tuple[Event, ...]:
    """Return what happens next.

    Raises:
        ClaimConflict, ClaimNotUsable, SecondSandbox, AlreadyLent, NotTheBorrower,
        NotExpiredYet, BornExpired: As they say; nothing has happened.
    """
    match command:
        case RequestClaim():
            return _request(claim, command)
        case Hold():
            return _hold(claim, command)
        case Lend():
            return _lend(claim, command)
        case HandBack():
            return _hand_back(claim, command)
        case StartRelease():
            return _start_release(claim, command)
        case NoteExpired():
            return _note_expired(claim, command)
        case TakeOver(holder=holder, at=at):
            if holder == claim.holder:
                return ()
            return _follow(claim, command, ClaimTakenOver(holder=holder, at=at))
        case StartCreation(at=at):
            return _follow(claim, command, CreationStarted(at=at))
        case Doubt(reason=reason, at=at):
            doubted = CreationDoubted(reason=reason, at=at)
            return _unless(claim, ClaimPhase.IN_DOUBT, command, doubted)
        case NoteLost(reason=reason, at=at):
            return _unless(
                claim, ClaimPhase.LOST, command, ClaimLost(reason=reason, at=at)
            )
        case NoteReleaseFailed(reason=reason, at=at):
            failed = ReleaseFailed(reason=reason, at=at)
            return _unless(claim, ClaimPhase.RELEASED, command, failed)
        case NoteReleased(at=at):
            return _unless(claim, ClaimPhase.RELEASED, command, ClaimReleased(at=at))
        case _:
            assert_never(command)


def evolve(claim: Claim, event: Event) -> Claim:
    """Return the claim after `event`."""
    phase = next_phase(TRANSITIONS, claim.phase, event)
    match event:
        case ClaimRequested():
            return evolved(claim, phase=phase, requested=event, holder=event.holder)
        case ClaimTakenOver(holder=holder):
            return evolved(claim, phase=phase, holder=holder)
        case ClaimHeld(sandbox=sandbox, expires_at=expires_at):
            return evolved(
                claim, phase=phase, sandbox=sandbox, expires_at=expires_at, reason=""
            )
        case ClaimLent(borrower=borrower, shared=shared):
            return evolved(
                claim,
                phase=phase,
                borrowers=claim.borrowers | {borrower},
                shared=shared,
            )
        case BorrowerLeft(borrower=borrower) | ClaimHandedBack(borrower=borrower):
            return evolved(claim, phase=phase, borrowers=claim.borrowers - {borrower})
        case CreationDoubted(reason=reason) | ClaimLost(reason=reason):
            return evolved(claim, phase=phase, reason=reason)
        case ReleaseStarted(reason=reason):
            return evolved(claim, phase=phase, reason=reason, borrowers=frozenset())
        case ReleaseFailed(reason=reason):
            return evolved(
                claim,
                phase=phase,
                reason=reason,
                release_attempts=claim.release_attempts + 1,
            )
        case CreationStarted() | ClaimExpired() | ClaimReleased():
            return evolved(claim, phase=phase)
        case _:
            assert_never(event)


def _request(claim: Claim, command: RequestClaim) -> tuple[Event, ...]:
    standing = claim.requested
    if standing is None:
        return (
            ClaimRequested(
                claim=command.claim,
                owner=command.owner,
                provider=command.provider,
                spec=command.spec,
                used_by=command.used_by,
                holder=command.holder,
                at=command.at,
            ),
        )
    for field in ("owner", "provider", "spec"):
        if getattr(standing, field) != getattr(command, field):
            raise ClaimConflict(claim=command.claim, field=field)
    return ()


def _hold(claim: Claim, command: Hold) -> tuple[Event, ...]:
    if claim.sandbox is not None and claim.sandbox != command.sandbox:
        raise SecondSandbox(standing=claim.sandbox, refused=command.sandbox)
    if claim.phase in (ClaimPhase.HELD, ClaimPhase.LENT):
        return ()
    held = ClaimHeld(
        sandbox=command.sandbox, expires_at=command.expires_at, at=command.at
    )
    events = _follow(claim, command, held)
    if command.expires_at is not None and command.expires_at <= command.at:
        raise BornExpired(
            sandbox=command.sandbox, at=command.at, expires_at=command.expires_at
        )
    return events


def _lend(claim: Claim, command: Lend) -> tuple[Event, ...]:
    lent = ClaimLent(borrower=command.borrower, shared=command.shared, at=command.at)
    events = _follow(claim, command, lent)
    if command.borrower in claim.borrowers:
        return ()
    if claim.borrowers and not (claim.shared and command.shared):
        raise AlreadyLent(
            standing=", ".join(sorted(claim.borrowers)), refused=command.borrower
        )
    return events


def _hand_back(claim: Claim, command: HandBack) -> tuple[Event, ...]:
    if claim.phase not in (ClaimPhase.HELD, ClaimPhase.LENT):
        return ()  # Lost, expired or given back meanwhile: nothing left to hand back.
    if command.borrower not in claim.borrowers:
        raise NotTheBorrower(borrower=command.borrower)
    kind = BorrowerLeft if len(claim.borrowers) > 1 else ClaimHandedBack
    return (kind(borrower=command.borrower, at=command.at),)


def _start_release(claim: Claim, command: StartRelease) -> tuple[Event, ...]:
    if claim.phase in (ClaimPhase.RELEASING, ClaimPhase.RELEASED):
        return ()
    started = ReleaseStarted(reason=command.reason, at=command.at)
    return _follow(claim, command, started)


def _note_expired(claim: Claim, command: NoteExpired) -> tuple[Event, ...]:
    if claim.phase is ClaimPhase.EXPIRED:
        return ()
    events = _follow(claim, command, ClaimExpired(at=command.at))
    if claim.expires_at is None or command.at < claim.expires_at:
        raise NotExpiredYet(expires_at=claim.expires_at, at=command.at)
    return events


def _unless(
    claim: Claim, already: ClaimPhase, command: Command, event: Event
) -> tuple[Event, ...]:
    return () if claim.phase is already else _follow(claim, command, event)


def _follow(claim: Claim, command: Command, event: Event) -> tuple[Event, ...]:
    if may_follow(TRANSITIONS, claim.phase, type(event)):
        return (event,)
    raise ClaimNotUsable(phase=claim.phase, command=type(command).__name__)


DECIDER: Final[Decider[Claim, Command, Event]] = Decider(
    initial=Claim(), decide=decide, evolve=evolve
)
