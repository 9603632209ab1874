# SPDX-License-Identifier: Apache-2.0
"""Claiming, releasing and reaping: nothing is made that is not given back."""

import anyio
import attrs
import pytest

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.domain.claims import (
    DECIDER,
    AlreadyLent,
    BornExpired,
    Borrower,
    Claim,
    ClaimConflict,
    ClaimId,
    ClaimNotUsable,
    ClaimPhase,
    Holder,
    Lend,
    NoteReleased,
    OwnerId,
    StartRelease,
)
from livery.domain.deciders import Instant
from livery.ports.provided.carry_out import carry_out, read_state
from livery.ports.provided.reap_claims import LOOKED_AT_ONCE, Finding
from livery.ports.required.journal import History, JournalUnusable, claim_stream
from livery.ports.required.sandbox import SandboxLost
from livery.ports.required.sandbox_provider import (
    CapacityExhausted,
    ClaimLabel,
    CreateFailed,
    DestroyFailed,
    ProviderUnreachable,
    SandboxSpec,
)

from .outside import OWNER, CutOffJournal, Killed, MortalJournal, Outside

pytestmark = pytest.mark.anyio

CLAIM = ClaimId("claim-1")
LABEL = ClaimLabel(claim=CLAIM, owner=OWNER)
SPEC = SandboxSpec(image="image")
BROKEN = CreateFailed("fake", CLAIM, "create", "the disk is full")


async def state_of(outside: Outside, claim: ClaimId = CLAIM) -> Claim:
    return (await read_state(outside.journal, claim_stream(claim), DECIDER)).state


async def test_the_intent_is_written_before_the_sandbox_is_made() -> None:
    outside = Outside()
    seen: list[int] = []

    def look() -> None:
        version = len(outside.journal._streams[("claims", CLAIM)])  # type: ignore[attr-defined]
        seen.append(version)

    outside.provider.on_create = look
    held = await outside.claim(CLAIM, SPEC, used_by="episode")

    assert seen == [2]  # Requested, and creation started.
    assert held.standing.state.phase is ClaimPhase.HELD
    assert (await state_of(outside)).sandbox == held.sandbox.sandbox_id


async def test_claiming_again_finds_the_same_sandbox() -> None:
    outside = Outside()
    first = await outside.claim(CLAIM, SPEC, used_by="episode")
    again = await outside.claim(CLAIM, SPEC, used_by="episode")

    assert again.sandbox.sandbox_id == first.sandbox.sandbox_id
    assert outside.provider.made == [CLAIM]


async def test_claiming_again_with_another_spec_is_a_conflict() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")

    with pytest.raises(ClaimConflict):
        await outside.claim(CLAIM, SandboxSpec(image="other"), used_by="episode")

    assert (await state_of(outside)).phase is ClaimPhase.HELD


async def test_a_claim_whose_sandbox_vanished_is_lost() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")
    outside.provider.live.clear()

    with pytest.raises(SandboxLost):
        await outside.claim(CLAIM, SPEC, used_by="episode")

    assert (await state_of(outside)).phase is ClaimPhase.LOST


async def test_a_late_sandbox_is_not_taken_for_the_one_that_ended() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")
    outside.provider.second.add(CLAIM)

    with pytest.raises(SandboxLost, match="another one stands under its name"):
        await outside.claim(CLAIM, SPEC, used_by="episode")
    lost = await state_of(outside)
    await outside.release(LABEL, reason="the episode is over")

    assert lost.phase is ClaimPhase.LOST
    assert lost.sandbox == CLAIM
    assert outside.provider.live == {}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.case("FC-001", "FC-022")
async def test_a_failed_creation_leaves_nothing(late: bool) -> None:
    outside = Outside()
    outside.provider.create_fault, outside.provider.late = BROKEN, late

    with pytest.raises(CreateFailed):
        await outside.claim(CLAIM, SPEC, used_by="episode")

    assert outside.provider.live == {}
    assert (await state_of(outside)).phase is ClaimPhase.RELEASED


@pytest.mark.case("FC-002", "FC-086")
async def test_a_cancelled_creation_leaves_nothing() -> None:
    outside = Outside()
    outside.provider.hangs = True

    with anyio.move_on_after(0.05) as scope:
        await outside.claim(CLAIM, SPEC, used_by="episode")

    assert scope.cancelled_caught
    assert outside.provider.made == [CLAIM]
    assert outside.provider.live == {}
    assert (await state_of(outside)).phase is ClaimPhase.RELEASED


@pytest.mark.parametrize("append", [1, 2])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.case("FC-002", "FC-086")
async def test_a_claim_that_is_cut_off_at_an_append_leaves_nothing(
    append: int, after: bool
) -> None:
    kept = MemoryJournal()
    with anyio.CancelScope() as scope:
        outside = Outside(journal=CutOffJournal(kept, scope, append, after))
        await outside.claim(CLAIM, SPEC, used_by="episode")

    assert scope.cancelled_caught
    assert outside.provider.live == {}
    assert not (await state_of(outside)).open


async def test_what_a_failed_creation_cannot_undo_stays_open_with_its_reason() -> None:
    outside = Outside()
    outside.provider.create_fault, outside.provider.late = BROKEN, True
    outside.provider.undestroyable.add(CLAIM)

    with pytest.raises(CreateFailed):
        await outside.claim(CLAIM, SPEC, used_by="episode")

    state = await state_of(outside)
    assert (state.phase, state.open) == (ClaimPhase.RELEASING, True)
    assert "it hangs" in state.reason


@pytest.mark.case("FC-001")
async def test_a_creation_that_a_killed_process_left_is_adopted() -> None:
    kept = MemoryJournal()
    outside = Outside(journal=MortalJournal(kept, appends_left=2, after=False))
    with pytest.raises(Killed):
        await outside.claim(CLAIM, SPEC, used_by="episode")
    assert set(outside.provider.live) == {CLAIM}

    after = Outside(journal=kept, provider=outside.provider)
    held = await after.claim(CLAIM, SPEC, used_by="episode")

    assert outside.provider.made == [CLAIM]
    assert held.standing.state.phase is ClaimPhase.HELD


@pytest.mark.case("FC-021")
async def test_nothing_is_made_once_the_release_has_begun() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")
    await outside.release(LABEL, reason="over")

    with pytest.raises(ClaimNotUsable):
        await outside.claim(CLAIM, SPEC, used_by="episode")

    assert outside.provider.made == [CLAIM]


@pytest.mark.case("FC-102")
async def test_a_sandbox_that_is_born_expired_is_given_back() -> None:
    outside = Outside()
    outside.provider.lifetime = -1.0

    with pytest.raises(BornExpired):
        await outside.claim(CLAIM, SPEC, used_by="episode")

    assert outside.provider.live == {}
    assert (await state_of(outside)).phase is ClaimPhase.RELEASED


@pytest.mark.case("FC-022")
async def test_of_twenty_claims_with_failures_exactly_the_successful_ones_live() -> (
    None
):
    outside = Outside()
    held: list[ClaimId] = []

    async def one(number: int) -> None:
        mine = Outside(journal=outside.journal, clock=outside.clock)
        mine.provider.live = outside.provider.live
        if number % 3 == 0:
            mine.provider.create_fault, mine.provider.late = BROKEN, number % 2 == 0
        claim = ClaimId(f"claim-{number}")
        try:
            await mine.claim(claim, SPEC, used_by="episode")
        except CreateFailed:
            return
        held.append(claim)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(one, number)

    assert set(outside.provider.live) == set(held)
    assert len(held) == 13


async def test_a_claim_is_lent_with_its_making() -> None:
    outside = Outside()
    held = await outside.claim(
        CLAIM, SPEC, used_by="episode", lend_to=Borrower("session")
    )

    assert held.standing.state.phase is ClaimPhase.LENT
    with pytest.raises(AlreadyLent):
        await carry_out(
            outside.journal,
            claim_stream(CLAIM),
            DECIDER,
            Lend(borrower=Borrower("another"), at=outside.clock.now()),
        )


async def test_releasing_twice_and_releasing_nothing_are_done() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")

    await outside.release(LABEL, reason="over")
    await outside.release(LABEL, reason="over")
    await outside.release(ClaimLabel(claim=ClaimId("never"), owner=OWNER), reason="-")

    assert outside.provider.ended == [CLAIM]
    assert (await state_of(outside)).phase is ClaimPhase.RELEASED


@pytest.mark.case("FC-092", "FC-088")
async def test_a_release_that_failed_can_be_asked_again() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")
    outside.provider.undestroyable.add(CLAIM)

    for _ in range(2):
        with pytest.raises(DestroyFailed):
            await outside.release(LABEL, reason="over")
    tried = await state_of(outside)
    outside.provider.undestroyable.clear()
    await outside.release(LABEL, reason="over")

    assert (tried.phase, tried.release_attempts) == (ClaimPhase.RELEASING, 2)
    assert (await state_of(outside)).phase is ClaimPhase.RELEASED


async def dead_claims(outside: Outside, count: int) -> None:
    """Leave claims behind as a process does that was killed."""
    outside.holders.own = Holder("dead")
    for number in range(count):
        await outside.claim(ClaimId(f"claim-{number}"), SPEC, used_by=f"e{number}")
    outside.holders.own = Holder("this-process")


@pytest.mark.case("FC-088", "FC-142", "FC-153")
async def test_the_reaper_ends_what_dead_processes_left_and_one_failure_keeps_none() -> (
    None
):
    outside = Outside()
    await dead_claims(outside, 5)
    outside.provider.undestroyable.add(ClaimId("claim-2"))

    report = await outside.reap()

    assert set(outside.provider.live) == {"claim-2"}
    found = {reaped.claim: reaped.finding for reaped in report.reaped}
    assert found.pop(ClaimId("claim-2")) is Finding.FAILED
    assert set(found.values()) == {Finding.RELEASED}
    assert (await state_of(outside, ClaimId("claim-2"))).open


@pytest.mark.case("FC-107", "FC-150")
async def test_the_reaper_leaves_alone_what_living_processes_and_others_have() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")
    outside.provider.live[ClaimId("foreign")] = OwnerId("another")

    report = await outside.reap()

    assert [reaped.finding for reaped in report.reaped] == [Finding.IN_USE]
    assert set(outside.provider.live) == {CLAIM, "foreign"}


async def test_a_release_that_failed_is_done_when_another_process_saw_it_gone() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")
    standing = await read_state(outside.journal, claim_stream(CLAIM), DECIDER)
    start = StartRelease(reason="over", at=Instant(2.0))
    gone = NoteReleased(at=Instant(3.0))
    started = await carry_out(
        outside.journal, claim_stream(CLAIM), DECIDER, start, known=standing
    )
    await carry_out(outside.journal, claim_stream(CLAIM), DECIDER, gone)
    outside.provider.undestroyable.add(CLAIM)

    await outside.release(LABEL, reason="the episode is over", known=started)

    assert (await state_of(outside)).phase is ClaimPhase.RELEASED


async def test_the_reaper_releases_what_a_living_process_could_not() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")
    outside.provider.undestroyable.add(CLAIM)
    with pytest.raises(DestroyFailed):
        await outside.release(LABEL, reason="the episode is over")
    outside.provider.undestroyable.clear()

    report = await outside.reap()

    assert [reaped.finding for reaped in report.reaped] == [Finding.RELEASED]
    assert outside.provider.live == {}
    assert not (await state_of(outside)).open


@pytest.mark.case("FC-007")
async def test_the_reaper_ends_what_came_late_or_has_no_claim() -> None:
    outside = Outside()
    await outside.claim(CLAIM, SPEC, used_by="episode")
    await outside.release(LABEL, reason="over")
    outside.provider.live[CLAIM] = OWNER  # It turns up after all.
    outside.provider.live[ClaimId("unknown")] = OWNER

    report = await outside.reap()

    assert outside.provider.live == {}
    assert {reaped.phase for reaped in report.reaped} == {"without a claim"}


async def test_a_dry_run_ends_nothing() -> None:
    outside = Outside()
    await dead_claims(outside, 2)

    report = await outside.reap(dry_run=True)

    assert [reaped.finding for reaped in report.reaped] == [Finding.TO_RELEASE] * 2
    assert len(outside.provider.live) == 2


async def test_what_the_reaper_cannot_ask_is_told() -> None:
    outside = Outside()
    await dead_claims(outside, 1)
    silent = ProviderUnreachable("fake", "nowhere", "nobody answers")
    outside.provider.list_fault = silent
    outside.provider.name = "renamed"

    report = await outside.reap()

    assert report.unlisted == (("renamed", str(silent)),)
    assert [reaped.finding for reaped in report.reaped] == [Finding.UNREACHABLE]


async def test_a_provider_that_nobody_configured_is_not_waited_for() -> None:
    outside = Outside()
    await dead_claims(outside, 1)
    outside.provider.list_hangs = True
    reap = attrs.evolve(outside.reap, hurried=frozenset({outside.provider.name}))

    report = await reap()

    assert report.unlisted == (("fake", "it did not answer within 3 s"),)
    assert [reaped.finding for reaped in report.reaped] == [Finding.RELEASED]
    assert outside.provider.live == {}


async def test_a_timeout_of_a_providers_own_is_not_taken_for_ours() -> None:
    outside = Outside()
    outside.provider.list_fault = TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await outside.reap()


async def test_capacity_faults_reach_the_caller_as_they_are() -> None:
    outside = Outside()
    outside.provider.create_fault = CapacityExhausted("fake", "pods: 0")

    with pytest.raises(CapacityExhausted, match="pods: 0"):
        await outside.claim(CLAIM, SPEC, used_by="episode")


@attrs.define
class WatchedJournal(MemoryJournal):
    """Counts who reads at a time, and can be away."""

    reading: int = 0
    most: int = 0
    reads: int = 0
    away: bool = False

    async def read(self, *asked: object, **more: object) -> History[object]:
        if self.away:
            raise JournalUnusable(where="here", reason="away", advice="Wait.")
        self.reads += 1
        self.reading += 1
        self.most = max(self.most, self.reading)
        await anyio.lowlevel.checkpoint()
        self.reading -= 1
        return await MemoryJournal.read(self, *asked, **more)  # type: ignore[arg-type]


@attrs.define
class CountedHolders(MemoryHolders):
    """Counts how often it was asked."""

    asked: int = 0

    async def alive(self, holder: Holder) -> bool:
        self.asked += 1
        return await MemoryHolders.alive(self, holder)


async def test_a_round_reads_each_claim_once_many_at_a_time() -> None:
    journal, holders = WatchedJournal(), CountedHolders(own=Holder("one"))
    outside = Outside(journal=journal, holders=holders)
    count = 4 * LOOKED_AT_ONCE
    for number in range(count):
        await outside.claim(ClaimId(f"claim-{number}"), SPEC, used_by="episode")
    journal.reads = 0

    report = await outside.reap()

    assert {reaped.finding for reaped in report.reaped} == {Finding.IN_USE}
    assert len(report.reaped) == journal.reads == count
    assert journal.most == LOOKED_AT_ONCE
    assert holders.asked <= LOOKED_AT_ONCE


async def test_a_round_whose_journal_is_away_says_so_and_no_more() -> None:
    journal = WatchedJournal()
    outside = Outside(journal=journal)
    for number in range(3):
        await outside.claim(ClaimId(f"claim-{number}"), SPEC, used_by="episode")
    journal.away = True

    with pytest.raises(JournalUnusable):
        await outside.reap()
