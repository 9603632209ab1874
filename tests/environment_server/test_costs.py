# SPDX-License-Identifier: Apache-2.0
"""What an episode that does nothing costs the journal, counted and not timed."""

from pathlib import Path

import anyio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from livery.entrypoints.all_servers import open_all_servers
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.state_folder import open_state_folder

from ..benchmarks.served import EmptyWorld
from .good_partners import run_body
from .test_all_servers import settings

pytestmark = pytest.mark.anyio

AT_ONCE = 3
EPISODES = 12
APPENDS_MAX = {"episodes": 8, "resources_sessions": 3, "agent_sessions": 4, "places": 2}
"""In one episode, by category of stream: whether it is a new one, which is asked as an
append of nothing, and its own steps; a world that is built, judged and closed; a session
that is set up, begins, ends and is closed; and the places of the session and of the
episode, the latter handed on while others come."""
READS_MAX = 0
"""Of any category: what an episode that is new did not read, it knows."""


async def test_an_episode_that_does_nothing_writes_little_and_reads_less(
    tmp_path: Path,
) -> None:
    file, state = settings(tmp_path), open_state_folder(tmp_path / "state")
    surroundings = Surroundings(name="all", state=tmp_path / "state")
    async with (
        open_all_servers(file, state, surroundings, world=EmptyWorld()) as servers,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(to_application(servers[0].served.routes)),
            base_url="http://environment",
        ) as client,
    ):
        numbers = iter(range(EPISODES))
        before = await counts(client)

        async def run() -> None:
            for number in numbers:
                reply = await client.post("/run", json=run_body(f"r{number}"))
                assert reply.json()["failure"] is None

        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(run)
        after = await counts(client)

    def used(what: str, category: str) -> float:
        key = f"livery_journal_{what}_seconds_count", category
        return (after.get(key, 0.0) - before.get(key, 0.0)) / EPISODES

    assert all(0 < used("append", one) <= most for one, most in APPENDS_MAX.items())
    assert all(used("read", one) <= READS_MAX for one in APPENDS_MAX)


async def counts(client: httpx.AsyncClient) -> dict[tuple[str, str], float]:
    text = (await client.get("/metrics")).text
    return {
        (sample.name, sample.labels.get("category", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
