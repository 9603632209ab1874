# SPDX-License-Identifier: Apache-2.0
"""The thread behind the journal: who asks at once is answered at once, and settled."""

import sqlite3
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import attrs
import pytest
from anyio.lowlevel import checkpoint

from livery.adapters.journals.database_thread import (
    BATCH_MAX,
    GATHER_SECONDS_MAX,
    DatabaseThread,
)
from livery.adapters.virtual_clock import VirtualClock, leaping_loop
from livery.ports.required.journal import JournalUnusable

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 60
ROUNDS = 20
"""Of the loop, each of which brings work: fewer than a batch takes."""


@attrs.define
class Stable:
    """Answers each number with its double, a batch at a time, when it is let."""

    batches: list[list[int]] = attrs.field(factory=list[list[int]])
    begun: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    let: threading.Event = attrs.field(factory=threading.Event)
    answered: list[tuple[int, int]] = attrs.field(factory=list[tuple[int, int]])

    def run(self, _: sqlite3.Connection, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        self.begun.release()
        assert self.let.wait(PATIENCE_SECONDS)
        if 13 in numbers:
            raise ZeroDivisionError
        if 14 in numbers:
            raise JournalUnusable(where="here", reason="broken", advice="Mend it.")
        return [number * 2 for number in numbers]

    async def until_begun(self) -> None:
        assert await anyio.to_thread.run_sync(
            self.begun.acquire, True, PATIENCE_SECONDS
        )


@asynccontextmanager
async def opened(
    stable: Stable,
) -> AsyncGenerator[DatabaseThread[sqlite3.Connection, int, int]]:
    thread = DatabaseThread[sqlite3.Connection, int, int](
        name="test-thread",
        connect=lambda: sqlite3.connect(":memory:"),
        run=stable.run,
        answered=lambda number, answer: stable.answered.append((number, answer)),
    )
    await thread.open()
    try:
        yield thread
    finally:
        stable.let.set()
        await thread.aclose()


async def test_all_that_wait_are_one_batch() -> None:
    stable = Stable()
    answers: list[int] = []

    async with opened(stable) as thread, anyio.create_task_group() as tasks:

        async def ask(number: int) -> None:
            answers.append(await thread.ask(number))

        tasks.start_soon(ask, 100)
        await stable.until_begun()
        for number in range(1, 11):
            tasks.start_soon(ask, number)
        await anyio.wait_all_tasks_blocked()
        stable.let.set()

    assert stable.batches == [[100], list(range(1, 11))]
    assert answers == [200, *range(2, 22, 2)]


async def test_a_batch_has_a_bound() -> None:
    stable = Stable()

    async with opened(stable) as thread, anyio.create_task_group() as tasks:
        tasks.start_soon(thread.ask, 100)
        await stable.until_begun()
        for _ in range(BATCH_MAX + 3):
            tasks.start_soon(thread.ask, 1)
        await anyio.wait_all_tasks_blocked()
        stable.let.set()

    assert [len(batch) for batch in stable.batches] == [1, BATCH_MAX, 3]


def test_a_batch_is_not_gathered_for_ever() -> None:
    clock, stable = VirtualClock(), Stable()
    stable.let.set()

    async def ask_in_each_round() -> None:
        async with opened(stable) as thread:
            for number in range(ROUNDS):
                thread.post(number, lambda _: None)
                await checkpoint()
            clock.move_to(clock.monotonic() + GATHER_SECONDS_MAX)
            thread.post(ROUNDS, lambda _: None)
            await checkpoint()
            # The loop stands, so that no round can be the one that brings no more.
            assert stable.begun.acquire(timeout=PATIENCE_SECONDS)

    anyio.run(ask_in_each_round, backend_options={"loop_factory": leaping_loop(clock)})

    assert len(stable.batches[0]) >= ROUNDS, "while the clock stood still it was one"


async def test_what_is_cancelled_before_its_turn_is_not_done() -> None:
    stable = Stable()

    async with opened(stable) as thread, anyio.create_task_group() as tasks:
        tasks.start_soon(thread.ask, 1)
        await stable.until_begun()
        async with anyio.create_task_group() as given_up:
            given_up.start_soon(thread.ask, 2)
            await anyio.wait_all_tasks_blocked()
            given_up.cancel_scope.cancel()
        stable.let.set()
        await thread.ask(3)

    assert [number for batch in stable.batches for number in batch] == [1, 3]


async def test_what_is_cancelled_under_way_is_waited_for() -> None:
    stable = Stable()
    ended = anyio.Event()

    async with opened(stable) as thread, anyio.create_task_group() as tasks:

        async def ask() -> None:
            try:
                await thread.ask(1)
            finally:
                ended.set()

        tasks.start_soon(ask)
        await stable.until_begun()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
            before = ended.is_set()
            stable.let.set()
            await ended.wait()

    assert not before
    assert stable.answered == [(1, 2)]


@pytest.mark.parametrize(
    ("bad", "told"), [(13, ZeroDivisionError), (14, JournalUnusable)]
)
async def test_what_breaks_a_batch_is_told_to_all_of_it(
    bad: int, told: type[Exception]
) -> None:
    stable = Stable()
    raised: list[Exception] = []

    async with opened(stable) as thread:

        async def ask(number: int) -> None:
            with pytest.raises(told) as failure:
                await thread.ask(number)
            raised.append(failure.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.ask, 1)
            await stable.until_begun()
            for number in (2, bad, 3):
                tasks.start_soon(ask, number)
            await anyio.wait_all_tasks_blocked()
            stable.let.set()
        assert await thread.ask(4) == 8

    assert len(raised) == 3
    assert len({id(each) for each in raised}) == (1 if bad == 13 else 3)
    assert stable.answered == [(1, 2), (4, 8)]


async def test_who_cannot_connect_says_why_and_leaves_no_thread() -> None:
    def connect() -> sqlite3.Connection:
        raise ZeroDivisionError

    thread = DatabaseThread[sqlite3.Connection, int, int](
        name="test-thread", connect=connect, run=Stable().run
    )

    with pytest.raises(ZeroDivisionError):
        await thread.open()

    assert not [each for each in threading.enumerate() if each.name == "test-thread"]


async def test_closing_answers_what_was_asked() -> None:
    stable, answers = Stable(), list[int]()

    async with anyio.create_task_group() as tasks, opened(stable) as thread:

        async def ask(number: int) -> None:
            answers.append(await thread.ask(number))

        tasks.start_soon(ask, 1)
        await stable.until_begun()
        tasks.start_soon(ask, 2)
        tasks.start_soon(ask, 3)
        await anyio.wait_all_tasks_blocked()

    assert answers == [2, 4, 6]
