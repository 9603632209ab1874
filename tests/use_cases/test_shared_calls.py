# SPDX-License-Identifier: Apache-2.0
"""Calls are shared by equal callers, outlive them, and end with their block."""

from collections.abc import Awaitable, Callable

import anyio
import attrs
import pytest

from livery.ports.provided.shared_calls import SharedCalls, open_shared_calls

pytestmark = pytest.mark.anyio

WAIT_SECONDS = 60.0


@attrs.define(eq=False)
class Work:
    """Begins, waits to be let go, and tidies up what no cancellation may cut off."""

    begun: int = 0
    tidied: int = 0
    is_begun: anyio.Event = attrs.field(factory=anyio.Event)
    go: anyio.Event = attrs.field(factory=anyio.Event)

    async def __call__(self) -> str:
        self.begun += 1
        self.is_begun.set()
        try:
            await self.go.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                self.tidied += 1
        return "done"


async def left_alone(calls: SharedCalls, work: Callable[[], Awaitable[str]]) -> None:
    """Ask, and go away before there is an answer."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await calls("key", work, linger_seconds=None)


async def test_equal_callers_share_what_outlives_one_of_them() -> None:
    work, found = Work(), list[str]()
    async with open_shared_calls() as calls:

        async def ask() -> None:
            found.append(await calls("key", work, linger_seconds=0.0))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(left_alone, calls, work)
            group.start_soon(ask)
            await work.is_begun.wait()
            assert calls.under_way("key")
            work.go.set()

    assert found == ["done", "done"]
    assert work.begun == 1


async def test_what_nobody_asks_for_any_more_is_cancelled_when_it_may_be() -> None:
    lingers, goes_on = Work(), Work()
    async with open_shared_calls() as calls:
        with anyio.move_on_after(0.01):
            await calls("lingers", lingers, linger_seconds=0.01)
        await left_alone(calls, goes_on)
        with anyio.fail_after(WAIT_SECONDS):
            while calls.under_way("lingers"):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert calls.under_way("key")
        goes_on.go.set()
        assert await calls("key", goes_on, linger_seconds=None) == "done"

    assert (lingers.tidied, goes_on.tidied, goes_on.begun) == (1, 1, 1)


async def test_what_is_under_way_at_the_end_is_cancelled_and_tidies_up() -> None:
    work = Work()
    async with open_shared_calls() as calls:
        await left_alone(calls, work)
        await work.is_begun.wait()

    assert work.tidied == 1
    assert not calls.under_way("key")
    with pytest.raises(RuntimeError, match="the calls were ended"):
        await calls("key", work, linger_seconds=None)
    assert work.begun == 1


@pytest.mark.parametrize("wrong", [ValueError, GeneratorExit])
async def test_what_it_raises_is_told_to_all_and_nothing_is_begun_anew(
    wrong: type[BaseException],
) -> None:
    begun, told = list[int](), list[BaseException]()

    async def work() -> str:
        begun.append(1)
        await anyio.lowlevel.checkpoint()
        raise wrong

    async with open_shared_calls() as calls:

        async def ask() -> None:
            with pytest.raises(wrong) as caught:
                await calls("key", work, linger_seconds=None)
            told.append(caught.value)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)

    assert (len(begun), len(told)) == (1, 2)
