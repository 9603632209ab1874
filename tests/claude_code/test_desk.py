# SPDX-License-Identifier: Apache-2.0
"""The real program works in the office, in a container that it is lent, each way.

The container has no network: the model, the tools and the apps come through relays.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from livery.entrypoints.state_folder import open_state_folder

from .. import peers
from ..docker_engine import raw_engine
from ..harnesses.claude_code.scripted_model import scripted_model
from . import mending, offices

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("claude_code"),
    pytest.mark.peer("docker"),
]

SERVERS = """
[resources_server]
sandbox_provider = "docker"
block_internet = true

[environment_server]
resources_tool_transports = [{transports}]
"""


@pytest.mark.parametrize("way", offices.TURNS)
@pytest.mark.parametrize(
    "program", peers.claude_code_programs() or (Path("none"),), ids=str
)
async def test_it_moves_a_file_by_its_path_and_is_refused_a_pasted_one(
    way: str,
    program: Path,
    tmp_path: Path,
    test_image: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(mending.KEY, mending.REAL)
    state = tmp_path / "state"
    owner = f"livery.owner={open_state_folder(state).owner}"
    world = offices.WatchedDesk(look=lambda: raw_engine.labelled(owner))
    transports = "" if way == "commands" else '"mcp"'
    async with scripted_model(choice=offices.model(*offices.TURNS[way]())) as model:
        path = tmp_path / "livery.toml"
        path.write_text(
            mending.settings(
                model.url,
                mending.options_of(program),
                image=test_image,
                more=SERVERS.format(transports=transports),
            )
        )
        async with offices.environment(path, state, world) as client:
            reply = await client.post("/run", json=offices.run_body(offices.task(way)))

    row: dict[str, Any] = reply.json()
    assert row["failure"] is None, row
    verdict, told = row["result"], offices.results(model.asked[-1])
    assert (verdict["reward"], verdict["mask_sample"]) == (1.0, False), told
    assert len([one for one in told if offices.REFUSED in one]) == 1, told
    assert offices.FILE_BYTES in [one.strip() for one in told], told
    # The model's relay asks for a placeholder, and those of tools and apps know nothing.
    assert {*told[0].splitlines()} == {"knocked 401", "knocked 404"}, told[0]
    assert offices.FILE_WORDS not in json.dumps(model.asked)
    assert all(mending.REAL in head for head in model.heads)
    assert world.seen == [()], "the container was there while it was judged"
    assert raw_engine.labelled(owner) == ()
