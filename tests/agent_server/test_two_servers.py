# SPDX-License-Identifier: Apache-2.0
"""Two servers over one journal: what one runs ends when another is asked to close it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.domain.claims import Holder

from ..use_cases.outside import BreakableProvider
from .scripted import HELLO, ScriptedHarness, Server, serving

pytestmark = pytest.mark.anyio

WAIT_SECONDS = 60.0
FIRST, SECOND = Holder("first"), Holder("second")


@asynccontextmanager
async def two_servers(
    harness: ScriptedHarness, provider: BreakableProvider, *, own: bool
) -> AsyncGenerator[tuple[Server, Server]]:
    """Serve twice over one journal; what the first runs is in the test's hands."""
    journal = MemoryJournal()
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
