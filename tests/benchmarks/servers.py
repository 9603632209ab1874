# SPDX-License-Identifier: Apache-2.0
"""Whole episodes over HTTP: `nop` through environment, resources and agent server.

Three servers in three processes with one SQLite journal, and then all in one, at 1, 32
and 256 episodes at once. Printed are episodes per second, p50 and p99, processor time
an episode, memory and the time to the first healthy answer. NeMo Gym's figures for the
same flow were measured on an idle machine of two cores; the bounds hold against those,
and rates are only judged where processors were free for them: of three rounds the best.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import anyio
import attrs
import psutil

EPISODES = {1: 200, 32: 1500, 256: 1500}
ROUNDS = 3
"""How often each is measured. The best counts: a machine that is shared below what it
can see of itself only ever slows a round down. The median is told beside it."""
WARM_UP = 100
START_SECONDS = 120.0

THEIR_RATES = {1: 57.6, 32: 113.7, 256: 95.3}
"""NeMo Gym's episodes per second, by how many are at once."""
THEIR_CPU_MS = 14.6
THEIR_MIB = 300.0
THEIR_START_SECONDS = 3.0

RATE_TIMES = {"three": 1.5, "all": 5.0}
CPU_SHARE = {"three": 0.6, "all": 0.2}
THIRD = 1 / 3
BUSY = 0.15
"""Of the machine, by others: beyond that a rate says nothing of us."""


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


@attrs.frozen
class Figures:
    """One measurement."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    others: float
    """The part of the machine that others used meanwhile."""
    median_rate: float = 0.0
    """Of all rounds."""


def settings(
    folder: Path, resources: str = "", agent: str = "", concurrency: int = 512
) -> Path:
    path = folder / "livery.toml"
    path.write_text(
        f"""
[agent_server]
port = 0
harness = "nop"
concurrency = {concurrency}
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
        anyio.run(_healthy, found[0], began + START_SECONDS)
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


async def _healthy(url: str, until: float) -> None:
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < until:
            try:
                async with http.get(f"{url}/healthz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                await anyio.sleep(0.01)
    raise AssertionError("it did not become healthy")


def body(name: str) -> bytes:
    task = {
        "task_id": {"taskset": "bench:nothing", "task_id": "0"},
        "task_input": {
            "responses_create_params": {"input": [{"role": "user", "content": "Do."}]},
            "task_data": {},
        },
    }
    return json.dumps({"episode_id": {"rollout_id": name}, "task": task}).encode()


async def run(url: str, prefix: str, episodes: int, at_once: int) -> list[float]:
    """Run episodes, and return how long each took."""
    took: list[float] = []
    numbers = iter(range(episodes))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:

        async def work() -> None:
            for number in numbers:
                began = time.perf_counter()
                async with http.post(
                    f"{url}/run",
                    data=body(f"{prefix}-{number}"),
                    headers={"content-type": "application/json"},
                ) as answer:
                    row = await answer.json()
                assert row["failure"] is None, row["failure"]
                took.append(time.perf_counter() - began)

        async with anyio.create_task_group() as group:
            for _ in range(at_once):
                group.start_soon(work)
    return took


def measured(servers: list[Server], prefix: str, at_once: int) -> Figures:
    """Measure in rounds, and return the best."""
    url = servers[0].urls[0]
    anyio.run(run, url, f"{prefix}-warm", max(WARM_UP, at_once), at_once)
    rounds = [
        measured_once(servers, f"{prefix}-{number}", at_once)
        for number in range(ROUNDS)
    ]
    best = max(rounds, key=lambda each: each.rate)
    median = statistics.median(each.rate for each in rounds)
    return attrs.evolve(best, median_rate=median)


def measured_once(servers: list[Server], prefix: str, at_once: int) -> Figures:
    """Run episodes, and return what they took."""
    url, episodes = servers[0].urls[0], EPISODES[at_once]
    before = [each.cpu_seconds for each in servers]
    own = time.process_time()
    machine, began = psutil.cpu_times(), time.perf_counter()
    took = sorted(anyio.run(run, url, prefix, episodes, at_once))
    wall = time.perf_counter() - began
    after = psutil.cpu_times()
    ours = sum(e.cpu_seconds - b for e, b in zip(servers, before, strict=True))
    busy = sum(after) - after.idle - after.iowait
    busy -= sum(machine) - machine.idle - machine.iowait
    cores = psutil.cpu_count() or 1
    others = (busy - ours - (time.process_time() - own)) / (wall * cores)
    return Figures(
        rate=episodes / wall,
        p50_ms=took[len(took) // 2] * 1000,
        p99_ms=took[int(len(took) * 0.99)] * 1000,
        cpu_ms=ours / episodes * 1000,
        others=max(others, 0.0),
    )


def judged(kind: str, servers: list[Server]) -> list[str]:
    """Measure, print, and return which bounds are broken."""
    broken: list[str] = []
    rates: dict[int, tuple[float, float]] = {}
    for at_once in EPISODES:
        found = measured(servers, f"{kind}-{at_once}", at_once)
        rates[at_once] = found.rate, found.others
        print(
            f"{kind}: {at_once:3} at once: {found.rate:6.1f} episodes per second (median"
            f" {found.median_rate:.1f}), p50 {found.p50_ms:.1f} ms, p99"
            f" {found.p99_ms:.1f} ms, {found.cpu_ms:.2f} ms of processor time each;"
            f" others used {found.others:.0%} of the machine",
            flush=True,
        )
        if at_once == 32:
            cpu_most = THEIR_CPU_MS * CPU_SHARE[kind]
            if found.cpu_ms > cpu_most:
                broken.append(f"{kind}: {found.cpu_ms:.2f} ms, at most {cpu_most:.2f}")
            least = THEIR_RATES[32] * RATE_TIMES[kind]
            if found.rate < least:
                told = f"{kind}: {found.rate:.1f} per second, at least {least:.1f}"
                broken += [told] if found.others <= BUSY else []
                print(f"  {told}" + ("" if found.others <= BUSY else " (not judged)"))
    (rate_32, others_32), (rate_256, others_256) = rates[32], rates[256]
    if rate_256 < rate_32 * 0.95 and max(others_32, others_256) <= BUSY:
        broken.append(f"{kind}: slower at 256 than at 32")
    for each in servers:
        print(
            f"{kind}: {each.name}: {each.mib:.0f} MiB, first healthy answer after"
            f" {each.start_seconds:.2f} s"
        )
        if each.mib > THEIR_MIB * THIRD * (3 if kind == "all" else 1):
            broken.append(f"{kind}: {each.name} has {each.mib:.0f} MiB")
    return broken


def main() -> int:
    """Print the figures; the status is 1 when a bound is broken."""
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        path = settings(folder)
        resources = stack.enter_context(server("resources", path, folder / "state"))
        agent = stack.enter_context(server("agent", path, folder / "state"))
        path = settings(folder, resources.urls[0], agent.urls[0])
        environment = stack.enter_context(server("environment", path, folder / "state"))
        broken += judged("three", [environment, resources, agent])
    with (
        tempfile.TemporaryDirectory() as name,
        server("all", settings(Path(name)), Path(name) / "state", 3) as together,
    ):
        broken += judged("all", [together])
    print("\n".join(broken) or "Every bound that could be judged holds.")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
