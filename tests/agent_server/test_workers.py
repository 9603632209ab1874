# SPDX-License-Identifier: Apache-2.0
"""Several workers behind one address: any answers, and one that dies is followed."""

import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from .processes import Ground, Process
from .test_processes import ACTIVATIONS, PROMPT, in_background, until

WAIT_SECONDS = 120.0


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def workers_of(server: Process) -> list[psutil.Process]:
    """Return the workers that live, each of which was begun with the address."""
    children = psutil.Process(server.popen.pid).children()
    return [child for child in children if "--worker" in words_of(child)]


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # It ended while it was looked at.


def test_any_worker_answers_and_a_killed_one_is_followed(ground: Ground) -> None:
    ground.settle("sleep 3; echo told")
    with ground.logged_server(ground.folder / "log", "--workers", "2") as server:
        first = workers_of(server)
        cookie = server.seeded()
        thread, _ = in_background(lambda: server.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: len(ground.starts) == 1)
        for worker in first:
            worker.kill()
        gone, _ = psutil.wait_procs(first, timeout=WAIT_SECONDS)
        thread.join()
        until(lambda: len(workers_of(server)) == 2)
        reply = server.post(ACTIVATIONS, PROMPT, cookie)
        closed = server.close()
        status, _ = server.end(signal.SIGTERM, within=WAIT_SECONDS)

    assert len(gone) == 2
    assert "told" in reply.text
    assert closed.json()["agent_observations"]["records"]
    assert ground.starts == ["start"]
    assert status == 0
    assert "another follows" in (ground.folder / "log").read_text()
    assert list((ground.folder / "state" / "sandboxes").iterdir()) == []


def test_whichever_worker_is_asked_tells_what_all_have_done(ground: Ground) -> None:
    with ground.logged_server(ground.folder / "log", "--workers", "2") as server:
        server.seeded()
        page = server.client.get("/metrics").text

    begun = re.findall(
        r'^livery_sessions_begun_total{participant="agent",worker="(\d)"} (\S+)$',
        page,
        re.MULTILINE,
    )
    assert sorted(worker for worker, _ in begun) == ["1", "2"]
    assert sum(float(count) for _, count in begun) == 1.0
    assert re.findall(r"^livery_worker_up{.*} (\S+)$", page, re.MULTILINE) == [
        "1.0",
        "1.0",
    ]


def test_workers_end_with_the_process_that_follows_them(ground: Ground) -> None:
    with ground.logged_server(ground.folder / "log", "--workers", "2") as server:
        workers = workers_of(server)
        server.popen.kill()
        server.popen.wait()
        gone, alive = psutil.wait_procs(workers, timeout=WAIT_SECONDS)

    assert len(gone) == 2
    assert alive == []


def test_what_ends_each_worker_at_its_start_is_told_and_ends_all(
    ground: Ground,
) -> None:
    ground.settle(block='provider = "docker"\noptions = {address = "unix:///no"}')

    popen = ground.begin(subprocess.PIPE, "--workers", "2")
    _, told = popen.communicate(timeout=WAIT_SECONDS)

    assert popen.returncode == 2
    assert "/no" in told
    assert "Serving" not in told
