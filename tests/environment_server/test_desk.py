# SPDX-License-Identifier: Apache-2.0
"""The office, worked in by the harness `simple`: in a run, and step by step."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from livery.adapters.harnesses.simple import SimpleConfig, SimpleHarness
from livery.adapters.harnesses.simple.scripts import ScriptedTurn
from livery.adapters.worlds.desk import DeskTasks, DeskWorld
from livery.domain.tasks import Task, TaskId
from livery.entrypoints.all_servers import open_all_servers
from livery.entrypoints.command_line.main import carry_out
from livery.entrypoints.command_line.shared import Shared
from livery.entrypoints.example_settings import example
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.settings_reading import read_settings
from livery.entrypoints.simple_options import solving
from livery.entrypoints.state_folder import open_state_folder

from .test_all_servers import settings

STEPPED = """
max_steps = 50
resources_tool_transports = ["mcp"]
"""
WITH_FILES = "upload-report"
LONGER = "share-handbook"
"""A task whose solution takes two turns."""


def test_a_run_over_the_office_solves_its_tasks(tmp_path: Path) -> None:
    words = ["run", "desk", "--harness", "simple", "--policy", "scripted:solutions"]
    words += ["--limit", "3", "--state", str(tmp_path / "state")]

    status = carry_out([*words, "--out", str(tmp_path / "out")], Shared())

    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    assert status == 0
    assert [json.loads(line)["result"]["reward"] for line in lines] == [1.0] * 3


def with_a_call_left_over(tasks: DeskTasks, task: TaskId) -> tuple[ScriptedTurn, ...]:
    """Return the turns that solve the task, with one more call in the last step."""
    *before, last = solving(tasks)(task)
    return (*before, ScriptedTurn(calls=(*last.calls, *last.calls)))


def model_calls(row: Any) -> int:
    """Return how often the model was asked, by what was observed."""
    return sum(
        len(record["model_calls"])
        for record in row["result"]["ng_agent_observations"]["records"]
        if record["kind"] == "agent_invocation"
    )


@pytest.mark.anyio
async def test_what_is_shipped_serves_the_office_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "of nobody")
    text = example("desk")
    # What is of this machine alone: any ports, and sandboxes without an engine.
    for port in ("8100", "8200", "8300"):
        text = text.replace(f"port = {port}", "port = 0")
    text = text.replace("docker", "local").replace("block_internet = true", "")
    text = text.replace('image = "python:3.12-slim"', "")
    tasks = DeskTasks()
    task = next(one for one in tasks.tasks() if one.task_id.task_id == WITH_FILES)
    harness = SimpleHarness(config=SimpleConfig(stepwise=True), script=solving(tasks))

    row = await served(tmp_path, text, task, harness)

    shipped = read_settings(tmp_path / "livery.toml").settings
    assert shipped.environment_server.max_steps == 50
    assert shipped.environment_server.queue_timeout_seconds == 24 * 3600
    assert shipped.resources_server.shutdown_seconds == 30
    assert row["failure"] is None, row
    assert row["result"]["reward"] == 1.0
    assert model_calls(row) == 2


async def graded(folder: Path, task: Task, harness: SimpleHarness) -> Any:
    """Run the task step by step through the three servers, and return its row."""
    settings(folder, STEPPED)
    text = (folder / "livery.toml").read_text()
    closing = "[resources_server]\nclose_tools_on_task_end = true"
    text = text.replace("[resources_server]", closing)
    return await served(folder, text, task, harness)


async def served(folder: Path, text: str, task: Task, harness: SimpleHarness) -> Any:
    """Run the task through the servers of such settings, and return its row."""
    path = folder / "livery.toml"
    path.write_text(text)
    file = read_settings(path)
    state = open_state_folder(folder / "state")
    surroundings = Surroundings(name="all", state=folder / "state")
    body = {
        "episode_id": {"rollout_id": "r1"},
        "task": {
            "task_id": {"taskset": "desk", "task_id": task.task_id.task_id},
            "task_input": {
                "responses_create_params": task.responses_create_params,
                "task_data": task.task_data,
            },
        },
    }
    async with open_all_servers(
        file, state, surroundings, world=DeskWorld(), harness=harness
    ) as servers:
        app = to_application(servers[0].served.routes)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app),
            base_url="http://environment",
            timeout=120.0,
        ) as client:
            return (await client.post("/run", json=body)).json()


@pytest.mark.anyio
async def test_a_task_that_completes_takes_its_calls_and_refuses_the_one_left_over(
    tmp_path: Path,
) -> None:
    tasks = DeskTasks()
    task = next(one for one in tasks.tasks() if one.task_id.task_id == LONGER)
    turns = with_a_call_left_over(tasks, task.task_id)
    harness = SimpleHarness(
        config=SimpleConfig(stepwise=True), script=lambda _: (*turns, *turns)
    )

    row = await graded(tmp_path, task, harness)

    assert row["failure"] is None, row
    output = row["result"]["response"]["output"]
    calls = [item for item in output if item["type"] == "function_call"]
    results = [i["output"] for i in output if i["type"] == "function_call_output"]
    assert len(turns) == 2
    assert len(calls) == len(turns) + 1
    assert model_calls(row) == len(turns)
    assert "409" in results[-1], results
    assert row["result"]["reward"] == 1.0


@pytest.mark.anyio
async def test_a_task_that_does_not_complete_takes_its_calls_and_one_answer(
    tmp_path: Path,
) -> None:
    tasks = DeskTasks()
    task = next(iter(tasks.tasks()))
    lost = ScriptedTurn(calls=(("mail_search", {"words": "nothing of the kind"}),))
    harness = SimpleHarness(
        config=SimpleConfig(stepwise=True), script=lambda _: (lost, lost)
    )

    row = await graded(tmp_path, task, harness)

    assert row["failure"] is None, row
    output = row["result"]["response"]["output"]
    assert [item["type"] for item in output] == [
        *["function_call", "function_call_output"] * 2,
        "message",
    ]
    assert model_calls(row) == 2 + 1
    assert row["result"]["reward"] == 0.0
