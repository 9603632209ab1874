# SPDX-License-Identifier: Apache-2.0
"""Shared places: so many at once, counted over all processes on one journal.

Taking a place is one append that only one writer can make, and giving it back forgets
it. The journal is looked through only when every place seems to be taken.
"""

from typing import Final

import anyio
import attrs

from ...domain.admissions import Ticket
from ...domain.places import DECIDER, PlaceIsTaken, TakePlace
from ..required.clock import Clock
from ..required.holders import Holders
from ..required.journal import Journal, StreamMoved, place_stream
from .carry_out import Standing, carry_out, read_state

CATEGORY: Final = "places"

_FREE: Final = Standing(DECIDER.initial, 0)


@attrs.define(kw_only=True, eq=False)
class SharedPlaces:
    """The places of one name, as this process sees them."""

    journal: Journal
    clock: Clock
    holders: Holders
    name: str
    places: int
    _mine: set[int] = attrs.field(factory=set[int], init=False)
    _others: set[int] = attrs.field(factory=set[int], init=False)
    """Those that another process was seen to have."""

    async def take(self, ticket: Ticket) -> int | None:
        """Return the number of a place that is the ticket's now; None: all are taken."""
        number = await self._take_one(ticket)
        if number is None and self._others:
            await self._look()
            number = await self._take_one(ticket)
        return number

    async def give_back(self, number: int) -> None:
        """Give a place back that this process has."""
        self._mine.discard(number)
        await self._forget(number, version=1)

    async def _take_one(self, ticket: Ticket) -> int | None:
        for number in range(self.places):
            if number in self._mine or number in self._others:
                continue
            self._mine.add(number)
            try:
                # Cut off in between, it would be taken and nobody would know.
                with anyio.CancelScope(shield=True):
                    await self._take(number, ticket)
            except PlaceIsTaken:
                self._mine.discard(number)
                self._others.add(number)
            except BaseException:
                self._mine.discard(number)
                raise
            else:
                return number
        return None

    async def _take(self, number: int, ticket: Ticket) -> None:
        take = TakePlace(ticket=ticket, holder=self.holders.own, at=self.clock.now())
        stream = place_stream(self.name, number)
        await carry_out(self.journal, stream, DECIDER, take, known=_FREE)

    async def _look(self) -> None:
        """Learn which places others have, and free those of dead processes."""
        prefix = f"{self.name}/"
        taken = {
            int(key.removeprefix(prefix))
            for key in await self.journal.open_streams(CATEGORY)
            if key.startswith(prefix)
        }
        self._others &= taken
        for number in tuple(self._others - self._mine):
            stream = place_stream(self.name, number)
            standing = await read_state(self.journal, stream, DECIDER)
            held = standing.state.taken
            if held is None or not await self.holders.alive(held.holder):
                await self._forget(number, version=standing.version)
                self._others.discard(number)

    async def _forget(self, number: int, *, version: int) -> None:
        try:
            await self.journal.forget(
                place_stream(self.name, number), expected_version=version
            )
        except StreamMoved:
            return  # Somebody else has freed it, or has it by now.
