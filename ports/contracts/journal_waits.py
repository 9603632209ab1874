# SPDX-License-Identifier: Apache-2.0
"""Cases for `Journal.moved`: who waits is told in time, and of nothing else."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ...domain import claims
from ..required.journal import (
    Journal,
    Stream,
)
from .cases import Case, check_cases
from .journal_context import (
    AGAIN,
    PATIENCE_SECONDS,
    JournalContext,
    append_two,
    events_of,
    fresh,
)

ROUNDS: Final = 12
NOTICE_SECONDS_MAX: Final = 1.0
"""How late another process's append may be noticed."""
MARGIN_SECONDS: Final = 2.0
"""What a busy machine may add to that."""


async def a_waiter_is_told_at_once(context: JournalContext) -> None:
    """Who waits wakes with the version, and who comes too late need not wait."""
    stream = fresh()
    await context.journal.append(stream, events_of(1), expected_version=0)

    await _noticed(context.journal, context.journal, stream, within=MARGIN_SECONDS)

    with anyio.fail_after(MARGIN_SECONDS):
        assert await context.journal.moved(stream, after=0) == 2
        assert await context.journal.moved(stream, after=1) == 2


async def a_waiter_is_told_of_others(context: JournalContext) -> None:
    """An append by another process is noticed within a second."""
    assert context.open_again is not None, "asked for in hooks"
    within = NOTICE_SECONDS_MAX + MARGIN_SECONDS
    async with context.open_again() as other:
        for waits, writes in ((context.journal, other), (other, context.journal)):
            stream = fresh()
            await context.journal.append(stream, events_of(1), expected_version=0)

            await _noticed(waits, writes, stream, within=within)


async def other_streams_wake_nobody(context: JournalContext) -> None:
    """Who waits is not woken by another stream, nor by where its own stands."""
    stream, woken = fresh(), anyio.Event()
    await append_two(context.journal, stream)

    async def wait() -> None:
        assert await context.journal.moved(stream, after=2) == 3
        woken.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await append_two(context.journal, fresh())
        assert not woken.is_set()
        with anyio.fail_after(PATIENCE_SECONDS):
            await context.journal.append(stream, events_of(1), expected_version=2)
            await woken.wait()


async def a_waiter_is_told_of_an_end(context: JournalContext) -> None:
    """Who waits wakes when the stream is forgotten, and who comes later is told."""
    journal, stream = context.journal, fresh()
    await append_two(journal, stream)

    await _noticed_gone(journal, journal, stream, within=MARGIN_SECONDS)

    with anyio.fail_after(MARGIN_SECONDS):
        assert await journal.moved(stream, after=2) == 0
        await journal.append(stream, events_of(1), expected_version=0)
        assert await journal.moved(stream, after=2) == 1


async def a_waiter_is_told_of_an_end_by_others(context: JournalContext) -> None:
    """A stream that another process forgets is noticed within a second."""
    assert context.open_again is not None, "asked for in hooks"
    within = NOTICE_SECONDS_MAX + MARGIN_SECONDS
    async with context.open_again() as other:
        for waits, forgets in ((context.journal, other), (other, context.journal)):
            stream = fresh()
            await append_two(waits, stream)

            await _noticed_gone(waits, forgets, stream, within=within)


async def a_waiter_can_give_up(context: JournalContext) -> None:
    """A wait that is cancelled ends, and holds nobody else up."""
    stream = fresh()

    for _ in range(ROUNDS):
        with anyio.move_on_after(0.01) as scope:
            await context.journal.moved(stream, after=0)
        assert scope.cancelled_caught

    await append_two(context.journal, stream)
    assert await context.journal.moved(stream, after=0) == 2


CASES: Final[tuple[Case[JournalContext], ...]] = check_cases(
    (
        Case(name="a waiter is told at once", run=a_waiter_is_told_at_once),
        Case(
            name="a waiter is told of others",
            run=a_waiter_is_told_of_others,
            hooks=AGAIN,
        ),
        Case(name="a waiter is told of an end", run=a_waiter_is_told_of_an_end),
        Case(
            name="a waiter is told of an end by others",
            run=a_waiter_is_told_of_an_end_by_others,
            hooks=AGAIN,
        ),
        Case(name="other streams wake nobody", run=other_streams_wake_nobody),
        Case(name="a waiter can give up", run=a_waiter_can_give_up),
    )
)


async def _noticed(
    waits: Journal, writes: Journal, stream: Stream[claims.Event], *, within: float
) -> None:
    """See who waits notice that the stream, at version 1, moves to 2."""

    async def write() -> None:
        await writes.append(stream, events_of(1), expected_version=1)

    await _told(waits, stream, write, after=1, version=2, within=within)


async def _noticed_gone(
    waits: Journal, forgets: Journal, stream: Stream[claims.Event], *, within: float
) -> None:
    """See who waits notice that the stream, at version 2, is forgotten."""

    async def forget() -> None:
        await forgets.forget(stream, expected_version=2)

    await _told(waits, stream, forget, after=2, version=0, within=within)


async def _told(
    waits: Journal,
    stream: Stream[claims.Event],
    change: Callable[[], Awaitable[None]],
    *,
    after: int,
    version: int,
    within: float,
) -> None:
    woken = anyio.Event()

    async def wait() -> None:
        assert await waits.moved(stream, after=after) == version
        woken.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(0.05)  # It waits by now; if not, it sees the version.
        await change()
        with anyio.fail_after(within):
            await woken.wait()
