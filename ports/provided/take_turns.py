# SPDX-License-Identifier: Apache-2.0
"""Take turns: what keeps the loop busy goes one after the other, with air in between.

Before each turn the loop serves whoever waits for it, for a bounded time. Turns are
taken in the order in which they were asked for.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import attrs

from ..required.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

YIELD_SECONDS: Final = 0.1
IDLE_SECONDS: Final = 0.000_5
"""A round of the loop that is shorter than this served nobody."""
IDLE_ROUNDS: Final = 3
"""After so many such rounds nobody waits."""


@attrs.define(kw_only=True, eq=False)
class TakeTurns:
    """The queue of one process."""

    clock: Clock
    yield_seconds: float = YIELD_SECONDS
    """How long the loop serves others before a turn, at most."""
    check: Callable[[], None] = lambda: None
    """Raises when no turn is to begin any more."""
    done: str = "Built"
    """What is logged of a turn that is over."""
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    _waiting: int = attrs.field(default=0, init=False)

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` comes to, done when its turn has come.

        Raises:
            Exception: What `check` or the work raises.
        """
        asked = self.clock.monotonic()
        place = self._waiting
        self._waiting += 1
        try:
            async with self._turn:
                self.check()
                await self._serve_others()
                self.check()
                began = self.clock.monotonic()
                try:
                    return await work()
                finally:
                    log.info(
                        "%s: %d were before it, waited %.3f s, took %.3f s",
                        self.done,
                        place,
                        began - asked,
                        self.clock.monotonic() - began,
                    )
        finally:
            self._waiting -= 1

    async def _serve_others(self) -> None:
        """Let the loop go round until nobody waits, or the time is over."""
        until = self.clock.monotonic() + self.yield_seconds
        idle = 0
        while idle < IDLE_ROUNDS and (began := self.clock.monotonic()) < until:
            await anyio.lowlevel.checkpoint()
            short = self.clock.monotonic() - began < IDLE_SECONDS
            idle = idle + 1 if short else 0
