# SPDX-License-Identifier: Apache-2.0
"""Whoever waits for a latch goes on when it is set, however many wait and since when."""

import anyio
import pytest
from anyio.lowlevel import checkpoint

from livery.ports.provided.latch import Latch

pytestmark = pytest.mark.anyio

WAITERS = 3


async def test_all_who_wait_go_on_when_it_is_set() -> None:
    latch, gone_on = Latch(), list[int]()

    async def wait(number: int) -> None:
        await latch.wait()
        gone_on.append(number)

    async with anyio.create_task_group() as group:
        for number in range(WAITERS):
            group.start_soon(wait, number)
        for _ in range(WAITERS):
            await checkpoint()
        assert gone_on == []
        latch.set()

    assert gone_on == list(range(WAITERS))


async def test_who_comes_later_goes_on_at_once() -> None:
    latch = Latch()
    assert not latch.is_set()

    latch.set()

    assert latch.is_set()
    with anyio.fail_after(1):
        await latch.wait()


async def test_who_waits_no_more_is_not_waited_for() -> None:
    latch = Latch()

    with anyio.move_on_after(0) as scope:
        await latch.wait()
    latch.set()

    assert scope.cancelled_caught
    with anyio.fail_after(1):
        await latch.wait()
