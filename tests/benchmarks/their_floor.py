# SPDX-License-Identifier: Apache-2.0
"""NeMo Gym's own three servers, started to be measured beside ours."""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from .served_process import START_SECONDS, Server, until_healthy

SCRIPT: Final = Path(__file__).with_name("their_servers.py")
KINDS: Final = {
    "resources": "resources_servers",
    "agent": "responses_api_agents",
    "environment": "environment_servers",
}
HOST: Final = "127.0.0.1"


@contextmanager
def their_servers(python: str) -> Generator[list[Server]]:
    """Start them, the environment server first in the list; they are gone in the end."""
    ports = free_ports([*KINDS, "head"])
    told = json.dumps(configuration(ports))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        servers = [
            stack.enter_context(their_server(python, kind, ports[kind], told, name))
            for kind in KINDS
        ]
        yield servers[::-1]


def configuration(ports: dict[str, int]) -> dict[str, Any]:
    """Return what `gym env start` would tell its servers, as shipped."""
    more: dict[str, dict[str, Any]] = {
        "resources": {"domain": "other"},
        "agent": {},
        "environment": {
            "resources_server": {"type": KINDS["resources"], "name": "resources"},
            "agent_server": {"type": KINDS["agent"], "name": "agent"},
            "max_concurrent_episodes": None,
            "queue_timeout_seconds": None,
            "default_episode_timeout_seconds": 21600,
            "cleanup_timeout_seconds": 180,
        },
    }
    blocks = {
        name: {
            kind: {
                name: {
                    "entrypoint": "app.py",
                    "host": HOST,
                    "port": ports[name],
                    **more[name],
                }
            }
        }
        for name, kind in KINDS.items()
    }
    head = {"host": HOST, "port": ports["head"]}
    return {"head_server": head, "dry_run": False, **blocks}


@contextmanager
def their_server(
    python: str, name: str, port: int, told: str, folder: str
) -> Generator[Server]:
    """Start one of them.

    Raises:
        AssertionError: It did not become healthy; its last words are in it.
    """
    began, log = time.monotonic(), Path(folder, f"{name}.log")
    url = f"http://{HOST}:{port}"
    with log.open("wb") as out:
        popen = subprocess.Popen(
            [python, str(SCRIPT), name],
            cwd=folder,
            env={
                **os.environ,
                "NEMO_GYM_CONFIG_DICT": told,
                "NEMO_GYM_CONFIG_PATH": name,
            },
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            text=True,
        )
    try:
        try:
            anyio.run(until_healthy, url, began + START_SECONDS, popen)
        except AssertionError as fault:
            words = log.read_text(errors="replace")[-2000:]
            raise AssertionError(f"NeMo Gym's {name}: {fault}\n{words}") from None
        yield Server(name, popen, [url], time.monotonic() - began)
    finally:
        popen.terminate()
        try:
            popen.wait(30)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()


def free_ports(names: list[str]) -> dict[str, int]:
    """Return ports that are free now."""
    with ExitStack() as stack:
        ports: dict[str, int] = {}
        for name in names:
            listening = stack.enter_context(socket.socket())
            listening.bind((HOST, 0))
            ports[name] = listening.getsockname()[1]
        return ports
