# SPDX-License-Identifier: Apache-2.0
"""Two servers over one journal: what one runs ends when another is asked to close it."""

import anyio
import pytest

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.domain.claims import Holder

from ..use_cases.outside import BreakableProvider
from .scripted import HELLO, ScriptedHarness, serving

pytestmark = pytest.mark.anyio

WAIT_SECONDS = 60.0
FIRST, SECOND = Holder("first"), Holder("second")


@pytest.mark.parametrize("seeds_where_it_runs", [True, False])
async def test_a_close_ends_at_once_what_another_server_runs(
    seeds_where_it_runs: bool,
) -> None:
    journal, harness = MemoryJournal(), ScriptedHarness(may_end=anyio.Event())
    statuses: list[str] = []
    first = serving(
        journal, harness=harness, holders=MemoryHolders(FIRST, others={SECOND})
    )
    second = serving(journal, holders=MemoryHolders(SECOND, others={FIRST}))
    async with first as runs, second as closes:
        cookie = await (runs if seeds_where_it_runs else closes).seeded()

        async def ask() -> None:
            answer = await runs.post("/v1/responses", HELLO, cookie)
            statuses.append(answer.json()["status"])

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await harness.running.wait()
                closed = await closes.close()

    assert closed.status_code == 200
    assert statuses == ["cancelled"]


async def test_a_server_that_stops_leaves_what_another_runs_to_that_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal, harness = MemoryJournal(), ScriptedHarness(may_end=anyio.Event())
    provider, statuses = BreakableProvider(), list[str]()
    first = serving(
        journal,
        own=True,
        harness=harness,
        provider=provider,
        holders=MemoryHolders(FIRST, others={SECOND}),
    )
    second = serving(
        journal,
        own=True,
        provider=provider,
        holders=MemoryHolders(SECOND, others={FIRST}),
    )
    async with first as runs, second as stops:
        cookie = await stops.seeded()

        async def ask() -> None:
            answer = await runs.post("/v1/responses", HELLO, cookie)
            statuses.append(answer.json()["status"])

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await harness.running.wait()
                await stops.served.drain()
                while_it_runs = dict(provider.live)
                assert harness.may_end is not None
                harness.may_end.set()

    assert "not given back" not in caplog.text, "it waited for the other one's run"
    assert len(while_it_runs) == 1
    assert statuses == ["completed"]
    assert provider.live == {}
