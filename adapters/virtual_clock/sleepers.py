# SPDX-License-Identifier: Apache-2.0
"""Who sleeps until when, in order.

Those who are due within the same second are kept together, and put in order when that
second comes. A heap of them all would be looked at all over for each that wakes: with
100,000 who sleep that cost more than waking them.
"""

import asyncio
import heapq
import itertools
from bisect import insort
from collections.abc import Iterator
from typing import TypeAlias

import attrs

Woken: TypeAlias = "asyncio.Future[None]"
"""Done when its sleeper woke, or is cancelled."""

_Sleeper = tuple[float, int, Woken]
"""When one is due, and its number, both negative: the first is the last in order, where
a list is taken from. Who slept first wakes first."""


@attrs.define(eq=False)
class Sleepers:
    """Those who sleep; some of them may be gone meanwhile."""

    _soon: list[_Sleeper] = attrs.field(factory=list[_Sleeper], init=False)
    """Those of the second at hand and of any before, in order."""
    _second: int = attrs.field(default=-1, init=False)
    """The second at hand."""
    _later: dict[int, list[_Sleeper]] = attrs.field(
        factory=dict[int, list[_Sleeper]], init=False
    )
    """The others by their second, in no order."""
    _seconds: list[int] = attrs.field(factory=list[int], init=False)
    """A heap of those seconds."""
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def add(self, due: float, woken: Woken) -> None:
        """Add one who sleeps until `due`."""
        sleeper = (-due, -next(self._numbers), woken)
        second = int(due)
        if second <= self._second:
            insort(self._soon, sleeper)
        elif (others := self._later.get(second)) is not None:
            others.append(sleeper)
        else:
            self._later[second] = [sleeper]
            heapq.heappush(self._seconds, second)

    def next_due(self) -> float | None:
        """Return when the first is due; None when nobody sleeps."""
        while True:
            while self._soon and self._soon[-1][2].done():
                self._soon.pop()
            if self._soon:
                return -self._soon[-1][0]
            if not self._seconds:
                return None
            self._second = heapq.heappop(self._seconds)
            self._soon = sorted(self._later.pop(self._second))

    def wake_first(self) -> None:
        """Wake the one who is due first, as `next_due` has just told."""
        self._soon.pop()[2].set_result(None)
