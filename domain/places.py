# SPDX-License-Identifier: Apache-2.0
"""Places: so many of a thing at once, counted over all processes on one journal.

Each place is a log of its own: who has it. A place is given back by forgetting its
log, so places that come and go leave nothing behind. A place whose holder has died is
taken over from just that holder: of two that see it free, one has it.
"""

from typing import ClassVar, Final

import attrs

from .admissions import Ticket
from .claims import Holder
from .deciders import Decider, Instant
from .evolved_values import evolved
from .refusals import Refusal


@attrs.frozen(kw_only=True)
class PlaceTaken:
    """The ticket has the place."""

    ticket: Ticket
    holder: Holder
    at: Instant


@attrs.frozen(kw_only=True)
class TakePlace:
    """Asks for the place; `taken_from` is what a dead process left of it."""

    ticket: Ticket
    holder: Holder
    taken_from: PlaceTaken | None = None
    at: Instant


@attrs.frozen(kw_only=True)
class Place:
    """One place."""

    taken: PlaceTaken | None = None


@attrs.frozen
class PlaceIsTaken(Refusal):
    """Another has the place."""

    kind: ClassVar[str] = "place_is_taken"
    message: ClassVar[str] = "The place is taken by {ticket}."

    ticket: Ticket


def decide(place: Place, command: TakePlace) -> tuple[PlaceTaken, ...]:
    """Return what happens next, which is nothing when the ticket has it already.

    Raises:
        PlaceIsTaken: As it says.
    """
    standing = place.taken
    if standing is None or standing == command.taken_from:
        return (
            PlaceTaken(ticket=command.ticket, holder=command.holder, at=command.at),
        )
    if (standing.ticket, standing.holder) != (command.ticket, command.holder):
        raise PlaceIsTaken(ticket=standing.ticket)
    return ()


def evolve(place: Place, event: PlaceTaken) -> Place:
    """Return the place after `event`."""
    return evolved(place, taken=event)


DECIDER: Final[Decider[Place, TakePlace, PlaceTaken]] = Decider(
    initial=Place(), decide=decide, evolve=evolve
)
