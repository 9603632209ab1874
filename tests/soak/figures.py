# SPDX-License-Identifier: Apache-2.0
"""What is measured of the servers: gauges, memory and open descriptors over time."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import aiohttp
import anyio
import attrs
import psutil
from prometheus_client.parser import text_string_to_metric_families

from .servers import Server

SAMPLES: Final = 600
SAMPLE_SECONDS_MIN: Final = 0.5
WARM_UP_SHARE: Final = 1 / 3
"""Of the run: pools, caches and the allocator fill up before memory is judged."""
JUDGED_SECONDS: Final = 900.0
"""A shorter run's slope is noise: it is told and not judged."""
MIB_PER_HOUR_MAX: Final = 24.0
DESCRIPTORS_PER_HOUR_MAX: Final = 60.0
"""Connections come and go: without a leak half an hour showed slopes of -43 to 20."""
HOUR: Final = 3600.0
UP: Final = "livery_journal_up"


@attrs.frozen
class Sample:
    """One look at a process."""

    at: float
    mib: float
    descriptors: int
    cpu: float = 0.0
    """Seconds of processor time that it has used."""


@attrs.define
class Series:
    """All looks at one process."""

    name: str
    samples: list[Sample] = attrs.field(factory=list[Sample])

    @property
    def judged(self) -> list[Sample]:
        """Those after the warm-up."""
        if not self.samples:
            return []
        first, last = self.samples[0].at, self.samples[-1].at
        return [
            s for s in self.samples if s.at >= first + (last - first) * WARM_UP_SHARE
        ]

    @property
    def mib_per_hour(self) -> float:
        """How memory grew after the warm-up."""
        return slope([(s.at / HOUR, s.mib) for s in self.judged])

    @property
    def descriptors_per_hour(self) -> float:
        """How open descriptors grew after the warm-up."""
        return slope([(s.at / HOUR, float(s.descriptors)) for s in self.judged])


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line with the least squares; 0 for fewer than two points."""
    if len(points) < 2:
        return 0.0
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    if spread == 0.0:
        return 0.0
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread


async def sample(servers: Iterable[Server], series: list[Series], every: float) -> None:
    """Look at each process until cancelled."""
    processes = [server.process for server in servers]
    while True:
        for process, one in zip(processes, series, strict=True):
            try:
                seen = _look(process)
            except psutil.NoSuchProcess:
                continue
            one.samples.append(seen)
        await anyio.sleep(every)


def _look(process: psutil.Process) -> Sample:
    spent = process.cpu_times()
    return Sample(
        at=anyio.current_time(),
        mib=process.memory_info().rss / 2**20,
        descriptors=process.num_fds(),
        cpu=spent.user + spent.system,
    )


def every_seconds(seconds: float) -> float:
    """Return how often to look in a run of so many seconds."""
    return max(SAMPLE_SECONDS_MIN, seconds / SAMPLES)


def gauges(page: str) -> dict[str, float]:
    """Return each gauge of a page of metrics, with its labels in the name."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        if family.type == "gauge":
            for one in family.samples:
                labels = ",".join(f"{k}={v}" for k, v in one.labels.items())
                found[f"{one.name}{{{labels}}}" if labels else one.name] = one.value
    return found


def not_at_rest(found: dict[str, float]) -> dict[str, float]:
    """Return the gauges that are not back: at zero all, but for the journal's own."""
    wanted = {name: 1.0 if name == UP else 0.0 for name in found}
    return {name: value for name, value in found.items() if value != wanted[name]}


async def read_gauges(servers: Iterable[Server]) -> dict[str, dict[str, float]]:
    """Ask each server itself, past every proxy."""
    told: dict[str, dict[str, float]] = {}
    async with aiohttp.ClientSession() as http:
        for server in servers:
            async with http.get(f"{server.url}/metrics") as answer:
                assert answer.status == 200
                told[server.name] = gauges(await answer.text())
    return told
