# SPDX-License-Identifier: Apache-2.0
"""The agent server runs the harness `claude_code` on this host where no provider is named."""

import json
from pathlib import Path

import httpx
import pytest

from livery.entrypoints.agent_server.composition import open_agent_routes
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.settings_reading import read_settings
from livery.entrypoints.state_folder import open_state_folder

from ..agent_server.scripted import EPISODE, seed
from ..harnesses.claude_code.scripted_model import scripted_model
from . import mending, stand_in

pytestmark = pytest.mark.anyio

PREFIX = "/ng-rollout/key-1"


async def test_a_session_has_its_program_and_its_model_and_then_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(mending.KEY, mending.REAL)
    program = stand_in.make(tmp_path)
    options = "".join(
        f'{name} = "{value}"\n' for name, value in stand_in.options_of(program).items()
    )
    path = tmp_path / "livery.toml"
    call = ("Bash", {"command": "echo 42 > answer"})
    async with scripted_model(call, "It is 42.") as model:
        path.write_text(
            f'[model]\nurl = "{model.url}"\nnemo_gym = true\n'
            f'credential = {{env = "{mending.KEY}"}}\n'
            f"[harness.claude_code.options]\n{options}"
        )
        state = open_state_folder(tmp_path / "state")
        surroundings = Surroundings(name="agent", state=tmp_path / "state")
        async with open_agent_routes(
            read_settings(path), state, surroundings
        ) as routes:
            application = to_application(routes.routes())
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app=application),
                base_url="http://agent",
                timeout=60.0,
            ) as client:
                seeded = await client.post("/v1/agent_sessions", json=seed("s1"))
                assert seeded.status_code == 200, seeded.text
                body = {"input": [{"role": "user", "content": "Write 42."}]}
                reply = await client.post(f"{PREFIX}/v1/responses", json=body)
                names = {"agent_session_id": "s1", "episode_id": EPISODE}
                closed = await client.post("/v1/agent_sessions/close", json=names)
            left = routes.served.sessions.open_here

    assert reply.status_code == 200, reply.text
    assert reply.json()["status"] == "completed"
    assert closed.json()["agent_observations"]["records"]
    assert left == ()
    asked = [head.split("\r\n")[0] for head in model.heads]
    assert asked == [f"POST {PREFIX}/v1/messages HTTP/1.1"] * 2
    assert all(mending.REAL in head for head in model.heads)
    (identity,) = (tmp_path / "state" / "artifacts").glob("*/runtime.json")
    assert json.loads(identity.read_text())["came"] == "in place"
