# SPDX-License-Identifier: Apache-2.0
"""A world of another distribution is served like those of ours."""

from pathlib import Path

import httpx
import pytest

from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.resources_server.composition import open_resources
from livery.entrypoints.resources_settings import ResourcesServerSettings
from livery.entrypoints.settings import Settings
from livery.entrypoints.settings_reading import SettingsFile
from livery.entrypoints.state_folder import open_state_folder

from .conftest import Install

pytestmark = pytest.mark.anyio

EPISODE = {"rollout_id": "r1", "attempt": 0}
SEED = {
    "resources_session_id": "s1",
    "episode_id": EPISODE,
    "task_id": {"taskset": "tills", "task_id": "1"},
}


async def test_a_world_is_found_by_its_entry_point_and_served(
    installed: Install, tmp_path: Path
) -> None:
    installed()
    file = SettingsFile(
        settings=Settings(resources_server=ResourcesServerSettings(world="till"))
    )
    surroundings = Surroundings(name="resources", state=tmp_path)
    async with open_resources(
        file, open_state_folder(tmp_path), surroundings
    ) as application:
        transport = httpx.ASGITransport(app=to_application(application.routes))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://resources"
        ) as client:
            refused = await client.post("/seed_session", json={**SEED, "task_data": {}})
            seeded = await client.post(
                "/seed_session", json={**SEED, "task_data": {"sum": 5}}
            )
            mistaken = await client.post("/till_add", json={"amount": 0})
            kept = [
                (await client.post("/till_add", json={"amount": amount})).json()
                for amount in (2, 3)
            ]
            body = {"responses_create_params": {}, "response": {"id": "r"}, "sum": 5}
            verdict = await client.post("/verify", json=body)

    assert "task_data.sum" in refused.json()["detail"][0]["msg"]
    assert seeded.json()["resources_tools"]["server_name"] == "shop"
    assert (mistaken.status_code, mistaken.json()["detail"]) == (
        422,
        "Amounts are 1 or more.",
    )
    assert kept == [{"sum": 2}, {"sum": 5}]
    assert verdict.json()["reward"] == 1.0
