# SPDX-License-Identifier: Apache-2.0
"""Virtual time: it stands still, moves when told, and leaps when everybody sleeps."""

import time
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from livery.adapters.virtual_clock import SeededIds, VirtualClock, leaping_loop

DAY = 86_400.0


def run_leaping(
    clock: VirtualClock, main: Callable[[], Awaitable[None]], patience: float = 0.0
) -> None:
    loop = {"loop_factory": leaping_loop(clock, patience_seconds=patience)}
    anyio.run(main, backend_options=loop)


@pytest.mark.anyio
async def test_it_stands_still_until_it_is_told() -> None:
    clock, woken = VirtualClock(), list[float]()

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep, 10)
        await anyio.sleep(0.05)
        before = (clock.monotonic(), list(woken))
        await clock.advance(9.5)
        nearly = (clock.monotonic(), list(woken))
        await clock.advance(0.5)

    assert before == (0.0, [])
    assert nearly == (9.5, [])
    assert woken == [10.0]


@pytest.mark.anyio
async def test_who_wakes_may_sleep_again_before_it_moves_on() -> None:
    clock, beats = VirtualClock(), list[float]()

    async def beat() -> None:
        for _ in range(5):
            await clock.sleep(2)
            beats.append(clock.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        await clock.advance(DAY)

    assert beats == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert clock.monotonic() == DAY


@pytest.mark.anyio
async def test_the_wall_may_jump_and_nobody_wakes() -> None:
    clock = VirtualClock()
    before = clock.now()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.sleep, 10)
        clock.shift_wall(-DAY)
        await clock.advance(1)
        sleeps = clock.next_due()
        tasks.cancel_scope.cancel()

    assert clock.now() == before - DAY + 1
    assert clock.monotonic() == 1
    assert sleeps == 10
    assert clock.next_due() is None


@pytest.mark.anyio
async def test_time_does_not_go_back() -> None:
    with pytest.raises(AssertionError, match="go back"):
        await VirtualClock().advance(-1)


def test_days_pass_in_no_time_when_everybody_sleeps() -> None:
    clock, seen = VirtualClock(), list[tuple[str, float]]()

    async def by_the_clock() -> None:
        for _ in range(3):
            await clock.sleep(2 * DAY)
            seen.append(("clock", clock.monotonic() / DAY))

    async def by_the_loop() -> None:
        for _ in range(2):
            await anyio.sleep(3 * DAY)
            seen.append(("loop", anyio.current_time() / DAY))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(by_the_clock)
            tasks.start_soon(by_the_loop)

    begun = time.monotonic()
    run_leaping(clock, main)

    assert time.monotonic() - begun < 60
    assert sorted(seen, key=lambda it: it[1])[:3] == [
        ("clock", 2.0),
        ("loop", 3.0),
        ("clock", 4.0),
    ]
    assert clock.monotonic() == 6 * DAY


def test_time_limits_live_in_the_same_time() -> None:
    clock = VirtualClock()

    async def main() -> None:
        with anyio.move_on_after(60) as limit:
            await clock.sleep(DAY)
        assert limit.cancelled_caught
        assert clock.monotonic() == 60
        with anyio.fail_after(60):
            await clock.sleep(59)
        assert clock.monotonic() == 119

    run_leaping(clock, main)


def test_time_stands_still_while_somebody_works() -> None:
    clock = VirtualClock()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.sleep, 10)
            for _ in range(1000):
                await anyio.lowlevel.checkpoint()
                assert clock.monotonic() == 0

    run_leaping(clock, main)

    assert clock.monotonic() == 10


def test_what_comes_from_outside_is_waited_for_when_nothing_is_due() -> None:
    clock = VirtualClock()

    async def main() -> None:
        # A thread's pause, not the loop's: that is what is waited for.
        await anyio.to_thread.run_sync(time.sleep, 0.05)

    run_leaping(clock, main)

    assert clock.monotonic() == 0


def test_patience_lets_a_thread_finish_before_the_leap() -> None:
    clock = VirtualClock()

    async def main() -> None:
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(time.sleep, 0.05)

    run_leaping(clock, main, patience=10.0)

    assert clock.monotonic() == 0


def test_ids_are_the_same_in_every_run_of_a_seed() -> None:
    first, again, other = SeededIds(1), SeededIds(1), SeededIds(2)
    made = [first.fresh("claim") for _ in range(100)]

    assert [again.fresh("claim") for _ in range(100)] == made
    assert not {other.fresh("claim") for _ in range(100)} & set(made)
