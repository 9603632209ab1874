# SPDX-License-Identifier: Apache-2.0
"""The three servers of Livery as processes, each of them behind proxies."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import attrs
import psutil

from ..entrypoints.command_lines import PROGRAM
from .clients import KEPT_SECONDS
from .workload import INSIDE, Outside

START_SECONDS_MAX: Final = 120.0
END_SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 0.05
LOG_LINES: Final = 40
KEY: Final = "LIVERY_SOAK_MODEL_KEY"


@attrs.frozen(kw_only=True)
class Ways:
    """Where each server reaches the next one: the addresses of the proxies."""

    resources_docker: str
    agent_docker: str
    model: str
    resources: str = "http://127.0.0.1:1"
    agent: str = "http://127.0.0.1:1"


def settings(outside: Outside, image: str, ways: Ways, docker: str) -> str:
    """Return the settings of a server that reaches the engine at `docker`."""
    places = f'source = "{outside.folder}", target = "{INSIDE}"'
    return f"""
[log]
level = "info"
[reaper]
interval_seconds = 15
sweep_seconds = 20
grace_seconds = 20
[environment_server]
port = 0
resources_url = {json.dumps(ways.resources)}
agent_url = {json.dumps(ways.agent)}
episode_timeout_seconds = 240
cleanup_timeout_seconds = 60
result_keep_seconds = {KEPT_SECONDS}
disconnect_grace_seconds = 10
shutdown_grace_seconds = 30
[resources_server]
port = 0
world = "workspace"
sandbox_provider = "soak"
session_close_retry_window_seconds = 60
idle_timeout_seconds = 300
[agent_server]
port = 0
harness = "claude_code"
concurrency = 16
disconnect_grace_seconds = 10
session_close_retry_window_seconds = 60
idle_timeout_seconds = 300
seed_wait_seconds = 60
shutdown_grace_seconds = 30
[model]
url = {json.dumps(ways.model)}
credential = {{env = "{KEY}"}}
silence_timeout_seconds = 30
[harness.claude_code]
turn_timeout_seconds = 120
[harness.claude_code.options]
sandbox_local_executable_path = {json.dumps(str(outside.program))}
sandbox_executable_sha256 = "{outside.sha256}"
[sandbox.soak]
provider = "docker"
image = "{image}"
network = "none"
lifetime_seconds = 900
mounts = [{{{places}, read_only = false}}]
options = {{address = {json.dumps(docker)}, pull = "never"}}
"""


@attrs.define
class Server:
    """A process that serves."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path
    url: str = ""

    @property
    def process(self) -> psutil.Process:
        """The process, for who measures it."""
        return psutil.Process(self.popen.pid)

    def said(self) -> list[str]:
        """Return the lines that it said."""
        return self.log.read_text(errors="replace").splitlines()

    async def end(self) -> int:
        """End it in order, and return its status; kill it where that does not help."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        with anyio.move_on_after(END_SECONDS_MAX):
            while self.popen.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(LOOK_SECONDS)
        if self.popen.poll() is None:
            self.popen.kill()
        return self.popen.wait()


@asynccontextmanager
async def serving(name: str, text: str, folder: Path) -> AsyncGenerator[Server]:
    """Run a server inside the block, with all that it says in a file."""
    config, log = folder / f"{name}.toml", folder / f"{name}.log"
    config.write_text(text)
    server = Server(name, _begin(name, config, folder, log), log)
    try:
        server.url = await _url(server)
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await server.end()


def _begin(
    name: str, config: Path, folder: Path, log: Path
) -> "subprocess.Popen[bytes]":
    words = ["serve", name, "--config", config, "--state", folder / "state"]
    cache = str(folder / "cache")
    with log.open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            env={**os.environ, KEY: "sk-of-the-soak", "XDG_CACHE_HOME": cache},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )


async def _url(server: Server) -> str:
    with anyio.move_on_after(START_SECONDS_MAX):
        while server.popen.poll() is None:
            for line in server.said():
                if "Serving " in line and " at http" in line:
                    return line.partition(" at ")[2].split()[0]
            await anyio.sleep(LOOK_SECONDS)
    told = "\n".join(server.said()[-LOG_LINES:])
    raise AssertionError(f"the {server.name} server did not begin: {told}")
