# SPDX-License-Identifier: Apache-2.0
"""Workers on a PostgreSQL journal: killed and paused, and each run starts once.

What is counted is counted by the harness's own command, in a file outside of every
sandbox, by the folder that it runs in.
"""

import collections
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import attrs
import httpx
import pytest

from livery.adapters.gym_servers.wire_names import READS_OUTCOME_HEADER

from ..agent_server.processes import Ground, Process
from ..agent_server.scripted import EPISODE, seed
from ..agent_server.test_processes import ACTIVATIONS, PROMPT, in_background, until
from ..agent_server.test_workers import workers_of
from .server import Postgres

pytestmark = pytest.mark.peer("postgres")

PATIENCE_SECONDS = 900.0
CALL_SECONDS = 120.0
AGAIN_SECONDS = 0.25
LEASE_SECONDS = 2.0
CLIENTS = 12
ATTEMPTS_MAX = 10
TOLD = "told by the harness"
SEED = "/v1/agent_sessions"
CLOSE = "/v1/agent_sessions/close"


@pytest.fixture
def ground(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Ground:
    """Where servers share a journal in PostgreSQL, and count the starts."""
    monkeypatch.setenv("LIVERY_TEST_PASSWORD", postgres.password)
    return Ground(tmp_path)


def settle(ground: Ground, postgres: Postgres, *, seconds: float) -> str:
    """Write the settings; return the schema of the journal."""
    database = postgres.database()
    ground.settle(
        f'pwd >> "{ground.folder}/folders"; sleep {seconds}; echo {TOLD}',
        more="concurrency = 64\nseed_wait_seconds = 300",
        journal=f"""
[journal]
kind = "postgres"
url = "{database.url}"
schema = "{database.schema}"
password = {{env = "LIVERY_TEST_PASSWORD"}}
lease_seconds = {LEASE_SECONDS}
""",
    )
    return database.schema


def folders(ground: Ground) -> list[str]:
    file = ground.folder / "folders"
    return file.read_text().splitlines() if file.exists() else []


@attrs.frozen
class Caller:
    """Calls again until it is answered, as callers do."""

    url: str

    def ask(self, path: str, body: object, cookie: str | None = None) -> httpx.Response:
        told, deadline = "it was not asked", time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            headers = {READS_OUTCOME_HEADER: "true"}
            if cookie is not None:
                headers["cookie"] = cookie
            try:
                reply = httpx.post(
                    self.url + path, json=body, headers=headers, timeout=CALL_SECONDS
                )
            except httpx.TransportError as cut:
                told = repr(cut)
            else:
                if reply.status_code == 200:
                    return reply
                told = f"{reply.status_code} {reply.text}"
                assert reply.status_code >= 429, told
            time.sleep(AGAIN_SECONDS)
        raise AssertionError(f"{path} was not answered: {told}")

    def carry_out(self, name: str) -> int:
        """Have a session from its seed to its close; return how many it took.

        A worker that is killed between the intent and the launch leaves an activation
        that never begins and is told as cancelled: the next session does the work.
        """
        for attempt in range(1, ATTEMPTS_MAX + 1):
            text = self._answered(f"{name}-{attempt}")
            if TOLD in text:
                return attempt
            assert '"status": "cancelled"' in text, text
        raise AssertionError(f"{name} was cancelled {ATTEMPTS_MAX} times")

    def _answered(self, session: str) -> str:
        seeded = self.ask(SEED, seed(session))
        cookie = str(seeded.headers["set-cookie"]).partition(";")[0]
        reply = self.ask(ACTIVATIONS, PROMPT, cookie)
        again = self.ask(ACTIVATIONS, PROMPT, cookie)
        assert again.content == reply.content
        closed = self.ask(CLOSE, {"agent_session_id": session, "episode_id": EPISODE})
        assert closed.json()["agent_observations"] is not None
        return json.dumps(reply.json())


def test_a_paused_worker_is_followed_and_writes_nothing_when_it_comes_back(
    ground: Ground, postgres: Postgres
) -> None:
    settle(ground, postgres, seconds=4)
    with ExitStack() as stack:
        slow = stack.enter_context(ground.logged_server(ground.folder / "slow"))
        other = stack.enter_context(ground.logged_server(ground.folder / "other"))
        cookie = slow.seeded()
        thread, _ = in_background(lambda: slow.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: len(folders(ground)) == 1)
        slow.popen.send_signal(signal.SIGSTOP)
        try:
            reply = other.post(ACTIVATIONS, PROMPT, cookie)
        finally:
            slow.popen.send_signal(signal.SIGCONT)
        status = slow.popen.wait(PATIENCE_SECONDS)
        thread.join()
        again = other.post(ACTIVATIONS, PROMPT, cookie)
        closed = other.close()

    assert reply.json()["status"] == "completed"
    assert again.content == reply.content
    assert closed.json()["agent_observations"]["records"]
    assert status == 1
    assert "lost its lease" in (ground.folder / "slow").read_text()
    assert len(folders(ground)) == 1
    assert list((ground.folder / "state" / "sandboxes").iterdir()) == []


@pytest.mark.parametrize(
    ("sessions", "every_seconds"),
    [
        pytest.param(16, 2.0, id="16"),
        pytest.param(500, 4.0, id="500", marks=pytest.mark.long),
    ],
)
def test_workers_are_killed_and_each_session_runs_once_and_is_answered(
    ground: Ground, postgres: Postgres, sessions: int, every_seconds: float
) -> None:
    schema = settle(ground, postgres, seconds=2)
    over = threading.Event()
    killed: list[int] = []

    def kill(server: Process) -> None:
        """Kill the oldest worker, again and again, while another serves."""
        while not over.wait(every_seconds):
            leases = postgres.execute(f"SELECT holder FROM {schema}.leases")
            serving = {int(str(holder).split("-")[-2]) for (holder,) in leases}
            workers = [one for one in workers_of(server) if one.pid in serving]
            if len(workers) > 1:
                oldest = min(workers, key=lambda one: one.create_time())
                killed.append(oldest.pid)
                oldest.kill()

    log = ground.folder / "log"
    with ground.logged_server(log, "--workers", "2") as server:
        killer = threading.Thread(target=kill, args=(server,))
        killer.start()
        caller = Caller(server.url)
        try:
            with ThreadPoolExecutor(CLIENTS) as clients:
                took = list(
                    clients.map(caller.carry_out, (f"s{n}" for n in range(sessions)))
                )
        finally:
            over.set()
            killer.join()
        status, _ = server.end(signal.SIGTERM, within=PATIENCE_SECONDS)

    starts = collections.Counter(folders(ground))
    open_claims = postgres.execute(
        f"SELECT key FROM {schema}.streams WHERE is_open AND category NOT IN ('places', 'waits')"
    )
    print(
        f"{sessions} sessions, {len(killed)} workers killed,"
        f" {sum(starts.values())} starts, {sum(took) - sessions} never begun"
    )
    assert status == 0
    assert killed
    assert len(starts) == sessions
    assert set(starts.values()) == {1}
    assert open_claims == []
    assert list((ground.folder / "state" / "sandboxes").iterdir()) == []
