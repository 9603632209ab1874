# SPDX-License-Identifier: Apache-2.0
"""Admit sessions: so many at once, first come, first served.

Who waits holds nothing. The queue has a bound of its own, and so has the wait. The
first `IN_TURN_MAX` of those who wait are in the decider's queue, which looks at all of
them each time; the others stand in a line behind it, and cost nothing until it is their
turn. So a place is given as quickly with a hundred thousand waiting as with ten.
"""

from collections import OrderedDict
from typing import Final

import anyio
import attrs

from ...domain.admissions import (
    Admission,
    AdmissionFull,
    AdmissionIsShut,
    AdmissionShut,
    CapacitySet,
    Command,
    Join,
    Keep,
    Leave,
    SetCapacity,
    Shut,
    Ticket,
    settled,
)
from ...domain.deciders import Instant
from ..required.clock import Clock

IN_TURN_MAX: Final = 32
"""How many wait in the decider's queue; the next one is always among them."""


@attrs.define(kw_only=True, eq=False)
class AdmitSessions:
    """The queue of this process."""

    clock: Clock
    places: int
    patience_seconds: float = 0.0
    """How long a ticket waits for a place; 0: not at all."""
    waiting_max: int = 256
    _admission: Admission = attrs.field(factory=Admission, init=False)
    _waiting: dict[Ticket, anyio.Event] = attrs.field(
        factory=dict[Ticket, anyio.Event], init=False
    )
    """What wakes each ticket alone: with many waiting, few of them are ever next."""
    _line: OrderedDict[Ticket, Instant] = attrs.field(
        factory=OrderedDict[Ticket, Instant], init=False
    )
    """Who waits behind the queue, in order, and until when."""

    def __attrs_post_init__(self) -> None:
        """Open the queue."""
        self._carry_out(SetCapacity(places=self.places, at=self._now()))

    async def admit(self, ticket: Ticket) -> None:
        """Return when the ticket has a place.

        Raises:
            AdmissionFull: There is none, or none became free in time.
            AdmissionIsShut: Shutdown has begun.
        """
        if self._admission.holds(ticket):
            return
        patience = self.patience_seconds
        if len(self._admission.waiting) + len(self._line) >= self.waiting_max:
            patience = 0.0
        self._queue(ticket, patience)
        try:
            with anyio.move_on_after(patience):
                while self._waits(ticket):
                    await self._waiting.setdefault(ticket, anyio.Event()).wait()
        finally:
            if not self._admission.holds(ticket):
                self.leave(ticket)
        if self._admission.shut:
            raise AdmissionIsShut(ticket=ticket)
        if not self._admission.holds(ticket):
            raise AdmissionFull(ticket=ticket, places=self.places)

    def holds(self, ticket: Ticket) -> bool:
        """Whether the ticket has a place."""
        return self._admission.holds(ticket)

    def admit_at_once(self, ticket: Ticket) -> bool:
        """Give the ticket a place if one is free, or tell that there is none.

        Raises:
            AdmissionIsShut: Shutdown has begun.
        """
        if self._admission.holds(ticket):
            return True
        if self._admission.free < 1 or self._admission.waiting:
            return False
        self._carry_out(Join(ticket=ticket, patience_seconds=0.0, at=self._now()))
        return self._admission.holds(ticket)

    def keep(self, ticket: Ticket) -> None:
        """Count a session that stands already, beyond the places if need be."""
        self._carry_out(Keep(ticket=ticket, at=self._now()))

    def leave(self, ticket: Ticket) -> None:
        """Give the ticket's place back, or its place in the queue."""
        if self._line.pop(ticket, None) is not None:
            self._wake(ticket)
        elif self._admission.holds(ticket) or self._waits(ticket):
            self._carry_out(Leave(ticket=ticket, at=self._now()))

    def shut(self) -> None:
        """Admit nobody any more."""
        self._carry_out(Shut(at=self._now()))

    def _queue(self, ticket: Ticket, patience_seconds: float) -> None:
        """Have the ticket wait, in the queue or in the line behind it."""
        if self._waits(ticket):
            return  # Asked for twice.
        now = self._now()
        if patience_seconds > 0 and len(self._admission.waiting) >= IN_TURN_MAX:
            self._line[ticket] = Instant(now + patience_seconds)
            return
        join = Join(ticket=ticket, patience_seconds=patience_seconds, at=now)
        self._carry_out(join)

    def _waits(self, ticket: Ticket) -> bool:
        return ticket in self._line or self._admission.place(ticket) is not None

    def _carry_out(self, command: Command) -> None:
        self._decide(command)
        while self._line and len(self._admission.waiting) < IN_TURN_MAX:
            ticket, until = self._line.popitem(last=False)
            now = self._now()
            # Whose patience is over is sent away by the timer of the wait.
            self._decide(Join(ticket=ticket, patience_seconds=until - now, at=now))

    def _decide(self, command: Command) -> None:
        events, self._admission = settled(self._admission, command)
        for event in events:
            match event:
                case AdmissionShut():
                    self._line.clear()
                    while self._waiting:
                        self._waiting.popitem()[1].set()
                case CapacitySet():
                    continue
                case _:
                    self._line.pop(event.ticket, None)  # Kept, it waits no more.
                    self._wake(event.ticket)

    def _wake(self, ticket: Ticket) -> None:
        if (waiting := self._waiting.pop(ticket, None)) is not None:
            waiting.set()

    def _now(self) -> Instant:
        return Instant(self.clock.monotonic())
