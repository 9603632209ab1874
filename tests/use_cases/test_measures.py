# SPDX-License-Identifier: Apache-2.0
"""What is counted on the way, and that nothing else changes by it."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from livery.domain.admissions import Ticket
from livery.domain.claims import (
    ClaimHeld,
    ClaimId,
    ClaimPhase,
    ClaimReleased,
    Holder,
    ReleaseFailed,
)
from livery.ports.provided.admit_episodes import AdmitEpisodes
from livery.ports.provided.admit_over_workers import AdmitOverWorkers
from livery.ports.provided.admit_sessions import AdmitSessions
from livery.ports.provided.measured import (
    MeasuredJournal,
    MeasuredProvider,
    MeasuredSandbox,
    MeasuredStreamingSandbox,
)
from livery.ports.provided.measures import Measures, Times
from livery.ports.provided.reap_claims import Finding
from livery.ports.provided.shared_places import SharedPlaces
from livery.ports.provided.sweep_claims import SweepEnd
from livery.ports.provided.take_census import OPEN, Census, TakeCensus
from livery.ports.required.byte_stream import ByteStream
from livery.ports.required.sandbox import FileMissing, SandboxId, shell
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    CreateFailed,
    DestroyFailed,
    SandboxSpec,
)
from livery.ports.required.sandbox_streams import StreamingSandbox

from ..benchmarks.nothing_provider import NothingSandbox
from .outside import OWNER, BreakableProvider, HandClock, Outside

pytestmark = pytest.mark.anyio

CLAIM = ClaimId("claim-1")
LABEL = ClaimLabel(claim=CLAIM, owner=OWNER)
SPEC = SandboxSpec(image="image")
WAIT_SECONDS = 60.0


@attrs.define
class FrozenProvider(BreakableProvider):
    """Freezes, and notes it."""

    noted: list[str] = attrs.field(factory=list[str])

    async def freeze(self, label: ClaimLabel) -> None:
        self.noted.append(f"freeze {label.claim}")

    async def thaw(self, label: ClaimLabel) -> None:
        self.noted.append(f"thaw {label.claim}")

    async def aclose(self) -> None:
        self.noted.append("closed")


@attrs.define
class Watching:
    """The outside, watched."""

    measures: Measures = attrs.field(factory=Measures)
    provider: FrozenProvider = attrs.field(factory=FrozenProvider)
    plain: Outside = attrs.field(init=False)
    outside: Outside = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plain = Outside(provider=self.provider)
        clock = self.plain.clock
        journal = MeasuredJournal(
            journal=self.plain.journal, measures=self.measures, clock=clock
        )
        self.outside = attrs.evolve(self.plain, journal=journal)

    @property
    def watched(self) -> MeasuredProvider:
        return MeasuredProvider(
            provider=self.provider, measures=self.measures, clock=self.plain.clock
        )

    async def census(self) -> Census:
        return await TakeCensus(journal=self.plain.journal, clock=self.plain.clock)()


def test_a_time_is_counted_up_to_its_bound() -> None:
    times = Times((0.1, 1.0))

    for seconds in (0.1, 0.5, 1.0, 7.0):
        times.note(seconds)

    assert times.counts == [1, 2, 1]
    assert times.total == pytest.approx(8.6)


async def test_claims_are_counted_as_they_go_and_the_census_is_back_at_zero() -> None:
    it = Watching()
    census = TakeCensus(journal=it.plain.journal, clock=it.plain.clock)
    begun = await census()
    await it.outside.claim(CLAIM, SPEC, used_by="episode")
    it.outside.clock.time += 7.0
    held = await census()
    it.provider.undestroyable.add(CLAIM)
    with pytest.raises(DestroyFailed):
        await it.outside.release(LABEL, reason="over")
    releasing = await census()
    it.provider.undestroyable.clear()
    await it.outside.release(LABEL, reason="over")

    zero = await census()

    assert begun == zero
    assert set(zero.claims) == set(OPEN)
    assert set(zero.claims.values()) == set(zero.open.values()) == {0}
    assert zero.oldest_seconds == 0.0
    assert (held.claims[ClaimPhase.HELD], held.oldest_seconds) == (1, 7.0)
    assert releasing.claims[ClaimPhase.RELEASING] == 1
    assert sum(releasing.claims.values()) == 1
    events = it.measures.events
    assert [events[e] for e in (ClaimHeld, ReleaseFailed, ClaimReleased)] == [1] * 3
    assert sum(it.measures.appends.of["claims"].counts) > 0


async def test_a_census_sees_what_another_process_released() -> None:
    it = Watching()
    await it.outside.claim(CLAIM, SPEC, used_by="episode")
    await it.plain.release(LABEL, reason="by another")

    assert sum((await it.census()).claims.values()) == 0


@pytest.mark.case("FC-092")
async def test_what_the_reaper_could_not_give_back_is_counted() -> None:
    it = Watching()
    it.outside.holders.own = Holder("dead")
    await it.outside.claim(CLAIM, SPEC, used_by="episode")
    it.outside.holders.own = Holder("this-process")
    it.provider.undestroyable.add(CLAIM)
    for _ in range(3):
        it.measures.note_sweep(SweepEnd.DONE, await it.outside.reap())
    it.provider.undestroyable.clear()
    it.provider.live[ClaimId("unknown")] = OWNER
    it.measures.note_sweep(SweepEnd.DONE, await it.outside.reap())
    it.measures.note_sweep(SweepEnd.FAILED, None)

    assert it.measures.reaped == {Finding.FAILED: 3, Finding.RELEASED: 2}
    assert it.measures.sweeps == {SweepEnd.DONE: 4, SweepEnd.FAILED: 1}
    assert it.measures.unknown == 1


async def test_a_watched_provider_does_what_the_provider_does() -> None:
    it = Watching()
    provider = it.watched

    made = await provider.create(LABEL, SPEC)
    found = await provider.find(LABEL)
    lent = await provider.connect(made.access(), borrower=ClaimId("borrower"))
    listed = [one.label async for one in provider.list(OWNER)]
    await provider.freeze(LABEL)
    await provider.thaw(LABEL)
    await provider.destroy(LABEL)
    gone = await provider.find(LABEL)
    await provider.aclose()

    assert found is not None
    assert {made.sandbox_id, found.sandbox_id, lent.sandbox_id} == {SandboxId(CLAIM)}
    assert (provider.name, provider.capabilities) == ("fake", frozenset())
    assert (listed, gone) == ([LABEL], None)
    assert it.provider.noted == [f"freeze {CLAIM}", f"thaw {CLAIM}", "closed"]
    assert sum(it.measures.creations.of["fake"].counts) == 1


async def test_a_creation_that_fails_is_counted_and_not_timed() -> None:
    it = Watching()
    it.provider.create_fault = CreateFailed("fake", CLAIM, "create", "no room")

    with pytest.raises(CreateFailed):
        await it.watched.create(LABEL, SPEC)

    assert it.measures.failures == {"fake": 1}
    assert it.measures.creations.of == {}


async def test_a_watched_sandbox_does_what_the_sandbox_does() -> None:
    measures = Measures()
    plain = NothingSandbox(SandboxId("s1"), expires_at=5.0)
    watched = MeasuredSandbox(plain, "fake", measures, HandClock())

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    command = shell("true", timeout_seconds=WAIT_SECONDS)
    assert await watched.exec(command) == await plain.exec(command)
    await watched.put("file", chunks(), size=1, mode=0o600)
    with pytest.raises(FileMissing):
        async with watched.get("file"):
            pass
    with pytest.raises(FileMissing):
        await watched.stat("file")
    assert await watched.status() == await plain.status()
    assert await watched.endpoint(80) == await plain.endpoint(80)
    assert watched.access() == plain.access()
    await watched.disconnect()

    names = ("sandbox_id", "workdir", "scratch", "expires_at")
    assert [getattr(watched, n) for n in names] == [getattr(plain, n) for n in names]
    assert not isinstance(watched, StreamingSandbox)
    assert sum(measures.execs.of["fake"].counts) == 1


async def test_a_sandbox_keeps_its_ability_to_have_streams_attached() -> None:
    @attrs.frozen
    class Streaming(NothingSandbox):
        @asynccontextmanager
        async def open_process(
            self, argv: tuple[str, ...]
        ) -> AsyncGenerator[ByteStream]:
            raise FileMissing(argv[0])
            yield  # pyright: ignore[reportUnreachable]

    @attrs.define
    class Streams(FrozenProvider):
        def _sandbox(self, claim: ClaimId) -> NothingSandbox:
            return Streaming(SandboxId(claim))

    it = Watching(provider=Streams())
    made = await it.watched.create(LABEL, SPEC)

    assert isinstance(made, StreamingSandbox)
    assert isinstance(made, MeasuredStreamingSandbox)
    with pytest.raises(FileMissing):
        async with made.open_process(("program",)):
            pass


def places_of(outside: Outside) -> SharedPlaces:
    return SharedPlaces(
        journal=outside.journal,
        clock=outside.clock,
        holders=outside.holders,
        name="tests",
        places=1,
    )


async def test_who_waits_for_a_session_is_counted_until_admitted() -> None:
    outside, waits = Outside(), list[float]()
    seen = (0, 0)
    queue = AdmitSessions(
        clock=outside.clock, places=1, patience_seconds=10 * WAIT_SECONDS
    )
    admit = AdmitOverWorkers(
        queue=queue, shared=places_of(outside), waited=waits.append
    )
    await admit.admit(Ticket("first"))

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(admit.admit, Ticket("second"))
            while admit.waiting == 0:
                await anyio.lowlevel.checkpoint()
            seen = (admit.waiting, len(waits))
            await admit.leave(Ticket("first"))

    assert seen == (1, 1)
    assert (admit.waiting, len(waits)) == (0, 2)


async def test_who_waits_for_an_episode_is_counted_until_admitted() -> None:
    outside, waits = Outside(), list[float]()
    seen = (0, 0)

    async def one() -> int:
        return 1

    admit = AdmitEpisodes(
        clock=outside.clock,
        places=one,
        shared=lambda number: places_of(outside),
        patience_seconds=10 * WAIT_SECONDS,
        waited=waits.append,
    )

    async def second() -> None:
        async with admit.place(Ticket("second")):
            pass

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as group:
            async with admit.place(Ticket("first")):
                group.start_soon(second)
                while admit.waiting == 0:
                    await anyio.lowlevel.checkpoint()
                seen = (admit.waiting, len(waits))
            group.start_soon(second)

    assert seen == (1, 1)
    assert admit.waiting == 0
    assert len(waits) == 3
