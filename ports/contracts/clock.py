# SPDX-License-Identifier: Apache-2.0
"""The contract suite of `Clock` and `Ids`.

Run every case of `CASES` over a `ClockContext`. Nothing is asked that only a fast
machine could keep: a sleep may be too long, never too short.
"""

import math
import re
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.lowlevel
import attrs

from ..required.clock import Clock, Ids
from .cases import Case, check_cases

SHORT_SECONDS: Final = 0.05
PASSES_MAX: Final = 400
"""How often time is let pass before a sleeper counts as one that never wakes."""
IDS: Final = 10_000
FORM: Final = r"-[0-9a-f]{32}"
SECONDS_OF_2001: Final = 1_000_000_000.0


@attrs.frozen(kw_only=True)
class ClockContext:
    """A clock and a source of ids."""

    clock: Clock
    ids: Ids
    let_pass: Callable[[float], Awaitable[None]]
    """Let that much time pass: wait for it, or move the clock."""


async def it_never_goes_back(context: ClockContext) -> None:
    """`monotonic` stands or grows, and grows as time passes."""
    readings = [context.clock.monotonic() for _ in range(1000)]
    await context.let_pass(SHORT_SECONDS)
    after = context.clock.monotonic()

    assert readings == sorted(readings)
    assert after >= readings[0] + SHORT_SECONDS


async def now_is_unix_time(context: ClockContext) -> None:
    """`now` is in seconds, of our days, and moves with time."""
    before = context.clock.now()
    await context.let_pass(SHORT_SECONDS)

    assert before > SECONDS_OF_2001
    assert context.clock.now() > before


async def a_sleep_is_never_short(context: ClockContext) -> None:
    """Who sleeps wakes when that much time has passed, and not before."""
    for seconds in (0.001, SHORT_SECONDS, SHORT_SECONDS * 4):
        slept = await _slept(context, seconds)
        assert slept >= seconds, f"asked for {seconds}, slept {slept}"


async def there_is_no_sleep_in_the_past(context: ClockContext) -> None:
    """A sleep that is not positive is over at once, without time passing."""
    with anyio.fail_after(30):
        for seconds in (0.0, -0.0, -1.0, -math.inf, math.nan):
            await context.clock.sleep(seconds)


async def sleepers_wake_in_order(context: ClockContext) -> None:
    """Who is due first wakes first, whoever lay down first."""
    woken: list[int] = []

    async def sleep(times: int) -> None:
        await context.clock.sleep(SHORT_SECONDS * times)
        woken.append(times)

    async with anyio.create_task_group() as tasks:
        for times in (5, 1, 3, 2, 4):
            tasks.start_soon(sleep, times)
        await _pass_until(context, lambda: len(woken) == 5)

    assert woken == [1, 2, 3, 4, 5]


async def a_sleep_can_be_cancelled(context: ClockContext) -> None:
    """A sleeper that is cancelled is gone, and the others sleep on."""
    woken: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await context.clock.sleep(seconds)
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep, "kept", SHORT_SECONDS * 2)
        async with anyio.create_task_group() as cancelled:
            cancelled.start_soon(sleep, "cancelled", SHORT_SECONDS)
            await anyio.lowlevel.checkpoint()
            cancelled.cancel_scope.cancel()
        await _pass_until(context, lambda: bool(woken))

    assert woken == ["kept"]


async def ids_have_one_form(context: ClockContext) -> None:
    """An id is its prefix, a hyphen and 32 hexadecimal digits."""
    for prefix in ("claim", "s-1", ""):
        assert re.fullmatch(re.escape(prefix) + FORM, context.ids.fresh(prefix))


async def ids_are_fresh(context: ClockContext) -> None:
    """No id comes twice, whatever its prefix."""
    made = [context.ids.fresh(prefix) for prefix in ("a", "b") for _ in range(IDS)]

    assert len({name.rpartition("-")[2] for name in made}) == len(made)


CASES: Final[tuple[Case[ClockContext], ...]] = check_cases(
    (
        Case(name="it never goes back", run=it_never_goes_back),
        Case(name="now is unix time", run=now_is_unix_time),
        Case(name="a sleep is never short", run=a_sleep_is_never_short),
        Case(name="there is no sleep in the past", run=there_is_no_sleep_in_the_past),
        Case(name="sleepers wake in order", run=sleepers_wake_in_order),
        Case(name="a sleep can be cancelled", run=a_sleep_can_be_cancelled),
        Case(name="ids have one form", run=ids_have_one_form),
        Case(name="ids are fresh", run=ids_are_fresh),
    )
)


async def _slept(context: ClockContext, seconds: float) -> float:
    """Return how long a sleep lasted by `monotonic`."""
    lasted: list[float] = []

    async def sleep() -> None:
        begun = context.clock.monotonic()
        await context.clock.sleep(seconds)
        lasted.append(context.clock.monotonic() - begun)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep)
        await _pass_until(context, lambda: bool(lasted))
    return lasted[0]


async def _pass_until(context: ClockContext, done: Callable[[], bool]) -> None:
    for _ in range(PASSES_MAX):
        if done():
            return
        await context.let_pass(SHORT_SECONDS / 10)
    assert done(), f"{PASSES_MAX * SHORT_SECONDS / 10:g} s passed and nobody woke"
