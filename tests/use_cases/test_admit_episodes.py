# SPDX-License-Identifier: Apache-2.0
"""Episodes are admitted in order, so many over all processes, and no place is lost."""

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.system_clock import SystemClock
from livery.domain.admissions import AdmissionFull, AdmissionIsShut, Ticket
from livery.domain.claims import Holder
from livery.domain.deciders import Instant
from livery.domain.places import PlaceIsTaken
from livery.ports.provided import shared_places
from livery.ports.provided.admit_episodes import AdmitEpisodes
from livery.ports.provided.admit_sessions import IN_TURN_MAX, AdmitSessions
from livery.ports.provided.shared_places import HAD_SECONDS_MAX, SharedPlaces
from livery.ports.required.journal import Journal, JournalUnusable

from .steps import steps_in

pytestmark = pytest.mark.anyio

NAME = "some"
PATIENCE_SECONDS = 60.0


@attrs.define
class Hand:
    """A clock that a test sets by hand."""

    time: float = 0.0

    def now(self) -> Instant:
        return Instant(self.time)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits")


def shared(
    journal: Journal, own: str = "one", *others: str, places: int = 2
) -> SharedPlaces:
    return SharedPlaces(
        journal=journal,
        clock=SystemClock(),
        holders=MemoryHolders(own=Holder(own), others={Holder(o) for o in others}),
        name=NAME,
        places=places,
    )


def admission(
    journal: Journal,
    own: str = "one",
    *others: str,
    places: int = 2,
    patience_seconds: float = 60.0,
) -> AdmitEpisodes:
    async def number() -> int:
        return places

    return AdmitEpisodes(
        clock=SystemClock(),
        places=number,
        shared=lambda count: shared(journal, own, *others, places=count),
        patience_seconds=patience_seconds,
    )


async def test_places_are_taken_and_given_back_over_processes() -> None:
    journal = MemoryJournal()
    one, two = shared(journal, "one", "two"), shared(journal, "two", "one")

    first = await one.take(Ticket("a"))
    second = await two.take(Ticket("b"))

    assert {first, second} == {0, 1}
    assert await one.take(Ticket("c")) is None
    assert await two.take(Ticket("c")) is None
    assert second is not None
    await two.give_back(second)
    assert await one.take(Ticket("c")) == second
    assert await two.take(Ticket("d")) is None


async def test_the_last_of_many_places_is_found_like_the_first() -> None:
    journal = MemoryJournal()
    one = shared(journal, "one", "two", places=600)
    two = shared(journal, "two", "one", places=600)

    async def steps(places: SharedPlaces) -> int:
        with steps_in(shared_places) as counted:
            assert await places.take(Ticket("a")) is not None
        return counted.count

    first = await steps(one)
    for _ in range(500):
        await one.take(Ticket("a"))
    await two.take(Ticket("b"))  # It has to find out what the other one has.

    # The one that the other took is met on the way.
    assert await steps(one) < 2 * first
    assert await steps(two) < 2 * first


async def test_a_place_of_a_dead_process_is_free() -> None:
    journal = MemoryJournal()
    dead = shared(journal, "dead", places=1)
    assert await dead.take(Ticket("a")) == 0

    assert await shared(journal, "one", "dead", places=1).take(Ticket("b")) is None
    assert await shared(journal, "two", places=1).take(Ticket("b")) == 0


async def test_of_two_that_see_a_place_free_one_has_it() -> None:
    journal = MemoryJournal()
    assert await shared(journal, "dead", places=1).take(Ticket("a")) == 0
    one = shared(journal, "one", "two", places=1)
    two = shared(journal, "two", "one", places=1)
    for each in (one, two):
        with pytest.raises(PlaceIsTaken):
            await each._take(0, Ticket("probe"))
        each._others.add(0)
        await each._look()

    assert await one.take(Ticket("b")) == 0
    assert await two.take(Ticket("c")) is None
    await one.give_back(0)
    assert await two.take(Ticket("c")) == 0


async def test_a_dead_process_s_place_waits_for_what_outlives_it() -> None:
    journal = MemoryJournal()
    needs = {"a"}

    async def outlives(ticket: Ticket) -> bool:
        return ticket in needs

    dead = shared(journal, "dead", places=1)
    one = shared(journal, "one", places=1)
    one.outlives = outlives
    assert await dead.take(Ticket("a")) == 0

    assert await one.take(Ticket("b")) is None
    needs.clear()
    assert await one.take(Ticket("b")) == 0


@attrs.define
class AwayJournal(MemoryJournal):
    """Is away when something is to be forgotten, once."""

    away: bool = True

    async def forget(self, *asked: object, **more: object) -> None:
        if self.away:
            self.away = False
            raise JournalUnusable(where="here", reason="away", advice="Wait.")
        await MemoryJournal.forget(self, *asked, **more)  # type: ignore[arg-type]


async def test_a_place_that_could_not_be_given_back_is_given_back_later() -> None:
    journal = AwayJournal()
    one = shared(journal, "one", places=1)
    assert await one.take(Ticket("a")) == 0
    with pytest.raises(JournalUnusable):
        await one.give_back(0)

    assert await one.take(Ticket("b")) == 0


async def test_what_was_done_in_a_place_stays_when_it_cannot_be_given_back() -> None:
    journal = AwayJournal()
    admit = admission(journal, places=1, patience_seconds=PATIENCE_SECONDS)

    async with admit.place(Ticket("a")):
        done = True

    assert done
    assert not journal.away
    with anyio.fail_after(PATIENCE_SECONDS / 2):
        async with admit.place(Ticket("b")):
            assert await journal.open_streams("places") == ("some/0",)
    assert await journal.open_streams("places") == ()


async def test_who_was_taken_for_dead_gives_nothing_back() -> None:
    journal = MemoryJournal()
    slow, one = shared(journal, "slow", places=1), shared(journal, "one", places=1)
    assert await slow.take(Ticket("a")) == 0
    assert await one.take(Ticket("b")) == 0

    await slow.give_back(0)

    assert await slow.take(Ticket("c")) == 0  # To it, "one" is dead.
    assert await journal.open_streams("places") == ("some/0",)


async def test_places_leave_nothing_behind() -> None:
    journal = MemoryJournal()
    admit = admission(journal)
    for number in range(20):
        async with admit.place(Ticket(f"t{number}")):
            pass

    assert await journal.open_streams("places") == ()


async def test_a_place_that_was_put_aside_is_given_on_for_a_while() -> None:
    journal, clock = MemoryJournal(), Hand()
    one = shared(journal, "one", "two", places=1)
    one.clock = clock
    two = shared(journal, "two", "one", places=1)
    number = await one.take(Ticket("a"))
    assert number is not None

    assert one.put_aside(number)
    assert await two.take(Ticket("b")) is None
    assert await one.take(Ticket("c")) == number
    clock.time += HAD_SECONDS_MAX
    assert not one.put_aside(number)
    await one.give_back(number)

    assert await two.take(Ticket("b")) == number


async def test_places_that_nobody_wants_are_given_back() -> None:
    journal = MemoryJournal()
    admit = admission(journal, places=4)
    async with anyio.create_task_group() as group:
        group.start_soon(admit.tidy)
        await anyio.wait_all_tasks_blocked()
        for number in range(3):
            async with admit.place(Ticket(f"t{number}")):
                pass
        with anyio.fail_after(PATIENCE_SECONDS):
            while await journal.open_streams("places"):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        async with admit.place(Ticket("last")):
            pass
        group.cancel_scope.cancel()

    assert await journal.open_streams("places") == ()


@attrs.define
class TellingJournal(MemoryJournal):
    """Says when it is asked to forget, before it does."""

    asked: anyio.Event = attrs.field(factory=anyio.Event)

    async def forget(self, *asked: object, **more: object) -> None:
        self.asked.set()
        await MemoryJournal.forget(self, *asked, **more)  # type: ignore[arg-type]


async def test_a_server_that_stops_while_it_gives_a_place_back_has_given_it_back() -> (
    None
):
    journal = TellingJournal()
    admit = admission(journal)
    async with anyio.create_task_group() as group:
        group.start_soon(admit.tidy)
        await anyio.wait_all_tasks_blocked()
        async with admit.place(Ticket("a")):
            pass
        with anyio.fail_after(PATIENCE_SECONDS):
            await journal.asked.wait()
        group.cancel_scope.cancel()

    assert await journal.open_streams("places") == ()


async def test_a_place_is_had_at_once_or_waited_for() -> None:
    queue = AdmitSessions(clock=SystemClock(), places=1, patience_seconds=60.0)

    assert queue.admit_at_once(Ticket("a"))
    assert queue.admit_at_once(Ticket("a"))
    assert not queue.admit_at_once(Ticket("b"))
    queue.leave(Ticket("a"))
    assert queue.admit_at_once(Ticket("b"))
    queue.leave(Ticket("b"))
    queue.shut()

    with pytest.raises(AdmissionIsShut):
        queue.admit_at_once(Ticket("c"))


async def test_who_comes_first_is_admitted_first() -> None:
    journal = MemoryJournal()
    admit = admission(journal, places=1)
    order: list[int] = []
    async with anyio.create_task_group() as group:

        async def wait(number: int) -> None:
            async with admit.place(Ticket(f"t{number}")):
                order.append(number)

        async with admit.place(Ticket("first")):
            for number in range(10):
                group.start_soon(wait, number)
                await anyio.wait_all_tasks_blocked()

    assert order == [*range(10)]


async def test_patience_ends_also_where_another_process_has_every_place() -> None:
    journal = MemoryJournal()
    other = shared(journal, "other", "one", places=1)
    assert await other.take(Ticket("theirs")) == 0
    admit = admission(journal, "one", "other", places=1, patience_seconds=0.1)

    with pytest.raises(AdmissionFull):
        async with admit.place(Ticket("ours")):
            raise AssertionError("it has no place")


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_shutdown_sends_away_who_waits(elsewhere: bool) -> None:
    journal = MemoryJournal()
    if elsewhere:
        assert await shared(journal, "other", "one", places=1).take(Ticket("o")) == 0
    admit = admission(journal, "one", "other", places=1)
    refused: list[str] = []

    async def wait(name: str) -> None:
        try:
            async with admit.place(Ticket(name)):
                await anyio.sleep_forever()
        except AdmissionIsShut:
            refused.append(name)

    async with anyio.create_task_group() as group:
        for name in ("a", "b"):
            group.start_soon(wait, name)
        await anyio.sleep(0.05)
        admit.shut()
        with anyio.fail_after(20):
            for _ in range(2000):
                if len(refused) == (2 if elsewhere else 1):
                    break
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()

    assert "b" in refused
    with pytest.raises(AdmissionIsShut):
        async with admit.place(Ticket("late")):
            raise AssertionError("it has no place")


async def test_shut_before_the_first_came() -> None:
    admit = admission(MemoryJournal())
    admit.shut()

    with pytest.raises(AdmissionIsShut):
        async with admit.place(Ticket("late")):
            raise AssertionError("it has no place")


async def test_a_long_queue_wakes_nobody_but_the_next() -> None:
    admit = AdmitSessions(
        clock=SystemClock(), places=1, patience_seconds=60.0, waiting_max=1000
    )
    looked = 0

    async def wait(number: int) -> None:
        nonlocal looked
        await admit.admit(Ticket(f"t{number}"))
        looked += 1

    await admit.admit(Ticket("first"))
    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        admit.leave(Ticket("first"))
        await anyio.wait_all_tasks_blocked()
        assert looked == 1
        for number in range(50):
            admit.leave(Ticket(f"t{number}"))
            await anyio.wait_all_tasks_blocked()

    assert looked == 50
    assert admit._waiting == {}  # pyright: ignore[reportPrivateUsage]


@attrs.define
class Line:
    """Some who wait for one place, by number, and what became of each."""

    admit: AdmitSessions
    admitted: list[int] = attrs.field(factory=list[int])
    refused: list[int] = attrs.field(factory=list[int])

    async def wait(self, number: int) -> None:
        try:
            await self.admit.admit(Ticket(f"t{number}"))
        except (AdmissionFull, AdmissionIsShut):
            self.refused.append(number)
        else:
            self.admitted.append(number)

    @property
    def in_turn(self) -> int:
        """How many the decider has to look at each time."""
        return len(self.admit._admission.waiting)  # pyright: ignore[reportPrivateUsage]


def line(patience_seconds: float = 60.0, places: int = 1) -> Line:
    return Line(
        AdmitSessions(
            clock=SystemClock(),
            places=places,
            patience_seconds=patience_seconds,
            waiting_max=1000,
        )
    )


async def test_however_many_wait_a_few_are_looked_at_and_the_order_stays() -> None:
    it, count = line(), 10 * IN_TURN_MAX
    await it.admit.admit(Ticket("first"))
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(it.wait, number)
            group.start_soon(it.wait, number)  # Asked for twice, it waits once.
        await anyio.wait_all_tasks_blocked()
        assert it.in_turn == IN_TURN_MAX
        it.admit.leave(Ticket("t3"))
        it.admit.leave(Ticket(f"t{count - 1}"))
        it.admit.leave(Ticket("first"))
        for number in range(count):
            await anyio.wait_all_tasks_blocked()
            assert it.in_turn <= IN_TURN_MAX
            it.admit.leave(Ticket(f"t{number}"))

    left = {3, count - 1}
    order = [number for number in range(count) if number not in left]
    assert it.admitted == sorted(2 * order)
    assert sorted(it.refused) == sorted(2 * list(left))
    assert it.in_turn == 0


async def test_who_is_kept_waits_no_more_wherever_it_stood() -> None:
    it = line()
    await it.admit.admit(Ticket("first"))
    async with anyio.create_task_group() as group:
        for number in range(2 * IN_TURN_MAX):
            group.start_soon(it.wait, number)
        await anyio.wait_all_tasks_blocked()
        it.admit.keep(Ticket(f"t{2 * IN_TURN_MAX - 1}"))
        await anyio.wait_all_tasks_blocked()

        assert it.admitted == [2 * IN_TURN_MAX - 1]
        it.admit.shut()

    assert len(it.refused) == 2 * IN_TURN_MAX - 1
    assert it.in_turn == 0


async def test_patience_ends_in_the_line_too() -> None:
    it = line(patience_seconds=0.05)
    await it.admit.admit(Ticket("first"))
    async with anyio.create_task_group() as group:
        for number in range(3 * IN_TURN_MAX):
            group.start_soon(it.wait, number)

    assert len(it.refused) == 3 * IN_TURN_MAX
    assert it.in_turn == 0


@attrs.define
class SlowJournal(MemoryJournal):
    """Takes so many turns of the loop for each write."""

    turns: int = 0

    async def append(self, *asked: object, **more: object) -> int:
        for _ in range(self.turns):
            await anyio.lowlevel.checkpoint()
        return await MemoryJournal.append(self, *asked, **more)  # type: ignore[arg-type]


@given(
    turns=st.integers(0, 4),
    cancels=st.lists(st.integers(0, 14), min_size=1, max_size=6),
)
@pytest.mark.case("FC-126")
def test_no_place_is_lost_whenever_a_waiter_is_cancelled(
    turns: int, cancels: list[int]
) -> None:
    async def race() -> None:
        journal = SlowJournal()
        journal.turns = turns
        admit = admission(journal, places=1)
        async with anyio.create_task_group() as group:
            for number, after in enumerate(cancels):
                scope = anyio.CancelScope()

                async def wait(
                    number: int = number, scope: anyio.CancelScope = scope
                ) -> None:
                    with scope:
                        async with admit.place(Ticket(f"t{number}")):
                            await anyio.lowlevel.checkpoint()

                async def cancel(
                    after: int = after, scope: anyio.CancelScope = scope
                ) -> None:
                    for _ in range(after):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                group.start_soon(wait)
                group.start_soon(cancel)
        assert await journal.open_streams("places") == ()
        with anyio.fail_after(30):
            async with admit.place(Ticket("last")):
                assert len(await journal.open_streams("places")) == 1

    anyio.run(race)
