# SPDX-License-Identifier: Apache-2.0
"""A thousand episodes at once: offices, in sandboxes of a provider that is slow.

The harness is `nop`; all that it takes is Livery's own, and every episode is graded. In
three processes and in one, and then with a world whose build costs 50 ms of processor
time. Printed are the longest that somebody waited for an event loop, and the memory that
each episode under way takes; both are judged.
"""

import json
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

from livery.adapters.worlds.desk import DeskTasks

from .served_process import Server, server, settings
from .servers import BUSY

AT_ONCE = 1000
CONCURRENCY = 1024
EPISODES = {"desk": 2 * AT_ONCE, "heavy": AT_ONCE}
WARM_UP = 16
LOOK_SECONDS = 0.05
LAG_MS_MAX = 1000.0
KIB_EACH_MAX = 256.0
PATIENCE_SECONDS = 1800.0


@attrs.define
class Crowd:
    """What became of a crowd of episodes."""

    graded: int = 0
    failures: list[str] = attrs.field(factory=list[str])
    rss: int = 0
    """Of all servers, at the most."""


def bodies(prefix: str, episodes: int) -> Generator[bytes]:
    """Return the bodies of so many runs, of one office task after the other."""
    tasks = list(DeskTasks().tasks())
    for number in range(episodes):
        task = tasks[number % len(tasks)]
        told = {
            "task_id": {"taskset": "desk", "task_id": task.task_id.task_id},
            "task_input": {
                "responses_create_params": task.responses_create_params,
                "task_data": task.task_data,
            },
        }
        name = {"rollout_id": f"{prefix}-{number}"}
        yield json.dumps({"episode_id": name, "task": told}).encode()


async def run(servers: list[Server], prefix: str, episodes: int, at_once: int) -> Crowd:
    """Run so many episodes, so many at once."""
    crowd, left = Crowd(), bodies(prefix, episodes)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:

        async def work() -> None:
            for body in left:
                async with http.post(
                    f"{servers[0].urls[0]}/run",
                    data=body,
                    headers={"content-type": "application/json"},
                ) as answer:
                    row = await answer.json()
                if row["failure"] is not None:
                    crowd.failures.append(row["failure"]["failure_reason"])
                elif row["result"]["mask_sample"]:
                    crowd.failures.append(row["result"]["failure_reason"])
                else:
                    crowd.graded += 1

        async def watch() -> None:
            while True:
                crowd.rss = max(crowd.rss, rss(servers))
                await anyio.sleep(LOOK_SECONDS)

        async with anyio.create_task_group() as watching:
            watching.start_soon(watch)
            async with anyio.create_task_group() as group:
                for _ in range(at_once):
                    group.start_soon(work)
            watching.cancel_scope.cancel()
    return crowd


def rss(servers: list[Server]) -> int:
    return sum(psutil.Process(each.popen.pid).memory_info().rss for each in servers)


@contextmanager
def opened(kind: str, world: str) -> Generator[list[Server]]:
    """Start the servers, in three processes or in one."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, state = Path(name), Path(name) / "state"
        path = settings(folder, concurrency=CONCURRENCY)
        if kind == "all":
            opening = server("all", path, state, 3, world)
            yield [stack.enter_context(opening)]
            return
        resources, agent = (
            stack.enter_context(server(each, path, state, world=world))
            for each in ("resources", "agent")
        )
        path = settings(folder, resources.urls[0], agent.urls[0], CONCURRENCY)
        environment = stack.enter_context(server("environment", path, state))
        yield [environment, resources, agent]


def judged(kind: str, world: str) -> list[str]:
    """Measure, print, and return which bounds are broken."""
    broken: list[str] = []
    episodes = EPISODES[world]
    with opened(kind, world) as servers:
        anyio.run(run, servers, "warm", WARM_UP, WARM_UP)
        before = rss(servers)
        for each in servers:
            each.longest_wait_ms()
        machine, began = psutil.cpu_times(), time.perf_counter()
        crowd = anyio.run(run, servers, "crowd", episodes, AT_ONCE)
        wall = time.perf_counter() - began
        lags = {each.name: each.longest_wait_ms() for each in servers}
        ours = sum(each.cpu_seconds for each in servers) + time.process_time()
        after = psutil.cpu_times()
    busy = sum(after) - after.idle - after.iowait
    busy -= sum(machine) - machine.idle - machine.iowait
    others = max((busy - ours) / (wall * (psutil.cpu_count() or 1)), 0.0)
    kib_each = (crowd.rss - before) / 1024 / AT_ONCE
    print(
        f"{kind}, {world}: {AT_ONCE} at once, {crowd.graded} of {episodes} graded,"
        f" {episodes / wall:.1f} per second; the longest wait for the loop was"
        f" {', '.join(f'{ms:.0f} ms ({name})' for name, ms in lags.items())};"
        f" {kib_each:.0f} KiB for each at once; others used {others:.0%} of the machine",
        flush=True,
    )
    if crowd.graded != episodes:
        broken.append(f"{kind}, {world}: not graded: {crowd.failures[:3]}")
    if kib_each > KIB_EACH_MAX:
        broken.append(
            f"{kind}, {world}: {kib_each:.0f} KiB, at most {KIB_EACH_MAX:.0f}"
        )
    if max(lags.values()) > LAG_MS_MAX:
        told = f"{kind}, {world}: {max(lags.values()):.0f} ms, at most {LAG_MS_MAX:.0f}"
        broken += [told] if others <= BUSY else []
        print(f"  {told}" + ("" if others <= BUSY else " (not judged)"))
    return broken


def main() -> int:
    """Print the figures; the status is 1 when a bound is broken."""
    broken: list[str] = []
    for world in EPISODES:
        for kind in ("three", "all"):
            broken += judged(kind, world)
    print("\n".join(broken) or "Every bound that could be judged holds.")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
