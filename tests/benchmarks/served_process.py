# SPDX-License-Identifier: Apache-2.0
"""A server of ours as a process that a benchmark measures."""

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import anyio
import attrs
import psutil

START_SECONDS = 120.0
LOOK_SECONDS = 0.01


@attrs.frozen
class Server:
    """A process that serves."""

    name: str
    popen: "subprocess.Popen[str]"
    urls: list[str]
    start_seconds: float

    @property
    def cpu_seconds(self) -> float:
        spent = psutil.Process(self.popen.pid).cpu_times()
        return spent.user + spent.system

    def longest_wait_ms(self) -> float:
        """Return how long its loop kept somebody waiting since this was asked last."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()
        return float(self.popen.stdout.readline())

    @property
    def mib(self) -> float:
        return psutil.Process(self.popen.pid).memory_info().rss / 2**20


def settings(
    folder: Path, resources: str = "", agent: str = "", concurrency: int | None = None
) -> Path:
    """Write the settings of all three; `concurrency` is the agent's, where given."""
    path = folder / "livery.toml"
    many = "" if concurrency is None else f"concurrency = {concurrency}"
    path.write_text(
        f"""
[agent_server]
port = 0
harness = "nop"
{many}
[resources_server]
port = 0
[environment_server]
port = 0
resources_url = "{resources or "http://127.0.0.1:1"}"
agent_url = "{agent or "http://127.0.0.1:1"}"
result_keep_seconds = 30
"""
    )
    return path


@contextmanager
def server(
    name: str, path: Path, state: Path, urls: int = 1, world: str = "empty"
) -> Generator[Server]:
    """Start one that says so many addresses; it is ended in the end."""
    began = time.monotonic()
    popen = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.served", name, path, state, world],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert popen.stdout is not None
        found = [popen.stdout.readline().strip() for _ in range(urls)]
        assert all(found), f"{name} did not begin"
        anyio.run(until_healthy, found[0], began + START_SECONDS, popen)
        yield Server(name, popen, found, time.monotonic() - began)
    finally:
        assert popen.stdin is not None
        popen.stdin.close()
        try:
            popen.wait(60)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
        assert popen.stdout is not None
        popen.stdout.close()


async def until_healthy(url: str, until: float, popen: "subprocess.Popen[str]") -> None:
    """Wait until a server says that it is healthy.

    Raises:
        AssertionError: It did not in time, or ended.
    """
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < until:
            assert popen.poll() is None, f"it ended with {popen.returncode}"
            try:
                async with http.get(f"{url}/healthz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                await anyio.sleep(LOOK_SECONDS)
    raise AssertionError("it did not become healthy")
