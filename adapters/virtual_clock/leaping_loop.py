# SPDX-License-Identifier: Apache-2.0
"""An event loop that lives in the time of a virtual clock.

Timers, time limits and the clock's sleepers share one time. When no task can go on
and no descriptor is ready, the clock leaps to the next moment at which something is
due, so that hours pass in no time. When nothing is due either, the loop waits for
what comes from outside.

What a thread or another process does takes no virtual time: it is given
`patience_seconds` of real time before each leap, and is leapt over after that.
"""

import asyncio
from collections.abc import Callable
from selectors import DefaultSelector, SelectorKey

from .clock import VirtualClock


def leaping_loop(
    clock: VirtualClock, *, patience_seconds: float = 0.0
) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of loops in the time of `clock`.

    For `anyio.run(…, backend_options={"loop_factory": …})`.
    """
    return lambda: _LeapingLoop(clock, _LeapingSelector(clock, patience_seconds))


class _LeapingLoop(asyncio.SelectorEventLoop):
    """Asyncio's loop; its time can only be replaced by inheritance."""

    def __init__(self, clock: VirtualClock, selector: DefaultSelector) -> None:
        self._virtual_clock = clock
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual_clock.monotonic()


class _LeapingSelector(DefaultSelector):
    """The system's selector, which leaps where that would wait."""

    def __init__(self, clock: VirtualClock, patience_seconds: float) -> None:
        super().__init__()
        self._clock = clock
        self._patience_seconds = patience_seconds

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        moments = [] if timeout is None else [self._clock.monotonic() + timeout]
        if (due := self._clock.next_due()) is not None:
            moments.append(due)
        if not moments:
            return super().select(None)
        if ready := super().select(self._patience_seconds):
            return ready
        self._clock.move_to(min(moments))
        return []
