# SPDX-License-Identifier: Apache-2.0
"""Admission and turns: first come, first served, with a cap.

A ticket joins the queue, is admitted when there is room, and leaves. What waits
holds nothing, knows its place, and is given up when its patience is over, at once if
it has none. A ticket may need more than one of the places; a smaller one behind it
may then pass, but only so often, so nobody starves. Once admission is shut nobody is
admitted any more.

Turns are the same with a cap of one.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, NewType, assert_never

import attrs

from .deciders import Decider, Instant
from .evolved_values import evolved
from .refusals import Refusal

Ticket = NewType("Ticket", str)

OVERTAKEN_MAX: Final = 8
"""How many later tickets may pass one that waits for several places."""


@attrs.frozen(kw_only=True)
class SetCapacity:
    """Asks for room for `places` at once; what runs is not interrupted."""

    places: int
    at: Instant


@attrs.frozen(kw_only=True)
class Join:
    """Asks for `places`, waiting up to `patience_seconds`."""

    ticket: Ticket
    patience_seconds: float
    places: int = 1
    at: Instant


@attrs.frozen(kw_only=True)
class Keep:
    """Tells that the ticket has its places already, from before a restart.

    It keeps them, beyond the cap if need be; nobody else is admitted until there is
    room again.
    """

    ticket: Ticket
    places: int = 1
    at: Instant


@attrs.frozen(kw_only=True)
class Leave:
    """Tells that the ticket is finished with, wherever it stands."""

    ticket: Ticket
    at: Instant


@attrs.frozen(kw_only=True)
class Tick:
    """Tells that time went by."""

    at: Instant


@attrs.frozen(kw_only=True)
class Shut:
    """Asks that nobody be admitted any more; who waits is sent away."""

    at: Instant


Command = SetCapacity | Join | Keep | Leave | Tick | Shut


@attrs.frozen(kw_only=True)
class CapacitySet:
    """From now on there is room for `places`."""

    places: int
    at: Instant


@attrs.frozen(kw_only=True)
class TicketQueued:
    """The ticket waits, until `until` at the longest."""

    ticket: Ticket
    places: int
    until: Instant
    at: Instant


@attrs.frozen(kw_only=True)
class TicketAdmitted:
    """The ticket has its places."""

    ticket: Ticket
    at: Instant


@attrs.frozen(kw_only=True)
class TicketKept:
    """The ticket has the places that it had before, whatever room there is."""

    ticket: Ticket
    places: int
    at: Instant


@attrs.frozen(kw_only=True)
class TicketLeft:
    """The ticket gave its places back, or stopped waiting."""

    ticket: Ticket
    at: Instant


@attrs.frozen(kw_only=True)
class TicketTimedOut:
    """The ticket waited as long as it would."""

    ticket: Ticket
    at: Instant


@attrs.frozen(kw_only=True)
class AdmissionShut:
    """Nobody is admitted any more; the queue is empty."""

    at: Instant


Event = (
    CapacitySet
    | TicketQueued
    | TicketAdmitted
    | TicketKept
    | TicketLeft
    | TicketTimedOut
    | AdmissionShut
)
Events = tuple[Event, ...]


@attrs.frozen(kw_only=True)
class Waiting:
    """A ticket in the queue."""

    ticket: Ticket
    places: int
    until: Instant
    overtaken: int = 0


def _in_order(admitted: Mapping[Ticket, int]) -> tuple[tuple[Ticket, int], ...]:
    """Return what makes two of them equal: states are values, and can be hashed."""
    return tuple(admitted.items())


@attrs.frozen(kw_only=True)
class Admission:
    """The queue and what was admitted."""

    capacity: int = 0
    waiting: tuple[Waiting, ...] = ()
    admitted: Mapping[Ticket, int] = attrs.field(
        factory=dict[Ticket, int], eq=_in_order
    )
    """The places of each ticket that has some, in the order of admission."""
    taken: int = 0
    """How many places that is together, so that a thousand need no adding up."""
    shut: bool = False

    @property
    def free(self) -> int:
        """How many places nobody has; negative beyond a cap that was lowered."""
        return self.capacity - self.taken

    def place(self, ticket: Ticket) -> int | None:
        """Return how many stand before a waiting ticket; None if it does not wait."""
        for before, waiting in enumerate(self.waiting):
            if waiting.ticket == ticket:
                return before
        return None

    def holds(self, ticket: Ticket) -> bool:
        """Whether the ticket is admitted."""
        return ticket in self.admitted


@attrs.frozen
class AdmissionIsShut(Refusal):
    """Shutdown has begun."""

    kind: ClassVar[str] = "admission_shut"
    message: ClassVar[str] = "{ticket} is not admitted: shutdown has begun."

    ticket: Ticket


@attrs.frozen
class AdmissionFull(Refusal):
    """Every place is taken, and whoever asks would not wait or waited long enough."""

    kind: ClassVar[str] = "admission_full"
    message: ClassVar[str] = (
        "{ticket} is not admitted: all {places} places are taken. Ask again later."
    )

    ticket: Ticket
    places: int


@attrs.frozen
class NeverFits(Refusal):
    """More is asked for than there will ever be room for."""

    kind: ClassVar[str] = "never_fits"
    message: ClassVar[str] = "{ticket} asks for {places} places of {capacity}."

    ticket: Ticket
    places: int
    capacity: int


@attrs.frozen
class TicketTaken(Refusal):
    """The ticket is in use for another number of places."""

    kind: ClassVar[str] = "ticket_taken"
    message: ClassVar[str] = "{ticket} already stands for {standing} places."

    ticket: Ticket
    standing: int


def decide(admission: Admission, command: Command) -> tuple[Event, ...]:
    """Return what happens next, the admissions that follow from it included.

    Raises:
        AdmissionIsShut, NeverFits, TicketTaken: As they say.
    """
    return settled(admission, command)[0]


def settled(admission: Admission, command: Command) -> tuple[Events, Admission]:
    """Return what `decide` does, or raise it, and the admission that comes of it."""
    late = _timed_out(admission, command.at)
    admission = DECIDER.replay(late, admission)
    first = _decide_first(admission, command)
    admission = DECIDER.replay(first, admission)
    admitted, admission = _admit(admission, command.at)
    # Who would not wait at all is told so at once.
    refused = _timed_out(admission, command.at) if isinstance(command, Join) else ()
    return (*late, *first, *admitted, *refused), DECIDER.replay(refused, admission)


def evolve(admission: Admission, event: Event) -> Admission:
    """Return the admission after `event`."""
    match event:
        case CapacitySet(places=places):
            return evolved(admission, capacity=places)
        case TicketQueued(ticket=ticket, places=places, until=until):
            waiting = Waiting(ticket=ticket, places=places, until=until)
            return evolved(admission, waiting=(*admission.waiting, waiting))
        case TicketAdmitted(ticket=ticket):
            return _admitted(admission, ticket)
        case TicketKept(ticket=ticket, places=places):
            return evolved(
                admission,
                waiting=tuple(w for w in admission.waiting if w.ticket != ticket),
                admitted={**admission.admitted, ticket: places},
                taken=admission.taken + places,
            )
        case TicketLeft(ticket=ticket) | TicketTimedOut(ticket=ticket):
            admitted = {**admission.admitted}
            places = admitted.pop(ticket, 0)
            return evolved(
                admission,
                waiting=tuple(w for w in admission.waiting if w.ticket != ticket),
                admitted=admitted,
                taken=admission.taken - places,
            )
        case AdmissionShut():
            return evolved(admission, shut=True, waiting=())
        case _:
            assert_never(event)


def _decide_first(admission: Admission, command: Command) -> tuple[Event, ...]:
    match command:
        case SetCapacity(places=places, at=at):
            same = places == admission.capacity
            return () if same else (CapacitySet(places=places, at=at),)
        case Join():
            return _join(admission, command)
        case Keep():
            return _keep(admission, command)
        case Leave(ticket=ticket, at=at):
            known = admission.holds(ticket) or admission.place(ticket) is not None
            return (TicketLeft(ticket=ticket, at=at),) if known else ()
        case Tick():
            return ()  # What is late was told already.
        case Shut(at=at):
            return () if admission.shut else (AdmissionShut(at=at),)
        case _:
            assert_never(command)


def _join(admission: Admission, command: Join) -> tuple[Event, ...]:
    places = admission.admitted.get(command.ticket)
    for waiting in admission.waiting:
        if waiting.ticket == command.ticket:
            places = waiting.places
    if places == command.places:
        return ()
    if places is not None:
        raise TicketTaken(ticket=command.ticket, standing=places)
    if admission.shut:
        raise AdmissionIsShut(ticket=command.ticket)
    if not 1 <= command.places <= admission.capacity:
        raise NeverFits(
            ticket=command.ticket, places=command.places, capacity=admission.capacity
        )
    return (
        TicketQueued(
            ticket=command.ticket,
            places=command.places,
            until=Instant(command.at + command.patience_seconds),
            at=command.at,
        ),
    )


def _keep(admission: Admission, command: Keep) -> tuple[Event, ...]:
    if admission.shut or admission.holds(command.ticket):
        return ()
    return (TicketKept(ticket=command.ticket, places=command.places, at=command.at),)


def _timed_out(admission: Admission, at: Instant) -> tuple[Event, ...]:
    return tuple(
        TicketTimedOut(ticket=waiting.ticket, at=at)
        for waiting in admission.waiting
        if waiting.until <= at
    )


def _admit(admission: Admission, at: Instant) -> tuple[Events, Admission]:
    """Admit in order; behind one that does not fit, others pass `OVERTAKEN_MAX` times."""
    events: Events = ()
    while not admission.shut and (ticket := _next(admission)) is not None:
        admitted = TicketAdmitted(ticket=ticket, at=at)
        admission = evolve(admission, admitted)
        events = (*events, admitted)
    return events, admission


def _next(admission: Admission) -> Ticket | None:
    free = admission.free
    for waiting in admission.waiting:
        if waiting.places <= free:
            return waiting.ticket
        # Who wants more than there is since the cap was lowered holds up nobody.
        if waiting.overtaken >= OVERTAKEN_MAX and waiting.places <= admission.capacity:
            return None
    return None


def _admitted(admission: Admission, ticket: Ticket) -> Admission:
    waiting: list[Waiting] = []
    places = 0
    for each in admission.waiting:
        if each.ticket == ticket:
            places = each.places
        elif places:
            waiting.append(each)
        else:
            waiting.append(evolved(each, overtaken=each.overtaken + 1))
    return evolved(
        admission,
        waiting=tuple(waiting),
        admitted={**admission.admitted, ticket: places},
        taken=admission.taken + places,
    )


DECIDER: Final[Decider[Admission, Command, Event]] = Decider(
    initial=Admission(), decide=decide, evolve=evolve
)
