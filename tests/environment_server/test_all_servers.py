# SPDX-License-Identifier: Apache-2.0
"""All three servers in one process: one session, whichever way it is asked for."""

import signal
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from livery.entrypoints.all_servers import open_all_servers
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.settings_reading import SettingsFile, read_settings
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.required.participants import ParticipantFailed

from ..benchmarks.served import EmptyWorld
from ..entrypoints.command_lines import serving_process
from .good_partners import run_body

pytestmark = pytest.mark.anyio

SERVERS = ("episodes", "agent sessions", "resources sessions")


def settings(folder: Path, more: str = "") -> SettingsFile:
    path = folder / "livery.toml"
    path.write_text(
        f"""
[agent_server]
port = 0
harness = "nop"
concurrency = 3
shutdown_grace_seconds = 4
[resources_server]
port = 0
shutdown_seconds = 4
[environment_server]
port = 0
shutdown_grace_seconds = 4
{more}
"""
    )
    return read_settings(path)


async def test_episodes_are_run_without_http_in_between(tmp_path: Path) -> None:
    file = settings(tmp_path)
    state = open_state_folder(tmp_path / "state")
    surroundings = Surroundings(name="all", state=tmp_path / "state")
    async with open_all_servers(
        file, state, surroundings, world=EmptyWorld()
    ) as servers:
        assert tuple(each.served.what for each in servers) == SERVERS
        app = to_application(servers[0].served.routes)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://environment"
        ) as client:
            rows: list[Any] = []

            async def run(name: str) -> None:
                rows.append((await client.post("/run", json=run_body(name))).json())

            async with anyio.create_task_group() as group:
                for number in range(9):
                    group.start_soon(run, f"r{number}")
            reply = await client.post(
                "/aggregate_metrics",
                json={"verify_responses": [row["result"] for row in rows]},
            )

    assert [row["failure"] for row in rows] == [None] * 9
    assert reply.json()["agent_metrics"]["mean/reward"] == 0.0


async def test_an_agent_that_cannot_be_stepped_ends_the_start(tmp_path: Path) -> None:
    file = settings(tmp_path, "max_steps = 3")
    state = open_state_folder(tmp_path / "state")
    surroundings = Surroundings(name="all", state=tmp_path / "state")
    with pytest.raises(ParticipantFailed, match="stepwise"):
        async with open_all_servers(file, state, surroundings, world=EmptyWorld()):
            pass


@pytest.mark.case("FC-141")
def test_one_command_serves_all_three_and_ends_in_order(tmp_path: Path) -> None:
    settings(tmp_path)
    for _ in range(2):
        with serving_process("all", tmp_path) as popen:
            assert popen.stderr is not None
            told = [popen.stderr.readline().strip() for _ in SERVERS]
            urls = [line.rpartition(" ")[2] for line in told]
            assert [line.split(" at ")[0] for line in told] == [
                f"Serving {what}" for what in SERVERS
            ]
            for url in urls:
                assert httpx.get(f"{url}/readyz", timeout=30).status_code == 200
            popen.send_signal(signal.SIGTERM)
            assert popen.wait(60) == 0
