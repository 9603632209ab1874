# SPDX-License-Identifier: Apache-2.0
"""A shutdown that comes while a seed is on its way: it makes no sandbox any more."""

from collections.abc import Sequence
from typing import TypeVar

import anyio
import attrs
import httpx
import pytest

from livery.adapters.journals import MemoryJournal
from livery.ports.required.journal import Stream

from .scripted import seed, serving

pytestmark = pytest.mark.anyio

E = TypeVar("E")
WAIT_SECONDS = 60.0


@attrs.define
class HeldJournal:
    """A journal that is slow to say that the first append of a kind was written."""

    category: str
    kept: MemoryJournal = attrs.field(factory=MemoryJournal)
    is_written: anyio.Event = attrs.field(factory=anyio.Event)
    may_be_told: anyio.Event = attrs.field(factory=anyio.Event)

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        version = await self.kept.append(
            stream, events, expected_version=expected_version
        )
        if stream.category == self.category:
            self.is_written.set()
            await self.may_be_told.wait()
        return version

    def __getattr__(self, name: str) -> object:
        return getattr(self.kept, name)


@pytest.mark.parametrize("category", ["places", "agent_sessions"])
async def test_a_seed_that_was_let_in_before_makes_nothing_and_is_told_so(
    category: str,
) -> None:
    journal = HeldJournal(category)
    answers: list[httpx.Response] = []
    async with serving(journal, own=True) as it:  # type: ignore[arg-type]

        async def ask() -> None:
            answers.append(await it.post("/v1/agent_sessions", seed()))

        async def drain() -> None:
            await it.served.drain()
            ended.set()

        ended, over_before_the_seed = anyio.Event(), True
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await journal.is_written.wait()
                group.start_soon(drain)
                while not it.served.draining:
                    await anyio.lowlevel.checkpoint()
                over_before_the_seed = ended.is_set()
                journal.may_be_told.set()
                await ended.wait()

    assert not over_before_the_seed
    assert it.provider.made == []
    assert [answer.status_code for answer in answers] == [503]
    assert answers[0].json()["kind"] == "admission_shut"
    assert await journal.kept.open_streams("places") == ()
    assert await journal.kept.open_streams("claims") == ()
