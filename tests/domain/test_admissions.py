# SPDX-License-Identifier: Apache-2.0
"""Admission: first come, first served; no place is lost and nobody starves."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from livery.domain.admissions import (
    DECIDER,
    OVERTAKEN_MAX,
    Admission,
    AdmissionIsShut,
    AdmissionShut,
    CapacitySet,
    Join,
    Keep,
    Leave,
    NeverFits,
    SetCapacity,
    Shut,
    Tick,
    Ticket,
    TicketAdmitted,
    TicketKept,
    TicketLeft,
    TicketQueued,
    TicketTaken,
    TicketTimedOut,
    decide,
)
from livery.domain.deciders import Instant

from .deciding import START, DeciderMachine, after

NOW = Instant(START)


def join(
    name: str, places: int = 1, *, patience: float = 60.0, at: float = NOW
) -> Join:
    return Join(
        ticket=Ticket(name), patience_seconds=patience, places=places, at=Instant(at)
    )


def leave(name: str) -> Leave:
    return Leave(ticket=Ticket(name), at=NOW)


def room_for(places: int) -> Admission:
    return after(DECIDER, SetCapacity(places=places, at=NOW))


def admitted(admission: Admission) -> list[str]:
    return list(admission.admitted)


def test_who_comes_first_is_served_first_and_knows_its_place() -> None:
    full = after(DECIDER, *map(join, "abc"), state=room_for(1))

    next_one = after(DECIDER, leave("a"), state=full)

    assert admitted(full) == ["a"]
    assert [full.place(Ticket(name)) for name in "abc"] == [None, 0, 1]
    assert admitted(next_one) == ["b"]


@pytest.mark.case("FC-126")
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 4)), max_size=40
    ),
    capacity=st.integers(1, 4),
)
def test_places_in_use_and_free_make_the_capacity_whoever_goes(
    steps: list[tuple[str, int]], capacity: int
) -> None:
    admission = room_for(capacity)
    in_use: dict[str, int] = {}
    wants: dict[str, int] = {}

    for name, places in steps:
        stays = 1 <= places <= capacity and name not in wants
        command = join(name, places, patience=1e9) if stays else leave(name)
        if stays:
            wants[name] = places
        else:
            wants.pop(name, None)
            in_use.pop(name, None)
        events = decide(admission, command)
        admission = DECIDER.replay(events, admission)
        in_use |= {
            event.ticket: wants[event.ticket]
            for event in events
            if isinstance(event, TicketAdmitted)
        }

    assert sum(in_use.values()) + admission.free == capacity
    assert in_use == dict(admission.admitted)
    assert admission.free >= 0
    assert set(wants) == set(in_use) | {each.ticket for each in admission.waiting}


@pytest.mark.case("FC-126")
def test_a_place_granted_to_somebody_who_goes_is_given_on() -> None:
    granted = after(DECIDER, *map(join, "abc"), leave("a"), state=room_for(1))

    passed_on = after(DECIDER, leave("b"), leave("b"), state=granted)

    assert admitted(passed_on) == ["c"]


@pytest.mark.case("FC-131")
def test_small_ones_pass_a_big_one_only_so_often() -> None:
    admission = after(DECIDER, join("first"), join("big", 2), state=room_for(2))

    for number in range(OVERTAKEN_MAX + 3):
        small = f"small-{number}"
        admission = after(DECIDER, join(small), state=admission)
        if admission.holds(Ticket(small)):
            admission = after(DECIDER, leave(small), state=admission)

    assert admission.waiting[0].overtaken == OVERTAKEN_MAX
    assert [each.ticket for each in admission.waiting] == [
        "big",
        *(f"small-{OVERTAKEN_MAX + each}" for each in range(3)),
    ]
    assert admitted(after(DECIDER, leave("first"), state=admission)) == ["big"]


@pytest.mark.case("FC-131")
@given(sizes=st.lists(st.integers(1, 4), max_size=30), capacity=st.integers(4, 6))
def test_everybody_who_waits_gets_in_when_those_before_leave(
    sizes: list[int], capacity: int
) -> None:
    joins = [join(str(number), size, patience=1e9) for number, size in enumerate(sizes)]
    admission = after(DECIDER, *joins, state=room_for(capacity))
    order: list[str] = []

    for _ in joins:
        first = admitted(admission)[0]
        order.append(first)
        admission = after(DECIDER, leave(first), state=admission)

    assert sorted(order, key=int) == [each.ticket for each in joins]
    assert not admission.waiting


@pytest.mark.case("FC-131")
def test_who_no_longer_fits_after_the_cap_was_lowered_holds_up_nobody() -> None:
    lowered = after(
        DECIDER,
        join("first"),
        join("big", 2),
        SetCapacity(places=1, at=NOW),
        leave("first"),
        state=room_for(2),
    )

    for number in range(OVERTAKEN_MAX + 2):
        small = f"small-{number}"
        lowered = after(DECIDER, join(small), state=lowered)
        assert lowered.holds(Ticket(small))
        lowered = after(DECIDER, leave(small), state=lowered)

    raised = after(DECIDER, SetCapacity(places=2, at=NOW), state=lowered)
    assert admitted(raised) == ["big"]


@pytest.mark.case("FC-138")
def test_who_would_not_wait_is_told_at_once_that_there_is_no_room() -> None:
    full = after(
        DECIDER, *(join(str(number)) for number in range(8)), state=room_for(8)
    )

    events = decide(full, join("ninth", patience=0.0))

    assert [type(event) for event in events] == [TicketQueued, TicketTimedOut]
    assert DECIDER.replay(events, full) == full


@pytest.mark.case("FC-138")
def test_who_would_not_wait_is_admitted_where_there_is_room() -> None:
    assert admitted(after(DECIDER, join("a", patience=0.0), state=room_for(1))) == ["a"]


@pytest.mark.parametrize("places", [0, -1, 3])
def test_more_than_there_is_or_nothing_at_all_is_never_granted(places: int) -> None:
    with pytest.raises(NeverFits):
        decide(room_for(2), join("a", places))


def test_patience_ends_at_its_moment_and_frees_the_queue() -> None:
    full = after(
        DECIDER, join("a"), join("b"), join("c", patience=90), state=room_for(1)
    )

    before = after(DECIDER, Tick(at=Instant(NOW + 59.9)), state=full)
    late = after(DECIDER, Tick(at=Instant(NOW + 60)), state=full)

    assert before.place(Ticket("b")) == 0
    assert (late.place(Ticket("b")), late.place(Ticket("c"))) == (None, 0)


def test_nobody_is_admitted_after_its_patience_also_when_nobody_looked() -> None:
    full = after(DECIDER, join("a"), join("b"), state=room_for(1))

    events = decide(full, Leave(ticket=Ticket("a"), at=Instant(NOW + 61)))

    assert [type(event) for event in events] == [TicketTimedOut, TicketLeft]


def test_once_shut_nobody_is_admitted_and_who_waits_is_sent_away() -> None:
    shut = after(DECIDER, join("a"), join("b"), Shut(at=NOW), state=room_for(1))

    after_leaving = after(
        DECIDER, leave("a"), SetCapacity(places=9, at=NOW), state=shut
    )

    assert not shut.waiting
    assert not after_leaving.admitted
    with pytest.raises(AdmissionIsShut):
        decide(after_leaving, join("c"))


def test_a_ticket_stands_for_one_number_of_places() -> None:
    standing = after(DECIDER, join("a"), join("b"), state=room_for(2))

    assert decide(standing, join("a")) == ()
    with pytest.raises(TicketTaken):
        decide(standing, join("a", 2))


def test_what_stands_already_keeps_its_place_beyond_the_cap() -> None:
    full = after(DECIDER, join("a"), state=room_for(1))
    keep = Keep(ticket=Ticket("b"), at=NOW)

    kept = after(DECIDER, keep, join("c"), state=full)
    one_left = after(DECIDER, leave("a"), state=kept)
    both_left = after(DECIDER, leave("b"), state=one_left)

    assert (admitted(kept), kept.free) == (["a", "b"], -1)
    assert decide(kept, keep) == ()
    assert admitted(one_left) == ["b"]
    assert admitted(both_left) == ["c"]


class Admissions(DeciderMachine):
    """A few tickets that come, wait, give up and go, while the cap moves.

    Rule 8 of the design (nobody is admitted after the shut) and rule 10 (the queue
    keeps nothing of who went). The model counts the places by itself.
    """

    decider = DECIDER
    ends_the_story = (Shut, SetCapacity)

    def begin(self) -> None:
        super().begin()
        self.capacity = 0
        self.in_use: dict[Ticket, int] = {}
        self.queue: dict[Ticket, TicketQueued] = {}
        self.passed: dict[Ticket, int] = {}
        self.shut = False

    def way(self) -> list[Callable[[], object]]:
        commands = [SetCapacity(places=2, at=self.now)]
        commands += [join(name, at=self.now) for name in "abc"]
        return [partial(self.tell, command) for command in commands]

    def asked(self) -> list[Any]:
        at = self.now
        commands: list[Any] = [Tick(at=at), Shut(at=at)]
        commands += [SetCapacity(places=places, at=at) for places in (0, 1, 2, 4)]
        for name in "abcdef":
            commands.append(Leave(ticket=Ticket(name), at=at))
            commands.append(Keep(ticket=Ticket(name), places=2, at=at))
            commands += [
                join(name, places, patience=patience, at=at)
                for places, patience in ((1, 60.0), (1, 0.0), (2, 900.0), (3, 900.0))
            ]
        return commands

    def happens_once(self, command: Any) -> bool:
        # Who was sent away may ask again.
        return not isinstance(command, Join) or (
            command.ticket in self.in_use.keys() | self.queue.keys()
        )

    @property
    def free(self) -> int:
        return self.capacity - sum(self.in_use.values())

    def saw(self, before: Admission, event: Any) -> None:
        match event:
            case CapacitySet(places=places):
                self.capacity = places
            case TicketQueued(ticket=ticket, places=places):
                assert not self.shut
                assert 1 <= places <= self.capacity
                assert ticket not in self.in_use.keys() | self.queue.keys()
                self.queue[ticket] = event
                self.passed[ticket] = 0
            case TicketAdmitted(ticket=ticket, at=at):
                self.saw_admitted(ticket, at)
            case TicketKept(ticket=ticket, places=places):
                assert not self.shut
                assert ticket not in self.in_use
                self.queue.pop(ticket, None)
                self.in_use[ticket] = places
            case TicketLeft(ticket=ticket):
                assert ticket in self.in_use.keys() | self.queue.keys()
                self.in_use.pop(ticket, None)
                self.queue.pop(ticket, None)
            case TicketTimedOut(ticket=ticket, at=at):
                assert at >= self.queue.pop(ticket).until
            case AdmissionShut():
                self.shut = True
                self.queue.clear()

    def saw_admitted(self, ticket: Ticket, at: Instant) -> None:
        assert not self.shut, "nobody is admitted after the shut"
        queued = self.queue[ticket]
        assert queued.until > at or queued.at == at, "nobody waits longer than it would"
        assert queued.places <= self.free
        for earlier in list(self.queue):
            if earlier == ticket:
                break
            assert self.queue[earlier].places > self.free, "first come, first served"
            if self.queue[earlier].places <= self.capacity:
                assert self.passed[earlier] < OVERTAKEN_MAX, "nobody starves"
            self.passed[earlier] += 1
        del self.queue[ticket]
        self.in_use[ticket] = queued.places

    @invariant()
    def in_use_and_free_make_the_capacity(self) -> None:
        assert self.state.free == self.free
        assert dict(self.state.admitted) == self.in_use
        assert self.state.capacity == self.capacity

    @invariant()
    def who_waits_is_in_the_order_of_coming_and_knows_its_place(self) -> None:
        assert [each.ticket for each in self.state.waiting] == list(self.queue)
        for place, ticket in enumerate(self.queue):
            assert self.state.place(ticket) == place

    @invariant()
    def nobody_waits_for_a_place_that_is_free(self) -> None:
        if self.queue:
            assert next(iter(self.queue.values())).places > self.free

    def end(self) -> None:
        """When time has passed and all have gone, all places are free."""
        for ticket in list(self.in_use):
            self.tell(Leave(ticket=ticket, at=self.now))
        self.tell(Tick(at=Instant(self.now + 1000)))
        for ticket in list(self.in_use):
            self.tell(Leave(ticket=ticket, at=self.now))
        assert not self.queue
        assert self.state.free == self.capacity


TestAdmissions = Admissions.TestCase
