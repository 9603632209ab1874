# SPDX-License-Identifier: Apache-2.0
"""`livery serve agent` as a process of its own, over a folder that outlives it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import attrs
import httpx

from livery.adapters.gym_servers.wire_names import READS_OUTCOME_HEADER

from ..entrypoints.command_lines import PROGRAM
from .scripted import EPISODE, seed

SAYS = "Serving agent sessions at "
START_SECONDS = 60.0
CALL_SECONDS = 60.0


@attrs.frozen
class Process:
    """A server that runs."""

    popen: "subprocess.Popen[str]"
    url: str
    client: httpx.Client

    def post(
        self, path: str, body: object, cookie: str | None = None
    ) -> httpx.Response:
        headers = {READS_OUTCOME_HEADER: "true"}
        if cookie is not None:
            headers["cookie"] = cookie
        self.client.cookies.clear()
        return self.client.post(path, json=body, headers=headers)

    def seeded(self, session: str = "s1") -> str:
        reply = self.post("/v1/agent_sessions", seed(session))
        assert reply.status_code == 200, reply.text
        return str(reply.headers["set-cookie"]).partition(";")[0]

    def close(self, session: str = "s1") -> httpx.Response:
        body: Mapping[str, object] = {
            "agent_session_id": session,
            "episode_id": EPISODE,
        }
        return self.post("/v1/agent_sessions/close", body)

    def end(self, number: int, *, within: float) -> tuple[int, float]:
        """Send a signal; return the exit status and how long the end took."""
        began = time.monotonic()
        self.popen.send_signal(number)
        status = self.popen.wait(within)
        return status, time.monotonic() - began


@attrs.frozen
class Ground:
    """What outlives a server: settings, state and what commands write."""

    folder: Path

    def __attrs_post_init__(self) -> None:
        self.settle()

    @property
    def starts(self) -> list[str]:
        """A line for each start of the harness's command."""
        file = self.folder / "starts"
        return file.read_text().splitlines() if file.exists() else []

    def settle(
        self,
        script: str = "echo done",
        more: str = "",
        block: str = "",
        journal: str = "",
    ) -> None:
        """Write the settings; the command of the harness counts its start."""
        command = ["sh", "-c", f'echo start >> "{self.folder}/starts"; {script}']
        (self.folder / "livery.toml").write_text(
            f"""
[agent_server]
port = 0
harness = "counting"
sandbox_provider = "own"
shutdown_grace_seconds = 60
{more}
[harness.counting]
harness = "command"
options = {{command = {json.dumps(command)}}}
[sandbox.own]
{block or 'provider = "local"'}
{journal}
"""
        )

    def begin(
        self, stderr: IO[str] | int = subprocess.PIPE, *words: str
    ) -> "subprocess.Popen[str]":
        """Begin a server."""
        return subprocess.Popen(
            [
                *(sys.executable, "-c", PROGRAM),
                *("serve", "agent", "--config", self.folder / "livery.toml"),
                *("--state", self.folder / "state", *words),
            ],
            stderr=stderr,
            text=True,
        )

    @contextmanager
    def logged_server(self, log: Path, *words: str) -> Generator[Process]:
        """Run a server inside the block, with all that it says in a file."""
        with log.open("w") as said:
            popen = self.begin(said, *words)
        try:
            url = _url_in(log, popen)
            with httpx.Client(base_url=url, timeout=CALL_SECONDS) as client:
                yield Process(popen, url, client)
        finally:
            _end(popen)

    @contextmanager
    def server(self) -> Generator[Process]:
        """Run a server inside the block, and end it whatever happens."""
        popen = self.begin()
        try:
            url = _url_of(popen)
            with httpx.Client(base_url=url, timeout=CALL_SECONDS) as client:
                yield Process(popen, url, client)
        finally:
            _end(popen)
            assert popen.stderr is not None
            popen.stderr.close()


def _end(popen: "subprocess.Popen[str]") -> None:
    if popen.poll() is not None:
        return
    popen.send_signal(signal.SIGTERM)
    try:
        popen.wait(20)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()


def _url_in(log: Path, popen: "subprocess.Popen[str]") -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and popen.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith(SAYS):
                return line.removeprefix(SAYS).split()[0]
        time.sleep(0.02)
    raise AssertionError(f"it did not begin: {log.read_text()}")


def _url_of(popen: "subprocess.Popen[str]") -> str:
    assert popen.stderr is not None
    until = time.monotonic() + START_SECONDS
    told: list[str] = []
    while time.monotonic() < until:
        line = popen.stderr.readline()
        if line.startswith(SAYS):
            return line.removeprefix(SAYS).split()[0]
        if not line:
            break
        told.append(line)
    raise AssertionError(f"it did not begin: {''.join(told)}")
