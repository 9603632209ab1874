# SPDX-License-Identifier: Apache-2.0
"""Rollouts: which attempts a run still owes.

A run owes each task `repeats` rollouts, and each rollout one measured result. What
was graded is never run again. A failure that can be tried again gets a new attempt,
`ATTEMPTS_MAX` in all; attempts that were cancelled from outside do not count. An
attempt that began and has no record is the next one by number, so that asking for
it again takes the running one over.
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import attrs

from .digests import digest_of
from .failures import CANCELLED, SHUTDOWN, FailureKind
from .tasks import EpisodeId, TaskId

ATTEMPTS_MAX: Final = 3
READABLE_CHARACTERS_MAX: Final = 80
DIGEST_CHARACTERS: Final = 12


class RecordKind(StrEnum):
    """What came of an attempt."""

    PASSED = "passed"
    FAILED = "failed"
    """Graded below the full reward: the agent's."""
    MASKED = "masked"
    BROKEN = "broken"
    """No result: a failure of the episode."""


@attrs.frozen(kw_only=True)
class Record:
    """One finished attempt."""

    episode: EpisodeId
    kind: RecordKind
    terminal: bool = True
    failure_kind: FailureKind | None = None


@attrs.frozen(kw_only=True)
class Owed:
    """An attempt to run, or to take over where it is still going."""

    episode: EpisodeId
    task: TaskId


def rollout_id(task: TaskId, repeat: int) -> str:
    """Return the rollout's name: readable, legal, and another for another task."""
    plain = f"{task.taskset}/{task.task_id}"
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", plain).strip("-._")
    digest = digest_of([task.taskset, task.task_id])[:DIGEST_CHARACTERS]
    name = f"{readable[:READABLE_CHARACTERS_MAX]}-{digest}".lstrip("-")
    return f"{name}.r{repeat}"


def owed(
    tasks: Sequence[TaskId],
    repeats: int,
    records: Iterable[Record],
    *,
    retry_masked: bool = False,
) -> tuple[Owed, ...]:
    """Return what is still to be run, in the order of the tasks."""
    by_rollout: dict[str, list[Record]] = {}
    for record in records:
        by_rollout.setdefault(record.episode.rollout_id, []).append(record)
    attempts = (
        (task, rollout_id(task, repeat)) for repeat in range(repeats) for task in tasks
    )
    return tuple(
        Owed(episode=EpisodeId(name, attempt), task=task)
        for task, name in attempts
        if (attempt := _next_attempt(by_rollout.get(name, []), retry_masked))
        is not None
    )


def _next_attempt(records: Sequence[Record], retry_masked: bool) -> int | None:
    if not records:
        return 0
    if any(r.kind in (RecordKind.PASSED, RecordKind.FAILED) for r in records):
        return None
    last = max(records, key=lambda record: record.episode.attempt)
    again = retry_masked if last.kind is RecordKind.MASKED else not last.terminal
    counted = sum(r.failure_kind not in (CANCELLED, SHUTDOWN) for r in records)
    if not again or counted >= ATTEMPTS_MAX:
        return None
    return last.episode.attempt + 1
