# SPDX-License-Identifier: Apache-2.0
"""`livery serve resources` as a process of its own."""

import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from livery.adapters.worlds.desk import DeskTasks

from ..entrypoints.command_lines import serving_process
from .serving import EPISODE, seed

SAYS = "Serving resources sessions at "
SECONDS = 60.0
CONFIG = """
[resources_server]
port = 0
sandbox_provider = "local"
shutdown_seconds = 10
"""


@contextmanager
def served(
    tmp_path: Path, config: str
) -> Generator[tuple["subprocess.Popen[str]", str]]:
    """Start a server, and end it when the block is left."""
    (tmp_path / "livery.toml").write_text(config)
    with serving_process("resources", tmp_path) as process:
        assert process.stderr is not None
        told = ""
        for line in process.stderr:
            told += line
            if SAYS in line:
                yield process, line.partition(SAYS)[2].split()[0]
                break
        else:
            raise AssertionError(told)


@pytest.mark.case("FC-145", "FC-147")
def test_a_signal_stops_what_is_lent_and_ends_the_server(tmp_path: Path) -> None:
    tasks = DeskTasks("commands")
    (task, *_) = tasks.tasks()
    with (
        served(tmp_path, CONFIG) as (process, url),
        httpx.Client(base_url=url, timeout=SECONDS) as client,
    ):
        reply = client.post("/seed_session", json=seed("p1", task_data=task.task_data))
        workdir = Path(reply.json()["sandbox_access"]["workdir"])
        (call,) = tasks.calls(task.task_id)
        words = [f"--{name}={value}" for name, value in call.arguments.items()]
        app, _, action = call.tool.partition("_")
        command = subprocess.run(
            [workdir / "bin" / app, action, *words],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=workdir,
        )
        body = {"responses_create_params": {}, "response": {"id": "r"}}
        cookie = reply.headers["set-cookie"].partition(";")[0]
        client.cookies.clear()
        verdict = client.post("/verify", json=body, headers={"cookie": cookie})
        client.cookies.clear()
        second = client.post("/seed_session", json=seed("p2", task_data=task.task_data))
        boxes = list((tmp_path / "state" / "sandboxes").iterdir())
        client.cookies.clear()
        closed = client.post(
            "/close_session",
            json={"resources_session_id": "p1", "episode_id": EPISODE},
        )

        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        status = process.wait(SECONDS)
        took = time.monotonic() - began

    assert (reply.status_code, second.status_code, closed.status_code) == (200,) * 3
    assert (command.returncode, command.stderr) == (0, "")
    assert verdict.json()["reward"] == 1.0
    assert len(boxes) == 1, "the first one went before its grading"
    assert status == 0
    assert took < SECONDS
    assert list((tmp_path / "state" / "sandboxes").iterdir()) == []


def test_settings_that_cannot_go_together_are_told_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="too short to stop sandboxes"),
        served(tmp_path, CONFIG.replace("= 10", "= 2")),
    ):
        pass
