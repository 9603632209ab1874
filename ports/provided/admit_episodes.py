# SPDX-License-Identifier: Apache-2.0
"""Admit episodes: first come, first served, so many at once over all processes.

Who waits holds nothing, and waits only so long. Within a process the order is that of
asking; between processes whoever looks first when a place becomes free has it.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import attrs

from ...domain.admissions import AdmissionFull, AdmissionIsShut, Ticket
from ..required.clock import Clock
from ..required.faults import Fault
from .admit_sessions import AdmitSessions
from .shared_places import SharedPlaces

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.25
"""How often who waits for another process looks whether a place is free."""
WAITING_MAX: Final = 1_000_000
"""How many wait in one process; an episode that waits costs a few KiB."""


@attrs.define(kw_only=True, eq=False)
class AdmitEpisodes:
    """The queue of this process, and the places of all."""

    clock: Clock
    places: Callable[[], Awaitable[int]]
    """How many there are: asked when the first episode comes, until it was told."""
    shared: Callable[[int], SharedPlaces]
    patience_seconds: float
    waited: Callable[[float], None] = lambda seconds: None
    """Told how many seconds each ticket waited that was given a place."""
    waiting: int = attrs.field(default=0, init=False)
    """How many tickets wait, for this process's turn or for a place of all."""
    _open: "_Open | None" = attrs.field(default=None, init=False)
    _opening: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    _turn: anyio.Lock = attrs.field(
        factory=lambda: anyio.Lock(fast_acquire=True), init=False
    )
    _shut: bool = attrs.field(default=False, init=False)
    _tidied: bool = attrs.field(default=False, init=False)
    _spared: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    @asynccontextmanager
    async def place(self, ticket: Ticket) -> AsyncGenerator[None]:
        """Have a place inside the block, once one is free.

        Raises:
            AdmissionFull: None became free in time.
            AdmissionIsShut: Shutdown has begun.
            Fault: Nobody can tell how many there are.
        """
        taken: list[int] = []
        begun = self.clock.monotonic()
        until = anyio.current_time() + self.patience_seconds
        opened = self._open or await self._opened()
        self.waiting += 1
        waits = True
        try:
            if not opened.queue.admit_at_once(ticket):
                await opened.queue.admit(ticket)
            spare = None if self._turn.locked() else opened.shared.take_spare()
            if spare is not None:
                taken.append(spare)
            else:
                with anyio.move_on_after(until - anyio.current_time()):
                    await self._taken(opened, ticket, taken)
            if not taken:
                raise AdmissionFull(ticket=ticket, places=opened.shared.places)
            self.waiting -= 1
            waits = False
            self.waited(self.clock.monotonic() - begun)
            yield
        finally:
            self.waiting -= waits
            try:
                for number in taken:
                    await self._leave(opened.shared, number)
            finally:
                opened.queue.leave(ticket)

    async def tidy(self) -> None:
        """Have places put aside for whoever comes next, and give back those that nobody
        wants after a moment; until cancelled, and then all of them.
        """
        self._tidied = True
        try:
            while True:
                await self._spared.wait()
                self._spared = anyio.Event()
                await self.clock.sleep(LOOK_SECONDS)
                await self._give_back_spare()
        finally:
            self._tidied = False
            with anyio.CancelScope(shield=True):
                await self._give_back_spare()

    def shut(self) -> None:
        """Admit nobody any more."""
        self._shut = True
        if self._open is not None:
            self._open.queue.shut()

    async def _leave(self, shared: SharedPlaces, number: int) -> None:
        if self._tidied and shared.put_aside(number):
            self._spared.set()
            return
        try:
            with anyio.CancelScope(shield=True):
                await shared.give_back(number)
        except Fault as fault:
            # What was done in the place is not undone by that.
            log.warning("A place is given back later: %s", fault)

    async def _give_back_spare(self) -> None:
        if self._open is None:
            return
        try:
            await self._open.shared.give_back_spare()
        except Fault as fault:
            # Like a place of a dead process, it is free again once this one has ended.
            log.warning("A place was not given back: %s", fault)

    async def _opened(self) -> "_Open":
        async with self._opening:
            if self._open is None:
                places = await self.places()
                queue = AdmitSessions(
                    clock=self.clock,
                    places=places,
                    patience_seconds=self.patience_seconds,
                    waiting_max=WAITING_MAX,
                )
                if self._shut:
                    queue.shut()
                self._open = _Open(queue, self.shared(places))
        return self._open

    async def _taken(self, opened: "_Open", ticket: Ticket, taken: list[int]) -> None:
        """Put the number of a place into `taken`, which survives a cancellation."""
        async with self._turn:
            while not taken:
                if self._shut:
                    raise AdmissionIsShut(ticket=ticket)
                with anyio.CancelScope(shield=True):
                    number = await opened.shared.take(ticket)
                    if number is not None:
                        taken.append(number)
                        return
                await anyio.sleep(LOOK_SECONDS)


@attrs.frozen
class _Open:
    """The queue, once it is known how many places there are."""

    queue: AdmitSessions
    shared: SharedPlaces
