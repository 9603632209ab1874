# SPDX-License-Identifier: Apache-2.0
"""Two servers over one journal: what one runs ends when another is asked to close it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import attrs
import pytest

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.domain.agent_sessions import AgentSessionId
from livery.domain.claims import Holder
from livery.ports.provided.agent_sessions import agent_session_stream
from livery.ports.required.journal import Stream

from ..environment_server.good_partners import eventually
from ..use_cases.outside import BreakableProvider
from .scripted import HELLO, ScriptedHarness, Server, serving

pytestmark = pytest.mark.anyio

E = TypeVar("E")
WAIT_SECONDS = 60.0
FIRST, SECOND = Holder("first"), Holder("second")


@asynccontextmanager
async def two_servers(
    harness: ScriptedHarness,
    provider: BreakableProvider,
    *,
    own: bool,
    journal: MemoryJournal | None = None,
) -> AsyncGenerator[tuple[Server, Server]]:
    """Serve twice over one journal; what the first runs is in the test's hands."""
    journal = journal or MemoryJournal()
    first = serving(
        journal,
        own=own,
        harness=harness,
        provider=provider,
        holders=MemoryHolders(FIRST, others={SECOND}),
    )
    second = serving(
        journal,
        own=own,
        provider=provider,
        holders=MemoryHolders(SECOND, others={FIRST}),
    )
    async with first as one, second as other:
        yield one, other


@asynccontextmanager
async def running(server: Server, cookie: str) -> AsyncGenerator[list[str]]:
    """Have a run under way inside the block, and wait for it; its status is told."""
    statuses: list[str] = []

    async def ask() -> None:
        answer = await server.post("/v1/responses", HELLO, cookie)
        statuses.append(answer.json()["status"])

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await server.harness.running.wait()
            yield statuses


@pytest.mark.parametrize("seeds_where_it_runs", [True, False])
async def test_a_close_ends_at_once_what_another_server_runs(
    seeds_where_it_runs: bool,
) -> None:
    harness = ScriptedHarness(may_end=anyio.Event())
    async with two_servers(harness, BreakableProvider(), own=False) as (runs, closes):
        cookie = await (runs if seeds_where_it_runs else closes).seeded()
        async with running(runs, cookie) as statuses:
            closed = await closes.close()

    assert closed.status_code == 200
    assert statuses == ["cancelled"]


@attrs.define
class Deaf(MemoryJournal):
    """A journal that tells nobody what was written until `hears` is set."""

    hears: anyio.Event = attrs.field(factory=anyio.Event)

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        await self.hears.wait()
        return await MemoryJournal.moved(self, stream, after=after)


async def test_a_session_that_was_closed_and_forgotten_meanwhile_is_let_go_of() -> None:
    journal, stream = Deaf(), agent_session_stream(AgentSessionId("s1"))
    harness, provider = ScriptedHarness(), BreakableProvider()
    async with two_servers(harness, provider, own=False, journal=journal) as (
        sleeps,
        closes,
    ):
        await sleeps.seeded()
        assert (await closes.close()).status_code == 200
        standing = await journal.read(stream)
        await journal.forget(stream, expected_version=standing.version)
        held = sleeps.served.sessions.open_here

        journal.hears.set()
        await eventually(lambda: not sleeps.served.sessions.open_here)
        await sleeps.seeded("s2")

    assert held == ("s1",)


async def test_a_server_that_stops_leaves_what_another_runs_to_that_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    may_end, provider = anyio.Event(), BreakableProvider()
    harness = ScriptedHarness(may_end=may_end)
    async with two_servers(harness, provider, own=True) as (runs, stops):
        cookie = await stops.seeded()
        async with running(runs, cookie) as statuses:
            await stops.served.drain()
            while_it_runs = dict(provider.live)
            may_end.set()

    assert "not given back" not in caplog.text, "it waited for the other one's run"
    assert len(while_it_runs) == 1
    assert statuses == ["completed"]
    assert provider.live == {}
