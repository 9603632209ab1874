# SPDX-License-Identifier: Apache-2.0
"""One session at `livery serve agent` on a real engine, whose client asks until answered.

The client seeds, activates and closes. Where the server went away, it begins another over
the same folder and asks for the same again, as callers do.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import httpx

from livery.adapters.docker_engine.container_config import OWNER
from livery.adapters.gym_servers.wire_names import READS_OUTCOME_HEADER
from livery.adapters.journals import open_sqlite_journal

from ..agent_server.processes import SAYS
from ..agent_server.scripted import EPISODE, HELLO, seed
from ..docker_engine.raw_engine import labelled
from ..journals.open_streams import still_open
from .forks import ROOT
from .one_episode import NO_FATES, Fates, lines_of

WAIT_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.02
SERVERS_MAX: Final = 4
PLACE: Final = "places/agent_sessions/0"
"""The journal's word for the one place that the server has."""
GOING_AWAY: Final = 503
SOLVE: Final = "echo start >> /shared/starts; echo done"
SEED: Final = "/v1/agent_sessions"
ACTIVATE: Final = "/v1/responses"
CLOSE: Final = "/v1/agent_sessions/close"


def closing(session: str) -> Mapping[str, Any]:
    """Return the body of a close."""
    return {"agent_session_id": session, "episode_id": EPISODE}


@attrs.frozen(kw_only=True)
class Served:
    """What the client was answered, and what is left."""

    seeded: httpx.Response
    activated: tuple[httpx.Response, ...]
    """The answer, and the answer to the same once more."""
    closed: tuple[httpx.Response, ...]
    servers: int
    last_status: int
    on_engine: tuple[str, ...]
    still_open: tuple[str, ...]

    @property
    def status(self) -> str:
        """What the activation came to."""
        return str(self.activated[0].json()["status"])


@attrs.define(kw_only=True)
class OneSession:
    """The folders of a server of one session."""

    folder: Path
    image: str
    _popen: "subprocess.Popen[str] | None" = None
    _url: str = ""
    _begun: int = 0
    _fates: Fates = NO_FATES

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def notes(self) -> list[str]:
        """The points that the first server passed."""
        return lines_of(self.folder / "notes.1")

    @property
    def starts(self) -> list[str]:
        return lines_of(self.folder / "shared" / "starts")

    @property
    def said(self) -> str:
        """All that the servers said."""
        logs = sorted(self.folder.glob("log.*"))
        return "\n".join(f"{log.name}: {log.read_text()}" for log in logs)

    def prepare(self) -> None:
        """Write the settings down, and make the folder that is mounted."""
        shared = self.folder / "shared"
        shared.mkdir(parents=True)
        (self.folder / "livery.toml").write_text(
            f"""
[agent_server]
port = 0
concurrency = 1
harness = "counting"
sandbox_provider = "own"
shutdown_grace_seconds = 60
[harness.counting]
harness = "command"
options = {{command = {json.dumps(["sh", "-c", SOLVE])}}}
[sandbox.own]
provider = "docker"
image = "{self.image}"
mounts = [{{source = "{shared}", target = "/shared", read_only = false}}]
"""
        )

    def serve(self, fates: Fates = NO_FATES) -> Served:
        """Have the session go through, the first server with these fates."""
        self._fates = fates
        try:
            seeded = self._asked(SEED, seed("s1"))
            assert seeded.status_code == 200, f"{seeded!r} {seeded.text}\n{self.said}"
            cookie = seeded.headers["set-cookie"].partition(";")[0]
            activated = [self._asked(ACTIVATE, HELLO, cookie) for _ in range(2)]
            closed = [self._asked(CLOSE, closing("s1")) for _ in range(2)]
            status = self._end()
            if status < 0 or PLACE in anyio.run(self._still_open):
                # Struck at its end, or the place of one that was struck is left: it
                # is free, and the next session takes it.
                self._fates = NO_FATES
                assert self._asked(SEED, seed("s2")).status_code == 200
                assert self._asked(CLOSE, closing("s2")).status_code == 200
                status = self._end()
        finally:
            self._kill()
        owner = (self.state / "owner").read_text().strip()
        return Served(
            seeded=seeded,
            activated=tuple(activated),
            closed=tuple(closed),
            servers=self._begun,
            last_status=status,
            on_engine=labelled(f"{OWNER}={owner}"),
            still_open=anyio.run(self._still_open),
        )

    def _asked(
        self, path: str, body: Mapping[str, Any], cookie: str = ""
    ) -> httpx.Response:
        """Ask until some server answers."""
        while True:
            if self._popen is None:
                self._begin()
            headers = {READS_OUTCOME_HEADER: "true"}
            if cookie:
                headers["cookie"] = cookie
            try:
                with httpx.Client(base_url=self._url, timeout=WAIT_SECONDS) as client:
                    answer = client.post(path, json=body, headers=headers)
                if answer.status_code != GOING_AWAY:
                    return answer
            except httpx.TransportError:
                pass
            assert self._popen is not None
            self._popen.wait(WAIT_SECONDS)
            self._popen = None

    def _begin(self) -> None:
        """Begin servers until one serves."""
        while True:
            assert self._begun < SERVERS_MAX, self.said
            fates = self._fates if self._begun == 0 else NO_FATES
            self._begun += 1
            log = self.folder / f"log.{self._begun}"
            notes = self.folder / f"notes.{self._begun}"
            with log.open("w") as said:
                self._popen = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "tests.crash.doomed_livery"),
                        *(str(notes), json.dumps(fates)),
                        *(str(self.folder / "out"), str(self.state)),
                        *("--", "serve", "agent", "--state", str(self.state)),
                        *("--config", str(self.folder / "livery.toml")),
                    ],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                    text=True,
                )
            if self._serves(log):
                return

    def _serves(self, log: Path) -> bool:
        """Wait until the server serves; return False when it ended before."""
        assert self._popen is not None
        until = time.monotonic() + WAIT_SECONDS
        while self._popen.poll() is None:
            assert time.monotonic() < until, self.said
            for line in log.read_text().splitlines():
                if line.startswith(SAYS):
                    self._url = line.removeprefix(SAYS).split()[0]
                    return True
            time.sleep(LOOK_SECONDS)  # Another process says it in a file.
        return False

    @property
    def _is_stopping(self) -> bool:
        """Whether the server that is there was struck with a stop in order."""
        return self._begun == 1 and any(
            point in self.notes and not {"TERM", "INT"}.isdisjoint(fates)
            for point, fates in self._fates.items()
        )

    def _end(self) -> int:
        if self._popen is None:
            return 0
        if not self._is_stopping:  # Told twice, it would end at once.
            self._popen.send_signal(signal.SIGTERM)
        status = self._popen.wait(WAIT_SECONDS)
        self._popen = None
        return status

    def _kill(self) -> None:
        if self._popen is not None and self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()

    async def _still_open(self) -> tuple[str, ...]:
        async with open_sqlite_journal(self.state / "journal.sqlite") as journal:
            return await still_open(journal)
