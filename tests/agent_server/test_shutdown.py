# SPDX-License-Identifier: Apache-2.0
"""A shutdown that comes while something is on its way, and what comes after it."""

from collections.abc import Sequence
from typing import TypeVar

import anyio
import attrs
import httpx
import pytest

from livery.adapters.journals import MemoryJournal
from livery.domain.activations import ActivationStarted
from livery.ports.required.journal import Stream

from ..use_cases.outside import BreakableProvider
from .scripted import HELLO, ScriptedHarness, seed, serving

pytestmark = pytest.mark.anyio

E = TypeVar("E")
WAIT_SECONDS = 60.0


@attrs.define
class HeldJournal:
    """A journal that is slow to say that the first append of a kind was written.

    The kind is that of the stream, and of the event where one is named.
    """

    category: str
    event: type = object
    kept: MemoryJournal = attrs.field(factory=MemoryJournal)
    is_written: anyio.Event = attrs.field(factory=anyio.Event)
    may_be_told: anyio.Event = attrs.field(factory=anyio.Event)

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        version = await self.kept.append(
            stream, events, expected_version=expected_version
        )
        is_such = any(isinstance(event, self.event) for event in events)
        if stream.category == self.category and is_such:
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


async def test_a_run_whose_intent_was_on_its_way_is_stopped_and_told_so() -> None:
    journal = HeldJournal("agent_sessions", ActivationStarted)
    harness = ScriptedHarness(hangs=True)
    answers: list[httpx.Response] = []
    async with serving(journal, own=True, harness=harness) as it:  # type: ignore[arg-type]
        cookie = await it.seeded()

        async def ask() -> None:
            answers.append(await it.post("/v1/responses", HELLO, cookie))

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await journal.is_written.wait()
                group.start_soon(it.served.drain)
                while not it.served.draining:
                    await anyio.lowlevel.checkpoint()
                journal.may_be_told.set()

    assert [answer.status_code for answer in answers] == [200]
    assert answers[0].json()["status"] == "cancelled"
    assert await journal.kept.open_streams("claims") == ()


async def test_a_session_whose_sandbox_a_shutdown_gave_back_is_told_of_at_the_next_server() -> (
    None
):
    journal, provider = MemoryJournal(), BreakableProvider()
    async with serving(journal, own=True, provider=provider) as it:
        cookie = await it.seeded()
        await it.served.drain()
    assert provider.live == {}

    async with serving(journal, own=True, provider=provider) as after:
        answers = [await after.post("/v1/responses", HELLO, cookie) for _ in range(2)]
        closed = await after.close()
        started = list(after.harness.started)

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    answer = answers[0].json()
    assert answer["status"] == "failed"
    assert "it was given back" in answer["error"]["message"]
    assert started == []
    assert closed.status_code == 200
    assert await journal.open_streams("claims") == ()
