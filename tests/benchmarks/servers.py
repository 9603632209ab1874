# SPDX-License-Identifier: Apache-2.0
"""Whole episodes over HTTP: `nop` through environment, resources and agent server.

Three servers in three processes with one SQLite journal, and all in one, at 1, 32 and
256 episodes at once. Printed are episodes per second, p50 and p99, processor time an
episode, memory and the time to the first healthy answer.

The floor is NeMo Gym. Where NEMO_GYM_PYTHON names a Python that has it with all that it
needs, its own servers run the same flow in turns with ours, and ratios are judged.
Elsewhere its figures of an idle machine of two cores are taken: they say nothing of
machines of another speed. Rates are only judged where processors were free for them: of
several rounds the best, since a machine that is shared below what it can see of itself
only ever slows a round down.
"""

import json
import os
import statistics
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

from .served_process import Server, server, settings
from .their_floor import their_servers

EPISODES = {1: 200, 32: 1500, 256: 1500}
THEIR_EPISODES = {1: 50, 32: 300, 256: 500}
ROUNDS = 3
WARM_UP = 100
PYTHON_VARIABLE = "NEMO_GYM_PYTHON"
THEIRS = "NeMo Gym"

RATE_TIMES = {"three": 1.5, "all": 5.0}
CPU_SHARE = {"three": 0.6, "all": 0.2}
THIRD = 1 / 3
UNSHAKEN = 0.95
"""Of the rate at 32 the one at 256 has to reach: between two rounds it differs so much."""
BUSY = 0.15
"""Of the machine, by others: beyond that a rate says nothing of us."""


@attrs.frozen(kw_only=True)
class Figures:
    """One round."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    others: float
    """The part of the machine that others used meanwhile."""


@attrs.frozen(kw_only=True)
class Floor:
    """What NeMo Gym takes for the same flow, at 32 at once."""

    rate: float
    cpu_ms: float
    mib: float
    """Of the smallest of its servers."""
    start_seconds: float
    """Of the fastest."""


ELSEWHERE = Floor(rate=113.7, cpu_ms=14.6, mib=300.0, start_seconds=3.0)
"""Measured on an idle machine of two cores: the reference sheet of NeMo Gym."""

Rounds = dict[int, list[Figures]]


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


def measured_once(
    servers: list[Server], prefix: str, episodes: int, at_once: int
) -> Figures:
    """Run episodes, and return what they took."""
    url = servers[0].urls[0]
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


def measured(kinds: dict[str, list[Server]]) -> dict[str, Rounds]:
    """Measure all in turns, so that a machine that changes does so for all of them."""
    found: dict[str, Rounds] = {
        kind: {at_once: [] for at_once in EPISODES} for kind in kinds
    }
    for servers in kinds.values():
        for at_once in EPISODES:
            many = max(WARM_UP, 2 * at_once)
            anyio.run(run, servers[0].urls[0], f"warm-{at_once}", many, at_once)
    for number in range(ROUNDS):
        for at_once in EPISODES:
            for kind, servers in kinds.items():
                many = (THEIR_EPISODES if kind == THEIRS else EPISODES)[at_once]
                prefix = f"round-{number}-{at_once}"
                figures = measured_once(servers, prefix, many, at_once)
                found[kind][at_once].append(figures)
    for kind, rounds in found.items():
        for at_once in EPISODES:
            tell(kind, at_once, rounds[at_once])
    return found


def best(rounds: list[Figures]) -> Figures:
    return max(rounds, key=lambda each: each.rate)


def tell(kind: str, at_once: int, rounds: list[Figures]) -> None:
    found = best(rounds)
    median = statistics.median(each.rate for each in rounds)
    print(
        f"{kind}: {at_once:3} at once: {found.rate:6.1f} episodes per second (median"
        f" {median:.1f}), p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms,"
        f" {found.cpu_ms:.2f} ms of processor time each; others used"
        f" {found.others:.0%} of the machine",
        flush=True,
    )


def judged(kind: str, servers: list[Server], rounds: Rounds, floor: Floor) -> list[str]:
    """Print what is compared, and return which bounds are broken."""
    broken: list[str] = []
    at_32, at_256 = best(rounds[32]), best(rounds[256])
    free = max(at_32.others, at_256.others) <= BUSY

    def bound(holds: bool, told: str, *, rate: bool = False) -> None:
        counts = free or not rate
        print(f"{kind}: {told}" + ("" if counts else " (not judged)"))
        if counts and not holds:
            broken.append(f"{kind}: {told}")

    times, share = at_32.rate / floor.rate, at_32.cpu_ms / floor.cpu_ms
    kept = at_256.rate / at_32.rate
    wanted = RATE_TIMES[kind]
    bound(
        times >= wanted,
        f"{times:.2f} times their rate, at least {wanted}",
        rate=True,
    )
    most = CPU_SHARE[kind]
    bound(share <= most, f"{share:.3f} of their processor time, at most {most}")
    bound(
        kept >= UNSHAKEN,
        f"{kept:.2f} of the rate at 32 with 256, at least {UNSHAKEN}",
        rate=True,
    )
    theirs = floor.mib * (3 if kind == "all" else 1)
    for each in servers:
        part, begun = each.mib / theirs, each.start_seconds / floor.start_seconds
        bound(
            part <= THIRD,
            f"{each.name} has {each.mib:.0f} MiB, {part:.2f} of theirs, at most a third",
        )
        bound(
            begun <= THIRD,
            f"{each.name} answers after {each.start_seconds:.2f} s, {begun:.2f} of"
            " theirs, at most a third",
            rate=True,
        )
    return broken


@contextmanager
def ours() -> Generator[dict[str, list[Server]]]:
    """Start ours in three processes and in one."""
    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)
        ]
        path, state = settings(folders[0]), folders[0] / "state"
        resources = stack.enter_context(server("resources", path, state))
        agent = stack.enter_context(server("agent", path, state))
        path = settings(folders[0], resources.urls[0], agent.urls[0])
        environment = stack.enter_context(server("environment", path, state))
        path, state = settings(folders[1]), folders[1] / "state"
        together = stack.enter_context(server("all", path, state, 3))
        yield {"three": [environment, resources, agent], "all": [together]}


def floor_of(servers: list[Server], rounds: Rounds) -> Floor:
    found = best(rounds[32])
    return Floor(
        rate=found.rate,
        cpu_ms=min(each.cpu_ms for each in rounds[32]),
        mib=min(each.mib for each in servers),
        start_seconds=min(each.start_seconds for each in servers),
    )


def main() -> int:
    """Print the figures; the status is 1 when a bound is broken."""
    python = os.environ.get(PYTHON_VARIABLE)
    with ExitStack() as stack:
        kinds = dict(stack.enter_context(ours()))
        if python:
            kinds[THEIRS] = stack.enter_context(their_servers(python))
        found = measured(kinds)
        floor = floor_of(kinds[THEIRS], found[THEIRS]) if python else ELSEWHERE
        print(f"{THEIRS}: {floor}" + ("" if python else ", measured elsewhere"))
        broken = [
            told
            for kind in RATE_TIMES
            for told in judged(kind, kinds[kind], found[kind], floor)
        ]
    print("\n".join(broken) or "Every bound that could be judged holds.")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
