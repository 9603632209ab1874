# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server, in a folder of its own, on a socket of its own.

It does not run as root, so as root it runs as `nobody`. Each test has a schema of its
own, so that one server serves all of them. It is set up not to wait for the disk:
what is killed here are processes, and never the machine.
"""

import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import attrs
import psycopg

from livery.adapters.postgres_journal import Database

from .. import peers

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05
USER = "livery"
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "log_min_messages": "fatal",
}


@attrs.define(kw_only=True)
class Postgres:
    """A server that runs, or was stopped for a while."""

    folder: Path
    password: str
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Where it answers; the password is apart."""
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    def database(self) -> Database:
        """Return a schema that nobody has used."""
        schema = f"livery_{secrets.token_hex(6)}"
        return Database(url=self.url, password=self.password, schema=schema)

    def execute(self, statement: str, *words: object) -> list[tuple[object, ...]]:
        """Carry a statement out, as an operator would."""
        with psycopg.connect(
            self.url, password=self.password, autocommit=True
        ) as connection:
            cursor = connection.execute(statement.encode(), words)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def as_a_standby(self) -> Generator[None]:
        """Have connections that are opened inside the block be read-only."""
        self.execute(f"ALTER ROLE {USER} SET default_transaction_read_only = on")
        try:
            yield
        finally:
            with psycopg.connect(
                f"{self.url}&options=-cdefault_transaction_read_only%3Doff",
                password=self.password,
                autocommit=True,
            ) as connection:
                connection.execute(
                    f"ALTER ROLE {USER} RESET default_transaction_read_only".encode()
                )

    def initialise(self) -> None:
        """Make its files."""
        secret = self.folder / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:
            os.chown(self.folder, *peers.NOBODY)
            os.chown(secret, *peers.NOBODY)
        made = subprocess.run(
            [
                *(*_as_nobody(), _program("initdb"), "--no-sync"),
                *("-D", self.folder / "data", "-U", USER, "--pwfile", secret),
                *("--auth=scram-sha-256", "--locale=C", "--encoding=UTF8"),
            ],
            capture_output=True,
            cwd="/",
            timeout=START_SECONDS_MAX,
        )
        assert made.returncode == 0, made.stderr.decode()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*_as_nobody(), _program("postgres")),
                    *("-D", self.folder / "data", "-k", self.folder, *words),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                log_text = (self.folder / "log").read_text()
                assert self._process.poll() is None, log_text
                assert time.monotonic() < deadline, log_text
                time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """End it as an operator does who does not wait for its clients."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def open_postgres() -> Generator[Postgres]:
    """Run a fresh server inside the block."""
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        server = Postgres(folder=Path(name), password=secrets.token_urlsafe(24))
        server.initialise()
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _program(name: str) -> Path:
    path = peers.postgres_program(name)
    assert path is not None, "the peer was probed"
    return path


def _as_nobody() -> tuple[str, ...]:
    """Return the words before a program that root may not run."""
    if os.geteuid() != 0:
        return ()
    user, group = peers.NOBODY
    # It does not outlive a test run that is killed.
    return (
        *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"),
        *("--pdeathsig", "INT", "--"),
    )
