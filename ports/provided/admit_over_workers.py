# SPDX-License-Identifier: Apache-2.0
"""Admit sessions over all workers on one journal: so many at once, wherever.

Each worker has a queue of its own, first come, first served; whoever is first in it
looks for one of the places that all share. Between workers whoever looks first has it.
"""

import logging
from collections.abc import Callable
from typing import Final

import anyio
import attrs

from ...domain.admissions import AdmissionFull, AdmissionIsShut, Ticket
from ..required.faults import Fault
from .admit_sessions import AdmitSessions
from .shared_places import SharedPlaces

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.25
"""How often who is first looks whether another worker has given a place back."""


@attrs.define(kw_only=True, eq=False)
class AdmitOverWorkers:
    """The queue of this worker, and the places of all."""

    queue: AdmitSessions
    shared: SharedPlaces
    waited: Callable[[float], None] = lambda seconds: None
    """Told how many seconds each ticket waited that was given a place."""
    waiting: int = attrs.field(default=0, init=False)
    """How many tickets wait, for this worker's turn or for a place of all."""
    _taken: dict[Ticket, int] = attrs.field(factory=dict[Ticket, int], init=False)
    _turn: anyio.Lock = attrs.field(
        factory=lambda: anyio.Lock(fast_acquire=True), init=False
    )
    _is_shut: bool = attrs.field(default=False, init=False)

    @property
    def places(self) -> int:
        """How many there are."""
        return self.queue.places

    async def admit(self, ticket: Ticket) -> None:
        """Return when the ticket has a place.

        Raises:
            AdmissionFull: There is none, or none became free in time.
            AdmissionIsShut: Shutdown has begun.
            Fault: Nobody can tell which are free.
        """
        begun = anyio.current_time()
        self.waiting += 1
        try:
            await self._admitted(ticket, begun)
        finally:
            self.waiting -= 1

    async def _admitted(self, ticket: Ticket, begun: float) -> None:
        until = begun + self.queue.patience_seconds
        await self.queue.admit(ticket)
        try:
            async with self._turn:
                if ticket not in self._taken:
                    await self._take(ticket, until)
                    self.waited(anyio.current_time() - begun)
        except BaseException:
            self.queue.leave(ticket)
            raise

    async def admit_at_once(self, ticket: Ticket) -> bool:
        """Give the ticket a place if one is free, or tell that there is none.

        Raises:
            AdmissionIsShut: Shutdown has begun.
            Fault: Nobody can tell which are free.
        """
        if self.queue.holds(ticket):
            return ticket in self._taken
        # Who has the turn waits for a place already.
        if self._turn.locked() or not self.queue.admit_at_once(ticket):
            return False
        number: int | None = None
        try:
            # In no turn: as long as there are places, several look at the same time.
            with anyio.CancelScope(shield=True):
                number = await self.shared.take(ticket)
                if number is not None:
                    self._taken[ticket] = number
        except BaseException:
            self.queue.leave(ticket)
            raise
        if number is None:
            self.queue.leave(ticket)
        return number is not None

    def keep(self, ticket: Ticket) -> None:
        """Count a session of a dead worker here, whose place is taken already."""
        self.queue.keep(ticket)

    async def leave(self, ticket: Ticket) -> None:
        """Give the ticket's place back, if it has one."""
        self.queue.leave(ticket)
        number = self._taken.pop(ticket, None)
        if number is None:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self.shared.give_back(number)
        except Fault as fault:
            log.warning("A place is given back later: %s", fault)

    def shut(self) -> None:
        """Admit nobody any more."""
        self._is_shut = True
        self.queue.shut()

    async def _take(self, ticket: Ticket, until: float) -> None:
        while True:
            if self._is_shut:
                raise AdmissionIsShut(ticket=ticket)
            # What was taken is noted, whatever is cancelled meanwhile.
            with anyio.CancelScope(shield=True):
                number = await self.shared.take(ticket)
                if number is not None:
                    self._taken[ticket] = number
                    return
            if anyio.current_time() >= until:
                raise AdmissionFull(ticket=ticket, places=self.places)
            await anyio.sleep(LOOK_SECONDS)
