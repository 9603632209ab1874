# SPDX-License-Identifier: Apache-2.0
"""Who waits at another worker is known, for as long as that worker lives."""

from collections.abc import Sequence
from typing import TypeVar

import anyio
import pytest

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.system_clock import SystemClock
from livery.domain.agent_sessions import AgentSessionId
from livery.domain.claims import Holder
from livery.ports.provided.await_elsewhere import CATEGORY, AwaitElsewhere
from livery.ports.required.journal import JournalUnusable, Stream

pytestmark = pytest.mark.anyio

E = TypeVar("E")
SESSION = AgentSessionId("s/1")


def at(journal: MemoryJournal, own: str, *others: str) -> AwaitElsewhere:
    return AwaitElsewhere(
        journal=journal,
        clock=SystemClock(),
        holders=MemoryHolders(own=Holder(own), others={Holder(o) for o in others}),
    )


async def test_a_wait_is_known_to_the_others_until_it_is_over() -> None:
    journal = MemoryJournal()
    one, two = at(journal, "one", "two"), at(journal, "two", "one")

    async with two.waiting(SESSION):
        there = await one.is_awaited(SESSION)
        here = await two.is_awaited(SESSION)
        other = await one.is_awaited(AgentSessionId("s"))
    after = await one.is_awaited(SESSION)

    assert (there, here, other, after) == (True, False, False, False)
    assert await journal.open_streams(CATEGORY) == ()


async def test_a_wait_that_is_cut_off_while_it_is_noted_leaves_nothing() -> None:
    """A database writes what it has in hand, and tells of the cancellation then."""
    written, told = anyio.Event(), anyio.Event()

    class Slow(MemoryJournal):
        async def append(
            self, stream: Stream[E], events: Sequence[E], *, expected_version: int
        ) -> int:
            version = await MemoryJournal.append(
                self, stream, events, expected_version=expected_version
            )
            written.set()
            await told.wait()
            return version

    journal = Slow()

    async def wait() -> None:
        async with at(journal, "one").waiting(SESSION):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await written.wait()
        group.cancel_scope.cancel()
        told.set()

    assert not await at(journal, "two", "one").is_awaited(SESSION)
    assert await journal.open_streams(CATEGORY) == ()


async def test_two_waits_of_one_worker_do_not_mind_each_other() -> None:
    journal = MemoryJournal()
    one, two = at(journal, "one"), at(journal, "two", "one")

    first = one.waiting(SESSION)
    await first.__aenter__()
    async with one.waiting(SESSION):
        await first.__aexit__(None, None, None)
        awaited = await two.is_awaited(SESSION)

    assert awaited
    assert await journal.open_streams(CATEGORY) == ()


async def test_what_a_dead_worker_waited_for_counts_for_nothing() -> None:
    journal = MemoryJournal()
    async with at(journal, "dead").waiting(SESSION):
        one = at(journal, "one")
        awaited = await one.is_awaited(SESSION)
        await at(journal, "two", "dead").forget_dead()
        kept = await journal.open_streams(CATEGORY)
        await one.forget_dead()
        left = await journal.open_streams(CATEGORY)

    assert not awaited
    assert len(kept) == 1
    assert left == ()


async def test_a_wait_that_cannot_be_forgotten_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Breaking(MemoryJournal):
        async def forget(
            self, stream: Stream[object], *, expected_version: int
        ) -> None:
            raise JournalUnusable(where="here", reason="it is away", advice="Wait.")

    async with at(Breaking(), "one").waiting(SESSION):
        pass

    assert "beyond its end" in caplog.text
