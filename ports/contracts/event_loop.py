# SPDX-License-Identifier: Apache-2.0
"""Whether the event loop answers while something is done in it.

A busy machine delays every program. What it costs is measured in a thread
beside the loop at the same time, so that only what holds up the loop counts.
"""

import threading
import time
from collections.abc import Awaitable, Callable

import anyio

TICK_SECONDS = 0.01
LAG_SECONDS_MAX = 0.1
"""What nearly every turn of the event loop stays below."""
LAG_SECONDS_WORST = 1.0
"""What no turn takes."""
NEARLY_EVERY = 0.95
BUSY_TIMES = 3.0
"""How much worse than the thread a machine may treat the loop."""


async def check_loop_answers(work: Callable[[], Awaitable[None]]) -> None:
    """Do `work`, and demand that the loop's turns stayed short meanwhile."""
    of_loop: list[float] = []
    of_machine: list[float] = []
    is_over = threading.Event()

    def tick_beside() -> None:
        start = time.monotonic()
        while not is_over.wait(TICK_SECONDS):
            of_machine.append(time.monotonic() - start - TICK_SECONDS)
            start = time.monotonic()

    async def tick() -> None:
        while True:
            start = time.monotonic()
            await anyio.sleep(TICK_SECONDS)
            of_loop.append(time.monotonic() - start - TICK_SECONDS)

    beside = threading.Thread(target=tick_beside, name="machine lag", daemon=True)
    beside.start()
    try:
        async with anyio.create_task_group() as ticking:
            ticking.start_soon(tick)
            await work()
            ticking.cancel_scope.cancel()
    finally:
        is_over.set()
        beside.join()

    for share, most in ((NEARLY_EVERY, LAG_SECONDS_MAX), (1.0, LAG_SECONDS_WORST)):
        lag, busy = _at(of_loop, share), _at(of_machine, share)
        assert lag <= most + BUSY_TIMES * busy, (
            f"{share:.0%} of the loop's turns took up to {lag:.3f} s"
            f" ({busy:.3f} s beside it)"
        )


def _at(lags: list[float], share: float) -> float:
    ordered = sorted(lags) or [0.0]
    return max(0.0, ordered[min(int(len(ordered) * share), len(ordered) - 1)])
