# SPDX-License-Identifier: Apache-2.0
"""Containers without a network reach the apps through a relay, and nothing else."""

from pathlib import Path

import pytest

from livery.adapters.docker_engine import DockerSandboxProvider, open_docker_engine
from livery.adapters.worker_scripts import program
from livery.adapters.worlds.desk import DeskTasks, DeskWorld
from livery.domain.activations import Stillness
from livery.domain.claims import OwnerId
from livery.domain.tasks import TaskId
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.provided.stop_processes import STOPPER, StopProcesses
from livery.ports.required.sandbox import Sandbox, shell

from .serving import Server, serving

pytestmark = [pytest.mark.anyio, pytest.mark.peer("docker")]

SECONDS = 60.0
# The model's own client: what the documentation printed, asked with the standard library.
ASK = """
import json, subprocess, sys, urllib.request
told = subprocess.run(["office-docs"], check=True, capture_output=True, text=True).stdout
base = told.split("Base URL: ")[1].split()[0]
name, value = told.split("Header: ")[1].splitlines()[0].split(": ", 1)
path, body = sys.argv[1:]
asked = urllib.request.Request(base + path, body.encode(), {name: value})
print(urllib.request.urlopen(asked, timeout=30).read().decode())
"""
# Seen from inside, nothing but the relay answers.
OUTSIDE = """
import socket
try:
    socket.create_connection(("10.255.255.1", 80), timeout=3)
except OSError as error:
    print("closed")
"""


@pytest.fixture(autouse=True)
def image(test_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERY_IMAGE", test_image)


async def told(sandbox: Sandbox, script: str) -> str:
    ended = await sandbox.exec(shell(script, timeout_seconds=SECONDS))
    text = (ended.stdout.kept + ended.stderr.kept).decode()
    assert ended.succeeded, text
    return text


async def lent(
    server: Server, provider: DockerSandboxProvider, tasks: DeskTasks, name: str
) -> tuple[str, dict[str, object], Sandbox]:
    task = next(t for t in tasks.tasks() if t.task_id == TaskId("desk", name))
    body: dict[str, object] = {"task_data": task.task_data}
    cookie = await server.seeded(f"c-{name}-{tasks.way}", **body)
    state = server.application.served.sessions
    (session,) = state.open_here
    opened = state._open[session]
    assert opened.sandbox is not None
    return cookie, task.task_data, opened.sandbox


async def test_commands_and_endpoints_work_without_a_network(tmp_path: Path) -> None:
    async with (
        open_docker_engine() as provider,
        serving(
            tmp_path / "state", DeskWorld(), provider, block_internet=True
        ) as server,
    ):
        cookie, data, sandbox = await lent(
            server, provider, DeskTasks("commands"), "upload-report"
        )
        await told(sandbox, "drive upload --path=reports/march.txt --file=report.txt")
        await told(
            sandbox,
            "cd /tmp && drive share --path reports/march.txt"
            " --person yuki@office.example",
        )
        closed = await told(sandbox, f"python3 -c '{OUTSIDE}'")
        guide = await told(sandbox, "cat GUIDE.md")
        by_commands = (await server.verify(cookie, **data)).json()
        await server.close("c-upload-report-commands")

        cookie, data, sandbox = await lent(
            server, provider, DeskTasks("endpoints"), "offer-to-drive"
        )
        await told(sandbox, f"cat > ask.py <<'END'\n{ASK}\nEND")
        await told(
            sandbox,
            'python3 ask.py /api/mail/save \'{"id": 1, "name": "harbour-offer.txt"}\'',
        )
        await told(
            sandbox,
            "python3 ask.py /api/drive/upload"
            ' \'{"path": "offers/harbour.txt", "file": "harbour-offer.txt"}\'',
        )
        by_endpoints = (await server.verify(cookie, **data)).json()
        await server.close("c-offer-to-drive-endpoints")

        owner = open_state_folder(tmp_path / "state").owner
        left = [one async for one in provider.list(OwnerId(owner))]

    assert closed == "closed\n"
    assert "`drive --help`" in guide
    assert (by_commands["reward"], by_endpoints["reward"]) == (1.0, 1.0)
    assert left == []


async def test_what_an_agent_left_running_is_ended_and_seen_dead(
    tmp_path: Path,
) -> None:
    async with (
        open_docker_engine() as provider,
        serving(tmp_path / "state", DeskWorld(), provider) as server,
    ):
        _, _, sandbox = await lent(server, provider, DeskTasks("mcp"), "answer-lunch")
        await sandbox.exec(
            shell(
                "setsid sh -c 'while :; do date >> /tmp/ticks; sleep 0.05; done'"
                " > /dev/null 2>&1 < /dev/null &",
                timeout_seconds=SECONDS,
            )
        )
        stop = StopProcesses(program=program(STOPPER))

        stillness = await stop(sandbox)

        before = await told(sandbox, "cat /tmp/ticks 2>/dev/null | wc -l")
        after = await told(sandbox, "sleep 0.5; cat /tmp/ticks 2>/dev/null | wc -l")
        await server.close("c-answer-lunch-mcp")

    assert stillness is Stillness.PROCESSES_SEEN_DEAD
    assert before == after
