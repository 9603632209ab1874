# SPDX-License-Identifier: Apache-2.0
"""How far a run is: a bar on a terminal, now and then a plain line elsewhere."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import attrs
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar

from ...ports.provided.collect_rollouts import Progress

PLAIN_SECONDS: Final = 5.0
"""Between two plain lines, at the least."""
REFRESHES_PER_SECOND: Final = 4

Show = Callable[[Progress], None]


@contextmanager
def shown_progress(now: Callable[[], float] = time.monotonic) -> Generator[Show]:
    """Give what shows the progress inside the block, on standard error."""
    if sys.stderr.isatty():
        with _bar(now) as show:
            yield show
        return
    lines = PlainLines(now=now, began=now())
    yield lines.show
    lines.end()


@attrs.define(kw_only=True)
class PlainLines:
    """Lines for a log: the first, one every few seconds, and the last."""

    now: Callable[[], float]
    began: float
    _written_at: float | None = attrs.field(default=None, init=False)
    _latest: Progress | None = attrs.field(default=None, init=False)
    _told: str = attrs.field(default="", init=False)

    def show(self, progress: Progress) -> None:
        """Write a line when it is time for one."""
        self._latest = progress
        at = self.now()
        if self._written_at is None or at - self._written_at >= PLAIN_SECONDS:
            self._written_at = at
            self._write(progress)

    def end(self) -> None:
        """Write the last line, unless it was just written."""
        if self._latest is not None and self._line(self._latest) != self._told:
            self._write(self._latest)

    def _write(self, progress: Progress) -> None:
        self._told = self._line(progress)
        pace = paced(progress, self.now() - self.began)
        print(f"{self._told}{f', {pace}' if pace else ''}", file=sys.stderr, flush=True)

    def _line(self, progress: Progress) -> str:
        return f"{progress.done}/{progress.total} done: {counted(progress)}"


@contextmanager
def _bar(now: Callable[[], float]) -> Generator[Show]:
    began = now()
    bar = Bar(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[pace]}"),
        console=Console(stderr=True),
        refresh_per_second=REFRESHES_PER_SECOND,
    )
    task = bar.add_task("", total=None, counts="", pace="")

    def show(progress: Progress) -> None:
        bar.update(
            task,
            total=progress.total,
            completed=progress.done,
            counts=counted(progress),
            pace=paced(progress, now() - began),
        )

    with bar:
        yield show


def counted(progress: Progress) -> str:
    """Return the counts in words."""
    return (
        f"{progress.running} running, {progress.passed} passed,"
        f" {progress.failed} failed, {progress.masked} masked,"
        f" {progress.broken} broken"
    )


def paced(progress: Progress, seconds: float) -> str:
    """Return rate and time left in words; nothing before there is a rate."""
    if not progress.done or seconds <= 0:
        return ""
    rate = progress.done / seconds
    left = (progress.total - progress.done) / rate
    unit = f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"
    return f"{unit}, {_time(left)} left" if left else unit


def _time(seconds: float) -> str:
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
