# SPDX-License-Identifier: Apache-2.0
"""Claims: one sandbox, one owner, borrowers who cannot end it, nothing forgotten."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from livery.domain.claims import (
    DECIDER,
    AlreadyLent,
    BornExpired,
    Borrower,
    BorrowerLeft,
    Claim,
    ClaimConflict,
    ClaimExpired,
    ClaimHandedBack,
    ClaimHeld,
    ClaimId,
    ClaimLent,
    ClaimLost,
    ClaimNotUsable,
    ClaimPhase,
    ClaimReleased,
    ClaimRequested,
    ClaimTakenOver,
    CreationDoubted,
    CreationStarted,
    Doubt,
    HandBack,
    Hold,
    Holder,
    Lend,
    NoteExpired,
    NoteLost,
    NoteReleased,
    NoteReleaseFailed,
    NotExpiredYet,
    NotTheBorrower,
    OwnerId,
    ReleaseFailed,
    ReleaseStarted,
    RequestClaim,
    SecondSandbox,
    SpecDigest,
    StartCreation,
    StartRelease,
    TakeOver,
    decide,
)
from livery.domain.deciders import Instant

from .deciding import START, DeciderMachine, after, outcome

NOW = Instant(START)
SOON = Instant(START + 60)
REQUEST = RequestClaim(
    claim=ClaimId("claim-1"),
    owner=OwnerId("owner-1"),
    provider="docker",
    spec=SpecDigest("spec-1"),
    used_by="episode r1",
    holder=Holder("process-1"),
    at=NOW,
)
CREATE = StartCreation(at=NOW)
HOLD = Hold(sandbox="box-1", expires_at=SOON, at=NOW)
ANNA, BERT = Borrower("anna"), Borrower("bert")


def creating() -> Claim:
    return after(DECIDER, REQUEST, CREATE)


def held() -> Claim:
    return after(DECIDER, REQUEST, CREATE, HOLD)


def lent(*, shared: bool = False) -> Claim:
    return after(DECIDER, Lend(borrower=ANNA, shared=shared, at=NOW), state=held())


def releasing() -> Claim:
    return after(DECIDER, StartRelease(reason="done", at=NOW), state=held())


def test_a_claim_goes_from_request_to_release() -> None:
    commands = (
        REQUEST,
        CREATE,
        HOLD,
        Lend(borrower=ANNA, at=NOW),
        HandBack(borrower=ANNA, at=NOW),
        StartRelease(reason="done", at=NOW),
        NoteReleased(at=NOW),
    )

    events, claim = DECIDER.decide_all(DECIDER.initial, commands)

    assert [type(event) for event in events] == [
        ClaimRequested,
        CreationStarted,
        ClaimHeld,
        ClaimLent,
        ClaimHandedBack,
        ReleaseStarted,
        ClaimReleased,
    ]
    assert claim.phase is ClaimPhase.RELEASED
    assert not claim.open


@pytest.mark.case("FC-001")
def test_a_creation_whose_reply_was_lost_is_found_again_and_adopted() -> None:
    doubted = after(DECIDER, Doubt(reason="cut off", at=NOW), state=creating())

    adopted = after(DECIDER, REQUEST, HOLD, state=doubted)

    assert doubted.phase is ClaimPhase.IN_DOUBT
    assert doubted.reason == "cut off"
    assert adopted.sandbox == "box-1"
    assert decide(adopted, HOLD) == ()


@pytest.mark.case("FC-001")
@pytest.mark.parametrize("field", ["owner", "provider", "spec"])
def test_the_same_claim_for_something_else_is_a_conflict(field: str) -> None:
    other = attrs.evolve(REQUEST, **{field: "another"})

    with pytest.raises(ClaimConflict) as caught:
        decide(held(), other)

    assert caught.value.field == field
    assert decide(held(), REQUEST) == ()


@pytest.mark.case("FC-001")
def test_a_second_sandbox_of_a_claim_is_refused() -> None:
    with pytest.raises(SecondSandbox):
        decide(held(), Hold(sandbox="box-2", expires_at=None, at=NOW))


@pytest.mark.case("FC-002")
def test_a_creation_that_was_cancelled_on_the_wire_stays_open_until_seen_gone() -> None:
    cancelled = after(
        DECIDER, StartRelease(reason="cancelled", at=NOW), state=creating()
    )

    released = after(DECIDER, NoteReleased(at=SOON), state=cancelled)

    assert cancelled.open
    assert cancelled.reason == "cancelled"
    with pytest.raises(ClaimNotUsable):
        decide(cancelled, HOLD)
    assert not released.open


@pytest.mark.case("FC-022")
@given(answers=st.lists(st.sampled_from(["made", "failed", "lost"]), max_size=20))
def test_of_many_claims_those_are_open_whose_sandbox_may_be_there(
    answers: list[str],
) -> None:
    follow_up = {
        "made": (HOLD,),
        "failed": (StartRelease(reason="create failed", at=NOW), NoteReleased(at=NOW)),
        "lost": (Doubt(reason="cut off", at=NOW),),
    }

    standing = [after(DECIDER, *follow_up[a], state=creating()) for a in answers]

    assert [claim.open for claim in standing] == [a != "failed" for a in answers]
    assert [claim.sandbox is not None for claim in standing] == [
        answer == "made" for answer in answers
    ]


@pytest.mark.case("FC-096")
@pytest.mark.parametrize("state", [held(), lent(), lent(shared=True)])
@pytest.mark.parametrize("command", [Lend, HandBack])
def test_what_a_borrower_can_ask_never_ends_the_sandbox(
    state: Claim, command: type[Lend] | type[HandBack]
) -> None:
    told = outcome(DECIDER, state, command(borrower=ANNA, at=NOW))

    events = told if isinstance(told, tuple) else ()
    assert {type(event) for event in events} <= {
        ClaimLent,
        BorrowerLeft,
        ClaimHandedBack,
    }
    assert DECIDER.replay(events, state).sandbox == "box-1"


@pytest.mark.case("FC-096")
@pytest.mark.parametrize("how", ["lost", "expired", "released"])
def test_a_borrower_hands_back_what_is_gone_meanwhile_without_a_fuss(how: str) -> None:
    end = {
        "lost": NoteLost(reason="killed", at=NOW),
        "expired": NoteExpired(at=SOON),
        "released": StartRelease(reason="owner", at=NOW),
    }[how]
    gone = after(DECIDER, end, state=lent())

    told = decide(gone, HandBack(borrower=ANNA, at=SOON))

    assert told == ()


@pytest.mark.parametrize("borrower", [ANNA, BERT])
@pytest.mark.parametrize(
    "end", [NoteLost(reason="killed", at=NOW), NoteExpired(at=SOON)]
)
def test_a_sandbox_that_is_gone_is_lent_to_nobody_again(
    borrower: Borrower, end: NoteLost | NoteExpired
) -> None:
    gone = after(DECIDER, end, state=lent())

    with pytest.raises(ClaimNotUsable):
        decide(gone, Lend(borrower=borrower, at=SOON))


@pytest.mark.case("FC-102")
def test_lifetime_counts_from_ready_and_nothing_is_ready_and_expired_at_once() -> None:
    late = Instant(START + 500)
    born_expired = Hold(sandbox="box-1", expires_at=late, at=late)

    with pytest.raises(BornExpired):
        decide(creating(), born_expired)

    ready = after(DECIDER, attrs.evolve(HOLD, expires_at=late), state=creating())
    assert ready.expires_at == late


@pytest.mark.case("FC-106")
def test_a_sandbox_is_not_lent_twice() -> None:
    with pytest.raises(AlreadyLent) as caught:
        decide(lent(), Lend(borrower=BERT, at=NOW))

    assert caught.value.standing == "anna"


@pytest.mark.case("FC-106")
@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True)])
def test_sharing_has_to_be_asked_for_on_both_sides(first: bool, second: bool) -> None:
    with pytest.raises(AlreadyLent):
        decide(lent(shared=first), Lend(borrower=BERT, shared=second, at=NOW))


@pytest.mark.case("FC-106")
def test_a_shared_sandbox_is_back_when_the_last_borrower_left() -> None:
    both = after(
        DECIDER, Lend(borrower=BERT, shared=True, at=NOW), state=lent(shared=True)
    )

    one = after(DECIDER, HandBack(borrower=ANNA, at=NOW), state=both)
    none = after(DECIDER, HandBack(borrower=BERT, at=NOW), state=one)

    assert both.borrowers == {ANNA, BERT}
    assert (one.phase, none.phase) == (ClaimPhase.LENT, ClaimPhase.HELD)


def test_only_a_borrower_hands_back() -> None:
    with pytest.raises(NotTheBorrower):
        decide(lent(), HandBack(borrower=BERT, at=NOW))


@pytest.mark.case("FC-107")
@pytest.mark.case("FC-153")
def test_a_sandbox_in_use_ends_at_its_absolute_limit_and_not_before() -> None:
    with pytest.raises(NotExpiredYet):
        decide(lent(), NoteExpired(at=Instant(SOON - 0.001)))

    assert after(DECIDER, NoteExpired(at=SOON), state=lent()).phase is (
        ClaimPhase.EXPIRED
    )


@pytest.mark.case("FC-107")
def test_a_sandbox_without_a_limit_does_not_expire() -> None:
    unlimited = after(DECIDER, attrs.evolve(HOLD, expires_at=None), state=creating())

    with pytest.raises(NotExpiredYet):
        decide(unlimited, NoteExpired(at=Instant(START * 2)))


@pytest.mark.case("FC-155")
def test_expiry_is_decided_on_what_every_worker_reads() -> None:
    # A worker that read the claim earlier finds it expired; its fact is refused by
    # the journal, since another worker has begun the release, and it decides anew.
    stale, fresh = (
        lent(),
        after(DECIDER, StartRelease(reason="done", at=NOW), state=lent()),
    )
    expire = NoteExpired(at=SOON)

    assert [type(event) for event in decide(stale, expire)] == [ClaimExpired]
    with pytest.raises(ClaimNotUsable):
        decide(fresh, expire)


def test_a_release_that_fails_stays_open_with_its_reason_and_is_counted() -> None:
    failed = NoteReleaseFailed(reason="daemon gone", at=NOW)

    claim = after(DECIDER, failed, failed, state=releasing())

    assert claim.open
    assert (claim.reason, claim.release_attempts) == ("daemon gone", 2)


@pytest.mark.parametrize(
    "state",
    [after(DECIDER, REQUEST), creating(), held(), lent()],
    ids=lambda s: s.phase,
)
def test_nothing_is_released_whose_release_has_not_begun(state: Claim) -> None:
    with pytest.raises(ClaimNotUsable):
        decide(state, NoteReleased(at=NOW))


def test_another_process_goes_on_with_an_open_claim_only() -> None:
    take = TakeOver(holder=Holder("process-2"), at=NOW)
    released = after(DECIDER, NoteReleased(at=NOW), state=releasing())

    assert after(DECIDER, take, state=held()).holder == "process-2"
    with pytest.raises(ClaimNotUsable):
        decide(released, take)


class Claims(DeciderMachine):
    """A claim, its borrowers, and a provider that is late, forgetful and double.

    Rules 2, 3 and 4 of the design. The provider names sandboxes by the claim, so a
    second request finds the first one's sandbox; it may come when all is over.
    """

    decider = DECIDER
    happens_again = (NoteReleaseFailed,)
    ends_the_story = (StartRelease, NoteExpired, TakeOver, NoteReleaseFailed)

    def begin(self) -> None:
        super().begin()
        self.calls = 0
        """Requests to create that the provider may still act upon."""
        self.replies: list[str] = []
        self.live: str | None = None
        self.made: list[str] = []
        self.seen_gone: set[str] = set()
        self.late: set[str] = set()
        """Made when the claim was released already."""

    def way(self) -> list[Callable[[], object]]:
        return [
            lambda: self.tell(attrs.evolve(REQUEST, at=self.now)),
            lambda: self.tell(StartCreation(at=self.now)),
            self.whoever_may_make_it_asks_the_provider,
            lambda: self.the_provider_acts(double=False),
            self.a_reply_arrives,
            lambda: self.tell(Lend(borrower=ANNA, shared=True, at=self.now)),
            lambda: self.tell(HandBack(borrower=ANNA, at=self.now)),
        ]

    def asked(self) -> list[Any]:
        at = self.now
        commands: list[Any] = [
            attrs.evolve(REQUEST, at=at),
            attrs.evolve(REQUEST, at=at, owner=OwnerId("owner-2")),
            attrs.evolve(REQUEST, at=at, spec=SpecDigest("spec-2")),
            StartCreation(at=at),
            Doubt(reason="no answer", at=at),
            NoteExpired(at=at),
            StartRelease(reason="done", at=at),
            NoteReleaseFailed(reason="daemon gone", at=at),
            *(TakeOver(holder=Holder(f"process-{n}"), at=at) for n in (1, 2)),
        ]
        for who in (ANNA, BERT, Borrower("carl")):
            commands.append(Lend(borrower=who, at=at))
            commands.append(Lend(borrower=who, shared=True, at=at))
            commands.append(HandBack(borrower=who, at=at))
        if self.live:
            for expires_at in (None, Instant(at + 60), at):
                commands.append(Hold(sandbox=self.live, expires_at=expires_at, at=at))
        else:
            commands.append(NoteLost(reason="gone", at=at))
            commands.append(NoteReleased(at=at))
        return commands

    def saw(self, before: Claim, event: Any) -> None:
        at_an_end = before.phase in (ClaimPhase.RELEASING, ClaimPhase.RELEASED)
        match event:
            case CreationStarted():
                assert not at_an_end, "nothing is made once the release has begun"
                assert before.sandbox is None
            case ClaimHeld(sandbox=sandbox, expires_at=expires_at, at=at):
                assert before.sandbox in (None, sandbox), "one sandbox, ever"
                assert not at_an_end
                assert expires_at is None or expires_at > at
            case ClaimLent(borrower=who, shared=shared):
                assert before.phase in (ClaimPhase.HELD, ClaimPhase.LENT)
                assert not before.borrowers or (before.shared and shared)
                assert who not in before.borrowers
            case BorrowerLeft(borrower=who) | ClaimHandedBack(borrower=who):
                assert who in before.borrowers
            case ClaimExpired(at=at):
                assert before.expires_at is not None
                assert at >= before.expires_at
            case ClaimReleased():
                assert self.live is None, "released is seen gone"
                assert before.phase is ClaimPhase.RELEASING, "and was to be ended"
            case ReleaseStarted() | ReleaseFailed() | CreationDoubted():
                assert event.reason
            case ClaimRequested():
                assert before.phase is ClaimPhase.ABSENT
            case ClaimLost() | ClaimTakenOver():
                assert before.open

    @rule()
    @precondition(lambda self: self.calls < 3)
    def whoever_may_make_it_asks_the_provider(self) -> None:
        if self.state.phase in (ClaimPhase.CREATING, ClaimPhase.IN_DOUBT):
            self.calls += 1

    @rule(double=st.booleans())
    @precondition(lambda self: self.calls > 0)
    def the_provider_acts(self, double: bool) -> None:
        self.calls -= 0 if double else 1
        if self.live is None:
            self.live = f"box-{len(self.made)}"
            self.made.append(self.live)
            if self.state.phase is ClaimPhase.RELEASED:
                self.late.add(self.live)
        self.replies.append(self.live)

    @rule()
    @precondition(lambda self: self.replies)
    def a_reply_arrives(self) -> None:
        sandbox = self.replies.pop(0)
        hold = Hold(sandbox=sandbox, expires_at=Instant(self.now + 60), at=self.now)
        told = self.tell(hold) if sandbox == self.live else ()
        if not isinstance(told, tuple):
            # Too late, or not the first: who made it ends it.
            self.the_provider_ends_it()

    @rule()
    @precondition(lambda self: self.replies)
    def a_reply_is_lost(self) -> None:
        self.replies.pop(0)
        self.tell(Doubt(reason="no answer", at=self.now))

    @rule()
    @precondition(lambda self: self.calls > 0)
    def a_request_is_lost(self) -> None:
        self.calls -= 1

    @rule()
    @precondition(lambda self: self.live)
    def the_sandbox_dies(self) -> None:
        self.the_provider_ends_it()

    @rule(works=st.booleans())
    @precondition(lambda self: self.state.phase is ClaimPhase.RELEASING)
    def the_release_goes_on(self, works: bool) -> None:
        if not works:
            self.tell(NoteReleaseFailed(reason="daemon gone", at=self.now))
            return
        self.the_provider_ends_it()
        self.tell(NoteReleased(at=self.now))

    @rule()
    def the_reaper_looks(self) -> None:
        """It ends what is listed without an open claim, and leaves the rest."""
        if self.live and not self.state.open:
            self.the_provider_ends_it()

    def the_provider_ends_it(self) -> None:
        if self.live:
            self.seen_gone.add(self.live)
        self.live = None

    @invariant()
    def every_sandbox_is_gone_or_its_claim_is_open_or_it_came_late(self) -> None:
        for sandbox in self.made:
            gone = sandbox in self.seen_gone
            assert gone or self.state.open or sandbox in self.late

    @invariant()
    def who_borrows_is_known_and_alone_or_sharing(self) -> None:
        claim = self.state
        if claim.phase in (ClaimPhase.HELD, ClaimPhase.LENT):
            assert bool(claim.borrowers) is (claim.phase is ClaimPhase.LENT)
        assert len(claim.borrowers) <= 1 or claim.shared
        if claim.phase in (ClaimPhase.RELEASING, ClaimPhase.RELEASED):
            assert not claim.borrowers

    @invariant()
    def an_open_claim_tells_who_owns_and_holds_it(self) -> None:
        if self.state.open:
            assert self.state.requested == self.journal[0]
            took = [event.holder for event in self.journal if hasattr(event, "holder")]
            assert self.state.holder == took[-1]

    @invariant()
    def failed_releases_are_counted_and_the_last_reason_is_kept(self) -> None:
        failed = [event for event in self.journal if isinstance(event, ReleaseFailed)]
        assert self.state.release_attempts == len(failed)
        if failed:
            assert self.state.reason == failed[-1].reason

    def end(self) -> None:
        """In the end, whatever happened, nothing is left."""
        while self.calls:
            self.the_provider_acts(double=False)
        if self.state.open:
            self.tell(StartRelease(reason="reaped", at=self.now))
            assert self.state.phase is ClaimPhase.RELEASING
            self.the_release_goes_on(works=True)
        self.the_reaper_looks()
        assert not self.state.open
        assert self.live is None
        assert set(self.made) == self.seen_gone


TestClaims = Claims.TestCase
