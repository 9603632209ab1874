# SPDX-License-Identifier: Apache-2.0
"""A clock that stands still until it is told to move.

`advance` moves it, moment by moment: whoever is due wakes at that moment and may
sleep again before the next. Over a `leaping_loop` it also moves by itself, when
everybody sleeps, to the moment at which the first of them is due.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Iterator
from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from ...domain.deciders import Instant
from .sleepers import Sleepers

BEGINNING: Final = Instant(1_700_000_000.0)
SETTLE_TURNS: Final = 50
"""How many turns of the loop those who woke get before the clock goes on."""
ID_DIGITS: Final = 32


@attrs.define(eq=False, kw_only=True)
class VirtualClock:
    """Time that moves only when told, or when everybody sleeps."""

    beginning: Instant = BEGINNING
    """The wall clock's time when this clock begins."""
    _elapsed: float = attrs.field(default=0.0, init=False)
    _wall_shift: float = attrs.field(default=0.0, init=False)
    _sleepers: Sleepers = attrs.field(factory=Sleepers, init=False)

    def now(self) -> Instant:
        """Return the wall clock's time in Unix seconds."""
        return Instant(self.beginning + self._elapsed + self._wall_shift)

    def monotonic(self) -> float:
        """Return the seconds since the beginning."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has moved that far; at once when not positive."""
        if not seconds > 0:
            await checkpoint()
            return
        # No event: with 100,000 who sleep, each object around a future counts.
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.add(self._elapsed + seconds, woken)
        await woken

    async def advance(self, seconds: float) -> None:
        """Move the clock, and wake all who are due in between, each at its moment."""
        assert seconds >= 0, "time does not go back"
        target = self._elapsed + seconds
        await _settle()
        while (due := self.next_due()) is not None and due <= target:
            self.move_to(due)
            await _settle()
        self.move_to(target)
        await _settle()

    def shift_wall(self, seconds: float) -> None:
        """Let the wall clock jump, as one does that is set; nobody wakes of it."""
        self._wall_shift += seconds

    def next_due(self) -> float | None:
        """Return when the first sleeper is due; None when nobody sleeps."""
        return self._sleepers.next_due()

    def move_to(self, moment: float) -> None:
        """Set `monotonic` to `moment`, if it is later, and wake who is due then."""
        self._elapsed = max(self._elapsed, moment)
        while (due := self._sleepers.next_due()) is not None and due <= self._elapsed:
            self._sleepers.wake_first()


@attrs.define
class SeededIds:
    """Ids that are the same in every run with the same seed."""

    seed: int = 0
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def fresh(self, prefix: str) -> str:
        """Return `prefix`, a hyphen and 32 hexadecimal digits."""
        word = f"{self.seed}/{next(self._numbers)}"
        return f"{prefix}-{hashlib.sha256(word.encode()).hexdigest()[:ID_DIGITS]}"


async def _settle() -> None:
    for _ in range(SETTLE_TURNS):
        await checkpoint()
