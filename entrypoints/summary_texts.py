# SPDX-License-Identifier: Apache-2.0
"""A summary as Markdown and as tables on a terminal: the same cells, twice."""

from collections.abc import Sequence
from typing import Final

import attrs
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from .summaries import Summary, TasksetSummary
from .visible_text import visible_in_one_line

DIGITS: Final = 12
LEAST_RATE: Final = 0.001
"""What one digit behind the point can tell from none, and from all."""
PLAIN_REWARD_MAX: Final = 1e9
"""From here on a mean is told by its power of ten, not in up to 309 digits."""


@attrs.frozen(kw_only=True)
class Sheet:
    """A table before it has a look."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    """How many columns, from the left, hold words; the others hold numbers."""


def to_markdown(summary: Summary) -> str:
    """Return the summary as Markdown."""
    parts = [
        f"# {_plain(line)}" if not i else _plain(line) for i, line in _head(summary)
    ]
    parts += [_markdown(sheet) for sheet in sheets(summary)]
    parts += [_plain(line) for line in _foot(summary)]
    return "\n\n".join(parts) + "\n"


def to_tables(summary: Summary) -> RenderableType:
    """Return the summary as tables for a terminal."""
    return Group(
        *(escape(visible_in_one_line(line)) for _, line in _head(summary)),
        *(_table(sheet) for sheet in sheets(summary)),
        *(escape(line) for line in _foot(summary)),
    )


def verdict(summary: Summary) -> str:
    """Return the run's end in one line."""
    found = summary.all
    line = f"{found.passed} of {summary.planned} passed, {found.failed} failed"
    line += f", {found.masked} masked, {found.broken} broken"
    return line + (f", {summary.missing} not run" if summary.missing else "")


def sheets(summary: Summary) -> tuple[Sheet, ...]:
    """Return the tables that have something in them."""
    several = len(summary.tasksets) > 1
    sets = (*summary.tasksets, *((summary.all,) if several else ()))
    ks = sorted({k for one in sets for k in one.pass_at})
    scores = Sheet(
        title="Scores",
        head=(
            "taskset",
            "tasks",
            "passed",
            "failed",
            "masked",
            "broken",
            "pass rate",
            "reward",
            *(f"pass@{k}" for k in ks),
        ),
        rows=tuple(_score(one, ks) for one in sets),
    )
    reasons = Sheet(
        title="Masked and broken",
        head=("what", "kind", "stage", "reason", "first", "count"),
        rows=tuple(
            (
                one.kind,
                one.failure_kind,
                one.stage,
                one.reason,
                ", ".join(one.examples),
                str(one.count),
            )
            for one in summary.reasons
        ),
        words=5,
    )
    durations = Sheet(
        title="Durations (seconds)",
        head=("stage", "episodes", "median", "p90", "longest", "total"),
        rows=tuple(
            (
                one.stage,
                str(one.episodes),
                *(f"{x:.3f}" for x in (one.median, one.p90, one.longest)),
                f"{one.total:.1f}",
            )
            for one in summary.durations
        ),
    )
    runtimes = Sheet(
        title="Programs in the sandboxes",
        head=("name", "version", "platform", "sha256", "came", "path", "episodes"),
        rows=tuple(
            (
                *(one.name, one.version, one.platform, one.sha256[:DIGITS]),
                *(one.came, one.path, str(one.episodes)),
            )
            for one in summary.runtimes
        ),
        words=6,
    )
    found = (scores, reasons, durations, runtimes)
    return tuple(sheet for sheet in found if sheet.rows)


def _head(summary: Summary) -> list[tuple[int, str]]:
    card = summary.card
    repeats = f", {card.repeats} rollouts a task" if card.repeats > 1 else ""
    return [
        (0, f"{card.source.taskset}: {verdict(summary)}"),
        (
            1,
            f"Harness {card.harness} in sandboxes of {card.sandbox}{repeats}."
            f" Begun {card.created_at} by Livery {card.livery}.",
        ),
    ]


def _foot(summary: Summary) -> list[str]:
    lines: list[str] = []
    if summary.reasons_left_out:
        lines.append(f"{summary.reasons_left_out} more reasons are not shown.")
    if summary.missing:
        lines.append(f"{summary.missing} rollouts have not been run.")
    return lines


def _score(one: TasksetSummary, ks: Sequence[int]) -> tuple[str, ...]:
    counts = (one.tasks, one.passed, one.failed, one.masked, one.broken)
    return (
        one.taskset,
        *map(str, counts),
        _rate(one.pass_rate),
        "-" if one.mean_reward is None else _reward(one.mean_reward),
        *(_rate(one.pass_at.get(k)) for k in ks),
    )


def _reward(mean: float) -> str:
    return f"{mean:.3f}" if abs(mean) < PLAIN_REWARD_MAX else f"{mean:.3e}"


def _rate(rate: float | None) -> str:
    """Return a rate in per cent; "all" and "none" are said of nothing less."""
    if rate is None:
        return "-"
    if 0.0 < rate < LEAST_RATE:
        return f"<{100 * LEAST_RATE:.1f} %"
    if 1.0 - LEAST_RATE < rate < 1.0:
        return f">{100 * (1 - LEAST_RATE):.1f} %"
    return f"{100 * rate:.1f} %"


def _markdown(sheet: Sheet) -> str:
    lines = [
        sheet.head,
        [":--" if i < sheet.words else "--:" for i in range(len(sheet.head))],
        *([_plain(cell) for cell in row] for row in sheet.rows),
    ]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"## {sheet.title}\n\n{table}"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    text = visible_in_one_line(text)
    for mark in "\\`*_|<>[]":
        text = text.replace(mark, f"\\{mark}")
    return text


def _table(sheet: Sheet) -> Table:
    table = Table(title=sheet.title, title_justify="left", title_style="bold")
    for i, name in enumerate(sheet.head):
        words = i < sheet.words
        table.add_column(
            name,
            justify="left" if words else "right",
            overflow="fold",
            min_width=min(len(name), 8),
            no_wrap=not words,
        )
    for row in sheet.rows:
        table.add_row(*(escape(visible_in_one_line(cell)) for cell in row))
    return table
