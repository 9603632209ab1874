# SPDX-License-Identifier: Apache-2.0
"""What the results of a run come to, in numbers.

Each rollout counts once: by its measured attempt, or by its last one. Rates are over
measured rollouts; what was masked or broken is told beside them, with reasons, and
is no score. pass@k is the unbiased estimate over the measured rollouts of each task.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from ..adapters.results_folder import Row, RunCard
from ..domain.digests import Json
from ..domain.rollouts import RecordKind
from ..domain.tasks import TaskId

REASON_CHARACTERS_MAX: Final = 200
REASONS_MAX: Final = 20
EXAMPLES_MAX: Final = 3
STAGES: Final = ("seed", "act", "verify", "clean")

_IDENTITY: Final = ("name", "version", "platform", "sha256", "came", "path")
_MEASURED: Final = (RecordKind.PASSED, RecordKind.FAILED)


@attrs.frozen(kw_only=True)
class TasksetSummary:
    """One set of tasks, or all of them."""

    taskset: str
    tasks: int
    rollouts: int
    """How many have a row."""
    passed: int
    failed: int
    masked: int
    broken: int
    mean_reward: float | None
    """Over the measured ones."""
    pass_at: Mapping[int, float]
    """By k; only where a task has k measured rollouts."""

    @property
    def measured(self) -> int:
        """How many rollouts count."""
        return self.passed + self.failed

    @property
    def pass_rate(self) -> float | None:
        """Passed of measured."""
        return self.passed / self.measured if self.measured else None


@attrs.frozen(kw_only=True)
class Reason:
    """Why rollouts were masked or broken, and how many."""

    kind: RecordKind
    failure_kind: str
    stage: str
    reason: str
    count: int
    examples: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Durations:
    """How long one stage took over the episodes, in seconds."""

    stage: str
    episodes: int
    median: float
    p90: float
    longest: float
    total: float


@attrs.frozen(kw_only=True)
class RuntimeUse:
    """A program that was brought into sandboxes, in one way, and into how many."""

    name: str
    version: str
    platform: str
    sha256: str
    came: str
    path: str
    episodes: int


@attrs.frozen(kw_only=True)
class Summary:
    """All of it."""

    card: RunCard
    planned: int
    """Rollouts that the run owes in all."""
    all: TasksetSummary
    tasksets: tuple[TasksetSummary, ...]
    reasons: tuple[Reason, ...]
    reasons_left_out: int
    durations: tuple[Durations, ...]
    runtimes: tuple[RuntimeUse, ...] = ()

    @property
    def missing(self) -> int:
        """Rollouts without a row."""
        return self.planned - self.all.rollouts

    @property
    def is_complete(self) -> bool:
        """Whether every rollout was graded."""
        return self.all.measured == self.planned

    def written(self) -> dict[str, Json]:
        """Return the content of `summary.json`."""
        return {
            "run": self.card.run,
            "source": self.card.source.name,
            "harness": self.card.harness,
            "sandbox": self.card.sandbox,
            "repeats": self.card.repeats,
            "planned": self.planned,
            "missing": self.missing,
            "all": _written(self.all),
            "tasksets": [_written(one) for one in self.tasksets],
            "reasons": [attrs.asdict(one) for one in self.reasons],
            "reasons_left_out": self.reasons_left_out,
            "durations": [attrs.asdict(one) for one in self.durations],
            "runtimes": [attrs.asdict(one) for one in self.runtimes],
        }


def summarise(card: RunCard, rows: Iterable[Row]) -> Summary:
    """Return what the rows of a run come to."""
    counted = _counted(rows)
    tasksets: dict[str, list[Row]] = {}
    for row in counted:
        tasksets.setdefault(row.task.taskset, []).append(row)
    reasons = _reasons(counted)
    return Summary(
        card=card,
        planned=card.source.tasks * card.repeats,
        all=_of_rows("all", counted),
        tasksets=tuple(_of_rows(name, found) for name, found in tasksets.items()),
        reasons=reasons[:REASONS_MAX],
        reasons_left_out=max(0, len(reasons) - REASONS_MAX),
        durations=tuple(_durations(counted)),
        runtimes=tuple(_runtimes(counted)),
    )


def pass_at(k: int, measured: int, passed: int) -> float:
    """Return the chance that one of `k` rollouts passes, drawn from those measured."""
    return 1.0 - math.comb(measured - passed, k) / math.comb(measured, k)


def _counted(rows: Iterable[Row]) -> list[Row]:
    """Return one row a rollout: the measured one, else that of the last attempt."""
    chosen: dict[str, Row] = {}
    for row in rows:
        name = row.record.episode.rollout_id
        before = chosen.get(name)
        if before is None or _rank(row) >= _rank(before):
            chosen[name] = row
    return list(chosen.values())


def _rank(row: Row) -> tuple[bool, int]:
    return row.record.kind in _MEASURED, row.record.episode.attempt


def _of_rows(name: str, rows: Sequence[Row]) -> TasksetSummary:
    kinds = Counter(row.record.kind for row in rows)
    rewards = [
        row.reward
        for row in rows
        if row.record.kind in _MEASURED and row.reward is not None
    ]
    return TasksetSummary(
        taskset=name,
        tasks=len({row.task for row in rows}),
        rollouts=len(rows),
        passed=kinds[RecordKind.PASSED],
        failed=kinds[RecordKind.FAILED],
        masked=kinds[RecordKind.MASKED],
        broken=kinds[RecordKind.BROKEN],
        mean_reward=_mean(rewards) if rewards else None,
        pass_at=_pass_at(rows),
    )


def _mean(rewards: Sequence[float]) -> float:
    """Return the mean; graders give any number, so their sum may be beyond all."""
    try:
        return statistics.fmean(rewards)
    except OverflowError:
        return statistics.mean(rewards)  # Exact, and slower for it.


def _pass_at(rows: Sequence[Row]) -> Mapping[int, float]:
    measured: Counter[TaskId] = Counter()
    passed: Counter[TaskId] = Counter()
    for row in rows:
        if row.record.kind in _MEASURED:
            measured[row.task] += 1
            passed[row.task] += row.record.kind is RecordKind.PASSED
    most = max(measured.values(), default=0)
    ks = sorted({2**i for i in range(most.bit_length())} | {most}) if most else []
    return {
        k: statistics.fmean(
            pass_at(k, n, passed[task]) for task, n in measured.items() if n >= k
        )
        for k in ks
    }


def _reasons(rows: Sequence[Row]) -> tuple[Reason, ...]:
    found: dict[tuple[RecordKind, str, str, str], list[str]] = {}
    for row in rows:
        if row.record.kind in _MEASURED:
            continue
        key = (
            row.record.kind,
            row.record.failure_kind or "",
            row.stage or "",
            _short(row.reason),
        )
        found.setdefault(key, []).append(row.record.episode.key)
    reasons = [
        Reason(
            kind=kind,
            failure_kind=failure_kind,
            stage=stage,
            reason=reason,
            count=len(episodes),
            examples=tuple(episodes[:EXAMPLES_MAX]),
        )
        for (kind, failure_kind, stage, reason), episodes in found.items()
    ]
    return tuple(sorted(reasons, key=lambda one: -one.count))


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    if len(line) <= REASON_CHARACTERS_MAX:
        return line
    return line[: REASON_CHARACTERS_MAX - 1] + "…"


def _durations(rows: Sequence[Row]) -> Iterable[Durations]:
    for stage in STAGES:
        seconds = sorted(row.seconds[stage] for row in rows if stage in row.seconds)
        if seconds:
            yield Durations(
                stage=stage,
                episodes=len(seconds),
                median=statistics.median(seconds),
                p90=seconds[math.ceil(len(seconds) * 0.9) - 1],
                longest=seconds[-1],
                total=math.fsum(seconds),
            )


def _runtimes(rows: Sequence[Row]) -> Iterable[RuntimeUse]:
    used = Counter(
        tuple(row.runtime.get(word, "") for word in _IDENTITY)
        for row in rows
        if row.runtime
    )
    for words, episodes in sorted(used.items()):
        yield RuntimeUse(**dict(zip(_IDENTITY, words, strict=True)), episodes=episodes)


def _written(one: TasksetSummary) -> dict[str, Json]:
    return {
        **attrs.asdict(one),
        "pass_at": {str(k): rate for k, rate in one.pass_at.items()},
        "pass_rate": one.pass_rate,
    }
