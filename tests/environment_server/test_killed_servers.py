# SPDX-License-Identifier: Apache-2.0
"""Three servers in one process, killed during an episode: the next ones go on with it."""

import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from livery.adapters.worlds.desk import DeskTasks

from ..entrypoints.command_lines import serving_process

pytestmark = pytest.mark.anyio

ASKED_SECONDS = 60.0


@contextmanager
def serving_all(folder: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Serve, and kill what serves; where episodes are run comes with it."""
    with serving_process("all", folder) as popen:
        assert popen.stderr is not None
        yield popen, popen.stderr.readline().strip().rpartition(" ")[2]


def body() -> dict[str, Any]:
    task = next(iter(DeskTasks().tasks()))
    return {
        "episode_id": {"rollout_id": "r1"},
        "task": {
            "task_id": {"taskset": "desk", "task_id": task.task_id.task_id},
            "task_input": {
                "responses_create_params": dict(task.responses_create_params),
                "task_data": dict(task.task_data),
            },
        },
    }


@pytest.mark.parametrize("transport", ["mcp", "direct_http"])
async def test_asked_again_an_episode_goes_on_with_the_tools_that_it_was_granted(
    tmp_path: Path, transport: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as model:
        model.settimeout(ASKED_SECONDS)
        url = f"http://127.0.0.1:{model.getsockname()[1]}"
        (tmp_path / "livery.toml").write_text(
            f"""
[agent_server]
port = 0
harness = "asking"
[harness.asking]
harness = "simple"
options = {{model_url = "{url}", model = "m"}}
[resources_server]
port = 0
world = "desk"
[environment_server]
port = 0
resources_tool_transports = ["{transport}"]
"""
        )

        async def run(environment: str) -> httpx.Response | None:
            async with httpx.AsyncClient(timeout=ASKED_SECONDS) as client:
                try:
                    return await client.post(f"{environment}/run", json=body())
                except httpx.TransportError:
                    return None  # The server was killed.

        with serving_all(tmp_path) as (killed, environment):
            async with anyio.create_task_group() as group:
                group.start_soon(run, environment)
                asked, _ = await anyio.to_thread.run_sync(model.accept)
                with asked:
                    killed.kill()
        model.close()
        with serving_all(tmp_path) as (_, environment):
            reply = await run(environment)

    assert reply is not None
    failure = reply.json()["failure"]
    assert failure["failure_kind"] != "livery:request_refused", failure
    assert not failure["terminal"], failure
