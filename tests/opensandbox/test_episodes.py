# SPDX-License-Identifier: Apache-2.0
"""Whole episodes of the real Claude Code in sandboxes of the real server.

A sandbox has no way to this host's loopback, where the model, the tools and the apps
are: all of them come through the relay. It is seen gone before the work is judged.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from livery.domain.tasks import TaskId
from livery.entrypoints.state_folder import open_state_folder

from .. import peers
from ..claude_code import mending, offices
from ..docker_engine import raw_engine
from ..harnesses.claude_code.scripted_model import Turn, scripted_model
from .real_server import API_KEY, RealServer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("claude_code"),
    pytest.mark.peer("opensandbox"),
]

LUNCH = TaskId("desk", "answer-lunch")
SETTINGS = """
[model]
url = "{model}"
credential = {{env = "{key}"}}

[harness.claude_code]
turn_timeout_seconds = 600

[harness.claude_code.options]
model = "model-1"
bare = false
model_retries = 0
claude_code_version = "{version}"

[sandbox.opensandbox]
image = "{image}"

[sandbox.opensandbox.options]
address = "{address}"
api_key = {{env = "LIVERY_TEST_OPENSANDBOX_KEY"}}

[environment_server]
resources_tool_transports = ["mcp"]

[{maker}]
sandbox_provider = "opensandbox"
"""


@pytest.fixture(params=peers.claude_code_programs()[:1] or (Path("none"),), ids=str)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(mending.KEY, mending.REAL)
    monkeypatch.setenv("LIVERY_TEST_OPENSANDBOX_KEY", API_KEY)
    return mending.options_of(request.param)["claude_code_version"]


async def acted(
    folder: Path, server: RealServer, image: str, *turns: Turn, **words: Any
) -> tuple[dict[str, Any], list[str]]:
    """Run one task; return the verdict and what the agent's tool calls came to."""
    state = folder / "state"
    owner = f"livery.owner={open_state_folder(state).owner}"
    world = offices.WatchedDesk(look=lambda: raw_engine.labelled(owner))
    task = words.pop("task")
    async with scripted_model(choice=offices.model(*turns)) as model:
        path = folder / "livery.toml"
        path.write_text(
            SETTINGS.format(
                model=model.url,
                key=mending.KEY,
                image=image,
                address=server.address,
                **words,
            )
        )
        async with offices.environment(path, state, world) as client:
            reply = await client.post("/run", json=offices.run_body(task))

    row: dict[str, Any] = reply.json()
    assert row["failure"] is None, row
    assert world.seen == [()], "the sandbox was there while it was judged"
    assert raw_engine.labelled(owner) == ()
    assert all(mending.REAL in head for head in model.heads)
    assert API_KEY not in json.dumps(model.asked)
    assert row["result"]["mask_sample"] is False
    return row["result"], offices.results(model.asked[-1])


async def test_a_sandbox_is_lent_to_the_agent(
    tmp_path: Path, real: RealServer, test_image: str, version: str
) -> None:
    verdict, told = await acted(
        tmp_path,
        real,
        test_image,
        *offices.TURNS["commands"](),
        task=offices.task("commands"),
        maker="resources_server",
        version=version,
    )

    assert verdict["reward"] == 1.0, told
    assert offices.FILE_BYTES in [one.strip() for one in told], told


async def test_the_agent_has_a_sandbox_of_its_own(
    tmp_path: Path, real: RealServer, test_image: str, version: str
) -> None:
    counted = ("Bash", {"command": "python3 -c 'print(40 + 2)'"})
    verdict, told = await acted(
        tmp_path,
        real,
        test_image,
        counted,
        *offices.by_tools(LUNCH),
        task=offices.task("mcp", LUNCH),
        maker="agent_server",
        version=version,
    )

    assert verdict["reward"] == 1.0, told
    assert told[0] == "42"
