# SPDX-License-Identifier: Apache-2.0
"""Who sleeps until when, in order.

Those who are due within the same short span are kept together, and put in order when
that span comes. A heap of them all would be looked at all over for each that wakes: with
100,000 who sleep that cost more than waking them. A span is so short that few are in it,
for who sleeps less long than it lasts is put among them.
"""

import asyncio
import heapq
import itertools
from bisect import insort
from collections.abc import Iterator
from typing import Final, TypeAlias

import attrs

SPANS_A_SECOND: Final = 32

Woken: TypeAlias = "asyncio.Future[None]"
"""Done when its sleeper woke, or is cancelled."""

_Sleeper = tuple[float, int, Woken]
"""When one is due, and its number, both negative: the first is the last in order, where
a list is taken from. Who slept first wakes first."""


@attrs.define(eq=False)
class Sleepers:
    """Those who sleep; some of them may be gone meanwhile."""

    _soon: list[_Sleeper] = attrs.field(factory=list[_Sleeper], init=False)
    """Those of the span at hand and of any before, in order."""
    _span: int = attrs.field(default=-1, init=False)
    """The span at hand, by its number."""
    _later: dict[int, list[_Sleeper]] = attrs.field(
        factory=dict[int, list[_Sleeper]], init=False
    )
    """The others by their span, in no order."""
    _spans: list[int] = attrs.field(factory=list[int], init=False)
    """A heap of those spans."""
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def add(self, due: float, woken: Woken) -> None:
        """Add one who sleeps until `due`."""
        sleeper = (-due, -next(self._numbers), woken)
        span = int(due * SPANS_A_SECOND)
        if span <= self._span:
            insort(self._soon, sleeper)
        elif (others := self._later.get(span)) is not None:
            others.append(sleeper)
        else:
            self._later[span] = [sleeper]
            heapq.heappush(self._spans, span)

    def next_due(self) -> float | None:
        """Return when the first is due; None when nobody sleeps."""
        while True:
            while self._soon and self._soon[-1][2].done():
                self._soon.pop()
            if self._soon:
                return -self._soon[-1][0]
            if not self._spans:
                return None
            self._span = heapq.heappop(self._spans)
            self._soon = sorted(self._later.pop(self._span))

    def wake_first(self) -> None:
        """Wake the one who is due first, as `next_due` has just told."""
        self._soon.pop()[2].set_result(None)
