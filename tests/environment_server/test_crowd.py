# SPDX-License-Identifier: Apache-2.0
"""A crowd of episodes at once: every one is graded, and nothing of any is left.

How long anybody waits and what it costs is measured by `tests.benchmarks.crowd`.
"""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from livery.adapters.journals import open_sqlite_journal
from livery.entrypoints.all_servers import open_all_servers
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.settings_reading import read_settings
from livery.entrypoints.state_folder import open_state_folder

from ..benchmarks.crowd import bodies
from ..benchmarks.served import WORLDS, SlowProvider
from ..benchmarks.servers import settings
from ..journals.open_streams import CATEGORIES

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("world", "episodes"), [("desk", 64), ("heavy", 12)])
async def test_each_of_a_crowd_is_graded_and_leaves_nothing(
    tmp_path: Path, world: str, episodes: int
) -> None:
    file = read_settings(settings(tmp_path))
    state = open_state_folder(tmp_path / "state")
    surroundings = Surroundings(name="all", state=state.path)
    made, _ = WORLDS[world]()
    provider, rows = SlowProvider(), list[dict[str, Any]]()
    async with open_all_servers(
        file, state, surroundings, world=made, provider=provider
    ) as servers:
        app = to_application(servers[0].served.routes)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app),
            base_url="http://environment",
            timeout=300.0,
        ) as client:

            async def run(body: bytes) -> None:
                answer = await client.post("/run", content=body)
                rows.append(answer.json())

            async with anyio.create_task_group() as group:
                for body in bodies("crowd", episodes):
                    group.start_soon(run, body)

    assert [row["failure"] for row in rows] == [None] * episodes
    assert {row["result"]["mask_sample"] for row in rows} == {False}
    names = {json.dumps(row["episode_id"]) for row in rows}
    assert len(names) == episodes
    assert provider.live == {}
    async with open_sqlite_journal(state.path / "journal.sqlite") as journal:
        left = {name: await journal.open_streams(name) for name in CATEGORIES}
    assert left == dict.fromkeys(CATEGORIES, ())
