# SPDX-License-Identifier: Apache-2.0
"""Shared places: so many at once, counted over all processes on one journal.

Taking a place is one append that only one writer can make, and giving it back forgets
it. The journal is looked through only when every place seems to be taken. The place of
a dead process is free, unless what it was taken for goes on without that process.
"""

import heapq
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import attrs

from ...domain.admissions import Ticket
from ...domain.claims import Holder
from ...domain.places import DECIDER, Place, PlaceIsTaken, PlaceTaken, TakePlace
from ..required.clock import Clock
from ..required.holders import Holders
from ..required.journal import Journal, StreamMoved, place_stream
from .carry_out import Standing, carry_out, read_state

CATEGORY: Final = "places"
HAD_SECONDS_MAX: Final = 3.0
"""How long a process hands a place on to itself before it has to go round."""


async def _never(_: Ticket) -> bool:
    return False


def _all_numbers(shared: "SharedPlaces") -> list[int]:
    return list(range(shared.places))


_FREE: Final = Standing(DECIDER.initial, 0)


@attrs.define(kw_only=True, eq=False)
class SharedPlaces:
    """The places of one name, as this process sees them."""

    journal: Journal
    clock: Clock
    holders: Holders
    name: str
    places: int
    outlives: Callable[[Ticket], Awaitable[bool]] = _never
    """Whether what a dead process took a place for still needs it."""
    _mine: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    """Those of this process, put aside or not, with the version of their streams."""
    _since: dict[int, float] = attrs.field(factory=dict[int, float], init=False)
    _spare: list[int] = attrs.field(factory=list[int], init=False)
    _to_try: list[int] = attrs.field(
        default=attrs.Factory(_all_numbers, takes_self=True), init=False
    )
    """A heap: those that are not known to be anybody's. With a hundred thousand taken,
    the next one is found as quickly as the first."""
    _others: set[int] = attrs.field(factory=set[int], init=False)
    """Those that another process was seen to have."""
    _left: dict[int, Standing[Place]] = attrs.field(
        factory=dict[int, Standing[Place]], init=False
    )
    """Those that a dead process was seen to have left."""

    async def take(self, ticket: Ticket) -> int | None:
        """Return the number of a place that is the ticket's now; None: all are taken."""
        if (spare := self.take_spare()) is not None:
            return spare
        number = await self._take_one(ticket)
        if number is None and self._others:
            await self._look()
            number = await self._take_one(ticket)
        return number

    def take_spare(self) -> int | None:
        """Return the number of a place that was put aside here; None: there is none."""
        return self._spare.pop() if self._spare else None

    def put_aside(self, number: int) -> bool:
        """Keep a place for who asks here next, unless this process had it for long.

        It has to go round then, so that other processes get theirs.
        """
        had = self.clock.monotonic() - self._since[number]
        if had < HAD_SECONDS_MAX:
            self._spare.append(number)
        return had < HAD_SECONDS_MAX

    async def give_back_spare(self) -> None:
        """Give back every place that was put aside; cut off, some of them."""
        while self._spare:
            # Cut off in between, one would be nobody's, and yet taken.
            with anyio.CancelScope(shield=True):
                await self.give_back(self._spare.pop())

    async def give_back(self, number: int) -> None:
        """Give a place back that this process has."""
        self._since.pop(number, None)
        version = self._mine.pop(number)
        try:
            await self.journal.forget(
                place_stream(self.name, number), expected_version=version
            )
        except StreamMoved:
            pass  # Somebody took this process for dead, and has the place.
        finally:
            heapq.heappush(self._to_try, number)

    async def _take_one(self, ticket: Ticket) -> int | None:
        while self._to_try:
            number = heapq.heappop(self._to_try)
            self._mine[number] = 0
            try:
                # Cut off in between, it would be taken and nobody would know.
                with anyio.CancelScope(shield=True):
                    self._mine[number] = await self._take(number, ticket)
            except PlaceIsTaken:
                del self._mine[number]
                self._others.add(number)
            except BaseException:
                del self._mine[number]
                heapq.heappush(self._to_try, number)
                raise
            else:
                self._since[number] = self.clock.monotonic()
                return number
        return None

    async def _take(self, number: int, ticket: Ticket) -> int:
        known = self._left.pop(number, _FREE)
        take = TakePlace(
            ticket=ticket,
            holder=self.holders.own,
            taken_from=known.state.taken,
            at=self.clock.now(),
        )
        stream = place_stream(self.name, number)
        return (
            await carry_out(self.journal, stream, DECIDER, take, known=known)
        ).version

    async def _look(self) -> None:
        """Learn which places others have, and which a dead process has left."""
        prefix = f"{self.name}/"
        taken = {
            int(key.removeprefix(prefix))
            for key in await self.journal.open_streams(CATEGORY)
            if key.startswith(prefix)
        }
        for number in self._others - taken:
            self._is_free(number)
        alive: dict[Holder, bool] = {}
        for number in tuple(self._others - self._mine.keys()):
            stream = place_stream(self.name, number)
            standing = await read_state(self.journal, stream, DECIDER)
            held = standing.state.taken
            if held is not None and await self._is_needed(held, alive):
                continue
            if number in self._others:  # Another look may have been first.
                self._left[number] = standing
                self._is_free(number)

    def _is_free(self, number: int) -> None:
        self._others.discard(number)
        heapq.heappush(self._to_try, number)

    async def _is_needed(self, held: PlaceTaken, alive: dict[Holder, bool]) -> bool:
        """Tell whether a place that is not known as ours is another's; `alive` is
        what was found of holders on the same look.
        """
        if held.holder == self.holders.own:
            return False  # It could not be given back when it was to be.
        if held.holder not in alive:
            alive[held.holder] = await self.holders.alive(held.holder)
        return alive[held.holder] or await self.outlives(held.ticket)
