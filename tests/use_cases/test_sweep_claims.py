# SPDX-License-Identifier: Apache-2.0
"""The reaper beside a server: it sweeps within bounds and takes from nobody."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from livery.domain.claims import DECIDER, Claim, ClaimId, Holder, OwnerId, TakeOver
from livery.ports.provided.carry_out import carry_out, read_state
from livery.ports.provided.reap_claims import (
    EXPIRED_SECONDS,
    Cause,
    Finding,
    ReapClaims,
    Reaped,
    ReapReport,
)
from livery.ports.provided.sweep_claims import SweepClaims, SweepEnd
from livery.ports.required.journal import JournalUnusable, claim_stream
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    ProviderUnreachable,
    SandboxSpec,
)

from .outside import OWNER, BreakableProvider, HandClock, Outside

pytestmark = pytest.mark.anyio

GRACE = 900.0
SPEC = SandboxSpec(image="image")
BOUND_SECONDS = 60.0
HUNG_SECONDS = 0.05
"""How long a test waits for what never comes."""


@attrs.define
class Sweeper:
    """A reaper beside a server, and what it told."""

    outside: Outside
    reap: ReapClaims
    told: list[tuple[SweepEnd, ReapReport | None]] = attrs.field(
        factory=list[tuple[SweepEnd, ReapReport | None]]
    )
    sweeps: SweepClaims = attrs.field(init=False)
    opening: Exception | None = None

    def __attrs_post_init__(self) -> None:
        self.sweeps = SweepClaims(
            opened=self._opened,
            clock=self.outside.clock,
            interval_seconds=120.0,
            sweep_seconds=BOUND_SECONDS,
            grace_seconds=GRACE,
            told=lambda end, report: self.told.append((end, report)),
        )

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[ReapClaims]:
        if self.opening is not None:
            raise self.opening
        yield self.reap

    async def sweep(self) -> dict[ClaimId, Reaped]:
        await self.sweeps.sweep()
        _, report = self.told[-1]
        return {} if report is None else {one.claim: one for one in report.reaped}


def sweeping(outside: Outside) -> Sweeper:
    return Sweeper(outside, outside.reap)


async def claimed_by(outside: Outside, holder: str, *claims: str) -> None:
    own = outside.holders.own
    outside.holders.own = Holder(holder)
    for claim in claims:
        await outside.claim(ClaimId(claim), SPEC, used_by="episode")
    outside.holders.own = own


async def state_of(outside: Outside, claim: str) -> Claim:
    stream = claim_stream(ClaimId(claim))
    return (await read_state(outside.journal, stream, DECIDER)).state


async def test_what_a_dead_process_held_is_kept_for_a_grace_and_ended_after() -> None:
    outside = Outside()
    sweeper = sweeping(outside)
    await claimed_by(outside, "dead", "claim-1")

    first = await sweeper.sweep()
    outside.clock.time += GRACE - 1
    second = await sweeper.sweep()
    outside.clock.time += 1
    third = await sweeper.sweep()
    fourth = await sweeper.sweep()

    claim = ClaimId("claim-1")
    assert first[claim].cause is Cause.UNRELEASED
    assert first[claim].finding is second[claim].finding is Finding.TO_RELEASE
    assert third[claim].finding is Finding.RELEASED
    assert fourth == {}
    assert not (await state_of(outside, "claim-1")).open


async def test_the_grace_begins_anew_for_what_somebody_has_gone_on_with() -> None:
    outside = Outside()
    sweeper = sweeping(outside)
    await claimed_by(outside, "dead", "claim-1")
    await sweeper.sweep()
    outside.clock.time += GRACE
    outside.holders.others.add(Holder("dead"))  # It lives: nobody said otherwise.
    in_use = await sweeper.sweep()
    outside.holders.others.clear()

    found = await sweeper.sweep()

    assert in_use[ClaimId("claim-1")].finding is Finding.IN_USE
    assert in_use[ClaimId("claim-1")].cause is None
    assert found[ClaimId("claim-1")].finding is Finding.TO_RELEASE


@pytest.mark.case("FC-007")
async def test_a_sandbox_that_came_after_its_release_is_ended_at_once() -> None:
    outside = Outside()
    sweeper = sweeping(outside)
    await claimed_by(outside, "this-process", "claim-1")
    label = ClaimLabel(claim=ClaimId("claim-1"), owner=OWNER)
    await outside.release(label, reason="its making took too long")
    outside.provider.live[label.claim] = OWNER  # A minute later it is there after all.

    found = await sweeper.sweep()

    assert found[label.claim].cause is Cause.LATE
    assert outside.provider.live == {}


async def test_what_is_in_no_journal_is_told_once_and_ended_by_a_person_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outside = Outside()
    sweeper = sweeping(outside)
    outside.provider.live[ClaimId("unknown")] = OWNER

    with caplog.at_level(logging.WARNING):
        await sweeper.sweep()
        outside.clock.time += 10 * GRACE
        found = await sweeper.sweep()

    assert found[ClaimId("unknown")].cause is Cause.UNKNOWN
    assert found[ClaimId("unknown")].finding is Finding.TO_RELEASE
    assert set(outside.provider.live) == {"unknown"}
    assert len([r for r in caplog.records if "claim unknown" in r.message]) == 1
    await outside.reap()
    assert outside.provider.live == {}


@pytest.mark.case("FC-088")
async def test_of_five_the_one_that_cannot_be_ended_is_tracked_and_told() -> None:
    outside = Outside()
    sweeper = sweeping(outside)
    names = [f"claim-{number}" for number in range(5)]
    await claimed_by(outside, "dead", *names)
    outside.provider.undestroyable.add(ClaimId("claim-2"))
    await sweeper.sweep()
    outside.clock.time += GRACE

    found = await sweeper.sweep()

    assert set(outside.provider.live) == {"claim-2"}
    assert found[ClaimId("claim-2")].finding is Finding.FAILED
    assert "it hangs" in found[ClaimId("claim-2")].reason
    state = await state_of(outside, "claim-2")
    assert state.open
    assert "it hangs" in state.reason


@pytest.mark.case("FC-092")
async def test_what_a_provider_refuses_to_end_is_tried_again_at_each_sweep() -> None:
    outside = Outside()
    sweeper = sweeping(outside)
    claim = ClaimId("claim-1")
    await claimed_by(outside, "dead", "claim-1")
    outside.provider.undestroyable.add(claim)
    await sweeper.sweep()
    outside.clock.time += GRACE
    for _ in range(5):  # Ten minutes.
        assert (await sweeper.sweep())[claim].finding is Finding.FAILED
        outside.clock.time += 120.0
    tried = (await state_of(outside, "claim-1")).release_attempts
    outside.provider.undestroyable.clear()

    found = await sweeper.sweep()

    assert tried == 5
    assert found[claim].finding is Finding.RELEASED
    assert outside.provider.live == {}


@pytest.mark.case("FC-092")
async def test_a_release_that_hangs_is_bounded_and_stays_open() -> None:
    outside = Outside()
    await claimed_by(outside, "dead", "claim-1")
    outside.provider.undying.add(ClaimId("claim-1"))
    reap = attrs.evolve(outside.reap, release_seconds=HUNG_SECONDS)

    report = await reap()

    assert [one.finding for one in report.reaped] == [Finding.FAILED]
    assert "took longer than 0.05 s" in report.reaped[0].reason
    assert (await state_of(outside, "claim-1")).open


@pytest.mark.case("FC-150")
async def test_of_two_owners_on_one_provider_each_sweeps_its_own() -> None:
    outside = Outside()
    sweeper = sweeping(outside)
    other = Outside(provider=outside.provider, clock=outside.clock)
    theirs = ClaimId("theirs")
    other_claim = attrs.evolve(other.claim, owner=OwnerId("owner-2"))
    other.holders.own = Holder("dead")
    await other_claim(theirs, SPEC, used_by="episode")
    await claimed_by(outside, "dead", "ours")
    await sweeper.sweep()
    outside.clock.time += GRACE

    found = await sweeper.sweep()

    assert set(found) == {"ours"}
    assert set(outside.provider.live) == {theirs}


@pytest.mark.case("FC-153")
async def test_what_a_living_process_never_ends_goes_when_its_own_time_is_over() -> (
    None
):
    outside = Outside()
    sweeper = sweeping(outside)
    claim = ClaimId("hung")
    await claimed_by(outside, "this-process", "hung", "busy")
    ends = outside.clock.time + 100.0
    outside.provider.ends_at = {claim: ends, ClaimId("busy"): ends + 10 * GRACE}
    outside.clock.time = ends + EXPIRED_SECONDS
    before = await sweeper.sweep()
    outside.clock.time += 1
    seen = await sweeper.sweep()
    outside.clock.time += GRACE

    after = await sweeper.sweep()

    assert before[claim].finding is Finding.IN_USE
    assert (seen[claim].finding, seen[claim].cause) == (
        Finding.TO_RELEASE,
        Cause.EXPIRED,
    )
    assert after[claim].finding is Finding.RELEASED
    assert set(outside.provider.live) == {"busy"}


async def test_a_claim_that_another_process_goes_on_with_meanwhile_is_its_own() -> None:
    outside = Outside()
    await claimed_by(outside, "dead", "claim-1")
    claim = ClaimId("claim-1")

    @attrs.define
    class Overtaking:
        """Another process takes the claim over when its holder was seen dead."""

        own: Holder = outside.holders.own

        async def alive(self, holder: Holder) -> bool:
            take = TakeOver(holder=Holder("another"), at=outside.clock.now())
            await carry_out(outside.journal, claim_stream(claim), DECIDER, take)
            return False

    report = await attrs.evolve(outside.reap, holders=Overtaking())()

    assert [one.finding for one in report.reaped] == [Finding.IN_USE]
    assert set(outside.provider.live) == {claim}
    assert (await state_of(outside, "claim-1")).holder == "another"


async def test_two_reapers_at_once_end_each_sandbox_and_hurt_nobody() -> None:
    outside = Outside()
    names = [f"claim-{number}" for number in range(20)]
    await claimed_by(outside, "dead", *names)
    reports: list[ReapReport] = []

    async def reap() -> None:
        reports.append(await outside.reap())

    async with anyio.create_task_group() as group:
        group.start_soon(reap)
        group.start_soon(reap)
    last = await outside.reap()

    assert outside.provider.live == {}
    assert last.reaped == ()
    assert len(outside.provider.ended) == len(names)
    found = {one.finding for report in reports for one in report.reaped}
    assert found <= {Finding.RELEASED, Finding.IN_USE}


@pytest.mark.parametrize(
    "fault",
    [
        JournalUnusable("here", "the disk is full", "Make room."),
        ZeroDivisionError(),
    ],
)
async def test_a_sweep_that_fails_is_told_and_the_next_one_sweeps(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    outside = Outside()
    sweeper = sweeping(outside)
    await claimed_by(outside, "dead", "claim-1")
    await sweeper.sweep()
    outside.clock.time += GRACE

    sweeper.opening = fault
    failed = await sweeper.sweeps.sweep()
    sweeper.opening = None
    done = await sweeper.sweeps.sweep()

    assert [failed, done] == [SweepEnd.FAILED, SweepEnd.DONE]
    assert [end for end, _ in sweeper.told] == [SweepEnd.DONE, failed, done]
    assert "sweep of the claims" in caplog.text
    assert outside.provider.live == {}


async def test_a_provider_that_is_away_or_hangs_keeps_no_other() -> None:
    outside = Outside()
    away = BreakableProvider("away", clock=outside.clock)
    away.list_fault = ProviderUnreachable("away", "there", "nobody answers")
    hangs = BreakableProvider("hangs", list_hangs=True)
    providers = {"away": away, "hangs": hangs, "fake": outside.provider}
    await claimed_by(outside, "dead", "claim-1")
    reap = attrs.evolve(outside.reap, providers=providers, list_seconds=HUNG_SECONDS)

    report = await reap()

    assert [name for name, _ in report.unlisted] == ["away", "hangs"]
    assert "within 0.05 s" in dict(report.unlisted)["hangs"]
    assert outside.provider.live == {}


async def test_a_sweep_that_takes_too_long_is_cut_off_and_told() -> None:
    sweeper = sweeping(Outside())
    sweeper.sweeps.sweep_seconds = HUNG_SECONDS

    @asynccontextmanager
    async def never() -> AsyncGenerator[ReapClaims]:
        await anyio.sleep_forever()
        yield sweeper.reap

    sweeper.sweeps.opened = never

    assert await sweeper.sweeps.sweep() is SweepEnd.CUT_OFF
    assert sweeper.told == [(SweepEnd.CUT_OFF, None)]


async def test_it_sweeps_at_its_interval_until_it_is_cancelled() -> None:
    @attrs.define
    class Counted(HandClock):
        slept: list[float] = attrs.field(factory=list[float])

        async def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)
            await HandClock.sleep(self, seconds)

    clock = Counted()
    outside = Outside(clock=clock)
    sweeper = sweeping(outside)

    async with anyio.create_task_group() as group:
        group.start_soon(sweeper.sweeps)
        with anyio.fail_after(BOUND_SECONDS):
            while len(sweeper.told) < 3:
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    assert clock.slept[:3] == [120.0] * 3
