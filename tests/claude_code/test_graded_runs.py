# SPDX-License-Identifier: Apache-2.0
"""The real program in containers without a network, against a scripted model, graded."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from livery.adapters.docker_engine import DockerSandboxProvider, open_docker_engine
from livery.domain.agent_sessions import AgentSessionId
from livery.entrypoints.agent_server.app import AgentRoutes
from livery.entrypoints.agent_server.composition import open_agent_routes
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.settings_reading import read_settings
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.provided.place_files import place_files
from livery.ports.required.harness import PlacedFile
from livery.ports.required.sandbox import Command, Sandbox
from livery.ports.required.sandbox_provider import ClaimLabel, Network, SandboxSpec

from .. import peers
from ..agent_server.scripted import EPISODE, seed
from ..docker_engine import raw_engine
from ..docker_engine.engines import new_owners
from ..entrypoints.command_lines import PROGRAM, rows_of, task_file
from ..harnesses.claude_code.scripted_model import ScriptedModel, scripted_model
from . import mending

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("claude_code"),
    pytest.mark.peer("docker"),
]

RUN_SECONDS = 900.0
ACTIVATIONS = "/v1/responses"
SEEDS = "/v1/agent_sessions"
WORKDIR = "/workspace"


@pytest.fixture(params=peers.claude_code_programs() or (Path("none"),), ids=str)
def options(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Mapping[str, str]:
    monkeypatch.setenv(mending.KEY, mending.REAL)
    return mending.options_of(request.param)


def tools_of(observed: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (record["tool_name"], record["status"])
        for record in observed["records"]
        if record["kind"] == "tool_call"
    ]


def check_observed(observed: Mapping[str, Any]) -> None:
    """Check that all of the mending was seen."""
    assert observed["gaps"] == []
    assert tools_of(observed) == [(name, "completed") for name in mending.TOOLS]
    (root,) = (r for r in observed["records"] if r["kind"] == "agent_invocation")
    assert (root["status"], root["parent_invocation_id"]) == ("completed", None)
    assert len(root["model_calls"]) == len(mending.TOOLS) + 1
    assert [r for r in observed["records"] if r["kind"] == "sandbox"]


async def test_a_run_is_mended_left_alone_or_masked_as_it_came_out(
    tmp_path: Path, test_image: str, options: Mapping[str, str]
) -> None:
    tasks = task_file(
        tmp_path,
        mending.row("mend", mending.MEND),
        mending.row("idle", mending.IDLE),
        mending.row("break", mending.BREAK),
    )
    config, out, state = tmp_path / "livery.toml", tmp_path / "out", tmp_path / "state"
    async with scripted_model(choice=mending.model_at(WORKDIR)) as model:
        config.write_text(mending.settings(model.url, options, image=test_image))
        words = ("run", tasks, "--config", config, "--state", state, "--out", out)
        with anyio.fail_after(RUN_SECONDS):
            ended = await anyio.run_process(
                [sys.executable, "-c", PROGRAM, *map(str, words)],
                check=False,
                env={**os.environ},
            )

    rows = {row["task_id"]["task_id"]: row for row in rows_of(out)}
    results = {name: row["result"] for name, row in rows.items()}
    told = ended.stderr.decode()
    assert {
        name: (result["reward"], result["mask_sample"])
        for name, result in results.items()
    } == {"mend": (1.0, False), "idle": (0.0, False), "break": (0.0, True)}, told
    check_observed(results["mend"]["ng_agent_observations"])
    assert results["idle"]["ng_agent_observations"]["gaps"] == []
    runtime = results["mend"]["livery"]["runtime"]
    assert runtime["version"] == options["claude_code_version"]
    assert runtime["came"] == "mounted"
    assert graded(out, rows["mend"]).startswith("8 of 8 ")
    assert graded(out, rows["idle"]).startswith("2 of 8 ")
    assert options["claude_code_version"] in ended.stdout.decode()
    assert all(mending.REAL in head for head in model.heads)


def graded(out: Path, row: Mapping[str, Any]) -> str:
    """Return what the grader of an episode said."""
    rollout = row["episode_id"]["rollout_id"]
    return (out / "artifacts" / rollout / "grader.stdout").read_text()


@asynccontextmanager
async def agent_server(
    folder: Path, model: ScriptedModel, options: Mapping[str, str], image: str
) -> AsyncGenerator[tuple[AgentRoutes, httpx.AsyncClient]]:
    """Serve agent sessions whose own sandboxes are containers without a network."""
    source = folder / "task"
    source.mkdir()
    for name, text in mending.FILES.items():
        (source / name).write_text(text)
    more = f"""
mounts = [{{source = "{source}", target = "/task"}}]

[agent_server]
sandbox_provider = "docker"
"""
    path = folder / "livery.toml"
    path.write_text(mending.settings(model.url, options, image=image, more=more))
    state = open_state_folder(folder / "state")
    surroundings = Surroundings(name="agent", state=folder / "state")
    async with open_agent_routes(read_settings(path), state, surroundings) as routes:
        transport = httpx.ASGITransport(app=to_application(routes.routes()))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://agent", timeout=RUN_SECONDS
        ) as client:
            yield routes, client


async def acted(client: httpx.AsyncClient, session: str) -> Mapping[str, Any]:
    """Have the session's agent mend it, and return the response."""
    body = {"input": [{"role": "user", "content": mending.MEND}]}
    reply = await client.post(ACTIVATIONS, json=body)
    assert reply.status_code == 200, reply.text
    response: Mapping[str, Any] = reply.json()
    return response


async def closed(client: httpx.AsyncClient, session: str) -> Mapping[str, Any]:
    """Close the session, and return what was observed."""
    body = {"agent_session_id": session, "episode_id": EPISODE}
    reply = await client.post(f"{SEEDS}/close", json=body)
    assert reply.status_code == 200, reply.text
    observed: Mapping[str, Any] = reply.json()["agent_observations"]
    return observed


async def checked(sandbox: Sandbox) -> str:
    """Return what the eight checks say of a workspace."""
    checks = f"{sandbox.scratch}/checks.py"
    await place_files(
        sandbox, (PlacedFile(path=checks, content=mending.CHECKS.encode()),)
    )
    command = Command(argv=("python3", "-I", checks), timeout_seconds=60.0)
    return (await sandbox.exec(command)).stdout.kept.decode()


async def test_an_agent_mends_in_a_sandbox_of_its_own(
    tmp_path: Path, test_image: str, options: Mapping[str, str]
) -> None:
    copied = ("Bash", {"command": "cp -r /task/. ."})
    async with (
        scripted_model(choice=mending.model_at(WORKDIR, copied)) as model,
        agent_server(tmp_path, model, options, test_image) as (routes, client),
        open_docker_engine() as provider,
    ):
        seeded = await client.post(SEEDS, json=seed("own"))
        assert seeded.status_code == 200, seeded.text
        response = await acted(client, "own")
        claim = (
            await routes.served.sessions.standing(AgentSessionId("own"))
        ).state.claim
        assert claim is not None
        owner = routes.served.sessions.sandboxes.own
        assert owner is not None
        label = ClaimLabel(claim=claim, owner=owner.claim.owner)
        sandbox = await provider.find(label)
        assert sandbox is not None
        said = await checked(sandbox)
        await sandbox.disconnect()
        observed = await closed(client, "own")

    assert said.startswith("8 of 8 ")
    assert response["status"] == "completed"
    assert observed["gaps"] == []
    assert [name for name, _ in tools_of(observed)] == ["Bash", *mending.TOOLS]
    assert {status for _, status in tools_of(observed)} == {"completed"}
    assert raw_engine.labelled(f"livery.claim={claim}") == ()
    identity = runtime_of(tmp_path)
    assert (identity["version"], identity["came"]) == (
        options["claude_code_version"],
        "mounted",
    )


async def test_an_agent_mends_in_a_sandbox_that_it_was_lent(
    tmp_path: Path, test_image: str, options: Mapping[str, str]
) -> None:
    owners = new_owners()
    label = owners.label()
    spec = SandboxSpec(image=test_image, network=Network.NONE, workdir=WORKDIR)
    async with (
        scripted_model(choice=mending.model_at(WORKDIR)) as model,
        agent_server(tmp_path, model, options, test_image) as (_, client),
        open_docker_engine() as provider,
        lent_box(provider, label, spec) as sandbox,
    ):
        access = sandbox.access()
        lent = {
            "connection": {
                "kind": "direct",
                "provider_config_ref": "docker",
                "descriptor": dict(access.descriptor),
            },
            "workdir": access.workdir,
        }
        seeded = await client.post(SEEDS, json=seed("lent", sandbox_access=lent))
        assert seeded.status_code == 200, seeded.text
        await acted(client, "lent")
        observed = await closed(client, "lent")
        said = await checked(sandbox)

    assert said.startswith("8 of 8 ")
    check_observed(observed)
    assert runtime_of(tmp_path)["came"] == "transferred"
    assert owners.left() == []


@asynccontextmanager
async def lent_box(
    provider: DockerSandboxProvider, label: ClaimLabel, spec: SandboxSpec
) -> AsyncGenerator[Sandbox]:
    try:
        sandbox = await provider.create(label, spec)
        files = (
            PlacedFile(path=name, content=text.encode())
            for name, text in mending.FILES.items()
        )
        await place_files(sandbox, tuple(files))
        yield sandbox
    finally:
        with anyio.CancelScope(shield=True):
            await provider.destroy(label)


def runtime_of(folder: Path) -> Mapping[str, Any]:
    """Return the identity of the program that a session of the server had."""
    (path,) = (folder / "state" / "artifacts").glob("*/runtime.json")
    identity: Mapping[str, Any] = json.loads(path.read_text())
    return identity
