# SPDX-License-Identifier: Apache-2.0
"""`livery serve environment` and `livery run --via`, as a user has them."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx
import pytest

from livery.entrypoints.environment_server.composition import open_environment_server
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.run_plan import plan_of
from livery.entrypoints.run_via import EnvironmentAbsent, open_environment
from livery.entrypoints.server_urls import UrlRefused, to_url
from livery.entrypoints.settings_reading import SettingsFile, read_settings
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.required.participants import ParticipantFailed

from ..agent_server.processes import SAYS as AGENT_SAYS
from ..entrypoints.command_lines import PROGRAM, serving_process
from .good_partners import World, run_body
from .partners import listening

pytestmark = pytest.mark.anyio

SAYS = "Serving episodes at "


def settings(folder: Path, world: World, more: str = "") -> Path:
    path = folder / "livery.toml"
    path.write_text(
        f"""
[environment_server]
port = 0
resources_url = "{world.resources.url}/"
agent_url = "{world.agent.url}"
shutdown_grace_seconds = 8
{more}
"""
    )
    return path


@contextmanager
def process(folder: Path) -> Generator[tuple["subprocess.Popen[str]", str]]:
    """Run the server as a process of its own inside the block."""
    with serving_process("environment", folder) as popen:
        assert popen.stderr is not None
        line = popen.stderr.readline()
        assert line.startswith(SAYS), line + popen.stderr.read()
        yield popen, line.removeprefix(SAYS).strip()


@pytest.mark.case("FC-145", "FC-148")
async def test_the_server_serves_and_ends_at_a_signal(tmp_path: Path) -> None:
    world = World()

    def use() -> tuple[Any, int]:
        settings(tmp_path, world)
        with process(tmp_path) as (popen, url):
            reply = httpx.post(f"{url}/run", json=run_body("r1"), timeout=60)
            health = httpx.get(f"{url}/healthz")
            assert health.json() == {"status": "ok"}
            popen.send_signal(signal.SIGTERM)
            return reply.json(), popen.wait(30)

    async with listening(world.resources), listening(world.agent):
        body, status = await anyio.to_thread.run_sync(use)

    assert body["result"]["reward"] == 1.0
    assert status == 0
    assert AGENT_SAYS != SAYS


@pytest.mark.case("FC-112", "FC-142")
async def test_a_killed_server_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    world = World(may_act=anyio.Event())

    def begin_and_kill() -> None:
        settings(tmp_path, world)
        with process(tmp_path) as (popen, url):
            with pytest.raises(httpx.TimeoutException):
                httpx.post(f"{url}/run", json=run_body("r1"), timeout=3)
            popen.kill()
            popen.wait()

    def go_on() -> Any:
        settings(tmp_path, world)
        with process(tmp_path) as (_, url):
            return httpx.post(f"{url}/run", json=run_body("r1"), timeout=60).json()

    async with listening(world.resources), listening(world.agent):
        await anyio.to_thread.run_sync(begin_and_kill)
        assert world.activations >= 1
        world.may_act = None
        body = await anyio.to_thread.run_sync(go_on)

    assert body["result"]["reward"] == 1.0
    # The same sessions, asked again: what was begun was not begun anew.
    assert len({*world.seeded}) == 2
    assert {*world.closed} == {*world.seeded}


async def test_an_agent_that_cannot_be_stepped_is_told_at_the_start(
    tmp_path: Path,
) -> None:
    world = World(about={"stepwise": False})
    async with listening(world.resources), listening(world.agent):
        file = read_settings(settings(tmp_path, world, "max_steps = 3"))
        state = open_state_folder(tmp_path / "state")
        surroundings = Surroundings(name="environment", state=tmp_path)
        with pytest.raises(ParticipantFailed, match="stepwise"):
            async with open_environment_server(file, state, surroundings):
                pass


async def test_servers_may_come_up_later(tmp_path: Path) -> None:
    state = open_state_folder(tmp_path / "state")
    surroundings = Surroundings(name="environment", state=tmp_path)
    file = SettingsFile()
    async with open_environment_server(file, state, surroundings) as served:
        assert served.what == "episodes"
        await served.drain()


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:1", "ftp://h", "http://", "http://u:p@h", "http://h?x=1"),
        *("http://h:port", "http://h:99999", "http://[::1", "http://u:p@h:port"),
        "ftp://u:p@h",
    ],
)
def test_an_address_that_is_none_is_refused_without_what_it_may_hold(url: str) -> None:
    with pytest.raises(UrlRefused) as refused:
        to_url("--via", url)

    assert "u:p" not in str(refused.value)


async def test_a_run_via_a_server_keeps_its_results_here(tmp_path: Path) -> None:
    world = World()
    tasks = tmp_path / "tasks.jsonl"
    rows = [
        {
            "task_id": {"taskset": "set", "task_id": str(number)},
            "task_input": {
                "responses_create_params": {"input": "do it"},
                "task_data": {
                    "grader": {"command": ["true"]},
                    "solution": {"files": {"a": "b"}},
                },
            },
        }
        for number in range(3)
    ]
    tasks.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def use() -> "subprocess.CompletedProcess[str]":
        settings(tmp_path, world)
        with process(tmp_path) as (_, url):
            return subprocess.run(
                [
                    *(sys.executable, "-c", PROGRAM),
                    *("run", tasks, "--via", url, "--out", tmp_path / "out"),
                ],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )

    async with listening(world.resources), listening(world.agent):
        ended = await anyio.to_thread.run_sync(use)

    assert ended.returncode == 0, ended.stderr
    kept = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["result"]["reward"] for line in kept] == [1.0] * 3
    card = json.loads((tmp_path / "out" / "run.json").read_text())
    assert card["settings"]["via"].startswith("http://")
    assert world.activations == 3


async def test_a_run_via_a_server_that_is_not_there_does_not_begin() -> None:
    plan = attrs.evolve(plan_of(SettingsFile(), {}), via="http://127.0.0.1:9")

    with pytest.raises(EnvironmentAbsent, match="Start the environment server"):
        async with open_environment(plan, reach_seconds=0.1):
            raise AssertionError("it is not there")


async def test_a_run_via_a_server_that_is_not_there_can_be_gone_on_with(
    tmp_path: Path,
) -> None:
    from livery.adapters.gym_servers.asking import GymServer, open_gym_client
    from livery.adapters.gym_servers.environment import HttpEnvironment
    from livery.domain.tasks import EpisodeId, Task, TaskId

    task = Task(task_id=TaskId("set", "1"), responses_create_params={}, task_data={})
    async with open_gym_client() as http:
        gone = HttpEnvironment(
            server=GymServer(url="http://127.0.0.1:9", http=http, reach_seconds=0.1)
        )
        row = await gone(EpisodeId("r1"), task)
        scope = anyio.CancelScope()
        scope.cancel()
        stopped = await gone(EpisodeId("r2"), task, scope=scope)
        absent = await gone.absent()

    assert absent.startswith("http://127.0.0.1:9 cannot be reached")
    for each, kind in ((row, "transport_unreachable"), (stopped, "cancelled")):
        failure: Any = each["failure"]
        assert failure["failure_kind"] == kind
        assert (failure["stage"], failure["terminal"]) == ("admission", False)


@pytest.mark.parametrize(
    "told",
    [
        {"episode_id": {}, "task_id": {}, "result": {}, "failure": None},
        {"result": None, "failure": None},
        {"result": {}, "failure": {}},
    ],
)
async def test_an_answer_of_another_episode_is_a_failure(told: dict[str, Any]) -> None:
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

    from livery.adapters.gym_servers.asking import GymServer, open_gym_client
    from livery.adapters.gym_servers.environment import HttpEnvironment
    from livery.domain.tasks import EpisodeId, Task, TaskId

    from .partners import Partner

    async def answer(request: Request, body: Any) -> Response:
        named = {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"]}
        return JSONResponse({**named, **told})

    partner = Partner(answer)
    task = Task(task_id=TaskId("set", "1"), responses_create_params={}, task_data={})
    async with listening(partner), open_gym_client() as http:
        server = GymServer(url=partner.url, http=http)
        row = await HttpEnvironment(server=server)(EpisodeId("r1"), task)

    failure: Any = row["failure"]
    assert failure["terminal"] is True


@pytest.mark.case("FC-157")
def test_an_interpreter_that_leaves_its_client_open_ends_all_the_same() -> None:
    program = """
import anyio
from livery.adapters.gym_servers.asking import open_gym_client

async def main():
    opened = open_gym_client()
    http = await opened.__aenter__()
    try:
        await http.get("http://127.0.0.1:9")
    except OSError:
        pass

anyio.run(main)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=60, capture_output=True, text=True
    )

    assert ended.returncode == 0, ended.stderr
