# SPDX-License-Identifier: Apache-2.0
"""Rows: one finished episode in NeMo Gym's episode response shape.

A row has `episode_id`, `task_id`, `result` and `failure`; exactly one of the last
two is null. What came of the episode is read out of it, so the file is the one
truth about what a run still owes.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import attrs

from ...domain.digests import Json
from ...domain.failures import FailureKind
from ...domain.rollouts import Record, RecordKind
from ...domain.tasks import BadName, EpisodeId, TaskId
from ...ports.provided.json_texts import finite
from ...ports.required.faults import Fault
from .faults import unusable

FULL_REWARD: Final = 1.0
"""From here on an episode has passed."""
SECONDS_MAX: Final = 4e9
"""More than a century is no time that a stage took."""

_KEYS: Final = {"episode_id", "task_id", "result", "failure"}
_RESERVED: Final = "_ng_"


@attrs.frozen
class RowDamaged(Fault):
    """A line of the results is not what a run writes."""

    kind: ClassVar[str] = "row_damaged"
    message: ClassVar[str] = (
        "{where}, line {line}: {reason}. Put the line right, or remove it to have its"
        " episode run again."
    )

    where: str
    line: int
    reason: str


@attrs.frozen(kw_only=True)
class Row:
    """A row as far as it is understood, and all of it."""

    record: Record
    task: TaskId
    reward: float | None
    """None when there is no result."""
    stage: str | None
    reason: str
    seconds: Mapping[str, float]
    """How long each stage took, where that was told."""
    runtime: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The program that was brought for it, where that was told."""


def to_record(row: Mapping[str, Json]) -> Record:
    """Return what came of the episode; raises `ValueError` for what is no row."""
    return to_row(row).record


def to_row(content: object) -> Row:
    """Return the row that `content` is; raises `ValueError` for what is none."""
    row = _object(content, "the line")
    if set(row) != _KEYS:
        raise ValueError(f"it has the keys {sorted(row)}, not {sorted(_KEYS)}")
    if (row["result"] is None) == (row["failure"] is None):
        raise ValueError("exactly one of result and failure is null in a row")
    try:
        episode = _object(row["episode_id"], "episode_id")
        task = _object(row["task_id"], "task_id")
        rollout, attempt = episode.get("rollout_id"), episode.get("attempt", 0)
        if not isinstance(rollout, str) or type(attempt) is not int:
            raise ValueError("episode_id is not {rollout_id, attempt}")
        name = EpisodeId(rollout, attempt)
        task_id = TaskId(_text(task, "taskset"), _text(task, "task_id"))
    except BadName as refusal:
        raise ValueError(str(refusal)) from refusal
    if row["failure"] is not None:
        return _of_failure(name, task_id, _object(row["failure"], "failure"))
    return _of_result(name, task_id, _object(row["result"], "result"))


def is_row(line: bytes) -> bool:
    """Tell whether a line is a row. What was torn off one never is: it has no end."""
    try:
        to_row(json.loads(line))
    except (ValueError, RecursionError):
        return False
    return True


def read_rows(path: Path) -> Iterator[Row]:
    """Tell the rows of a file, a last line that is torn left out.

    Raises:
        RowDamaged: A line is no row.
        ResultLogUnusable: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n") or is_row(line):
                    yield _read(path, number, line)
                # Else it was torn by a kill, and its episode is still owed.
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(path, error) from error


def _read(path: Path, number: int, line: bytes) -> Row:
    try:
        return to_row(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise RowDamaged(str(path), number, f"it is no row: {error}") from error


def _of_result(episode: EpisodeId, task: TaskId, result: Mapping[str, Any]) -> Row:
    if reserved := [key for key in result if key.startswith(_RESERVED)]:
        raise ValueError(f"result uses reserved keys: {', '.join(reserved)}")
    reward = result.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise ValueError("result.reward is no number")
    measured = finite(reward)
    if measured is None:
        raise ValueError("result.reward is not finite, or too large")
    kind = RecordKind.PASSED if measured >= FULL_REWARD else RecordKind.FAILED
    if result.get("mask_sample"):
        kind = RecordKind.MASKED
    return Row(
        record=Record(
            episode=episode, kind=kind, failure_kind=_failure_kind(result, "result")
        ),
        task=task,
        reward=measured,
        stage=None,
        reason=str(result.get("failure_reason") or ""),
        seconds=_seconds(result),
        runtime=_runtime(result),
    )


def _of_failure(episode: EpisodeId, task: TaskId, failure: Mapping[str, Any]) -> Row:
    terminal = failure.get("terminal")
    if not isinstance(terminal, bool):
        raise ValueError("failure.terminal is neither true nor false")
    stage = failure.get("stage")
    return Row(
        record=Record(
            episode=episode,
            kind=RecordKind.BROKEN,
            terminal=terminal,
            failure_kind=_failure_kind(failure, "failure"),
        ),
        task=task,
        reward=None,
        stage=str(stage) if stage else None,
        reason=str(failure.get("failure_reason") or ""),
        seconds={},
    )


def _seconds(result: Mapping[str, Any]) -> Mapping[str, float]:
    stages = _ours(result, "seconds").items()
    times = {stage: finite(time) for stage, time in stages}
    return {
        stage: time
        for stage, time in times.items()
        if time is not None and 0 <= time <= SECONDS_MAX
    }


def _failure_kind(table: Mapping[str, Any], place: str) -> FailureKind | None:
    kind = table.get("failure_kind")
    if not isinstance(kind, str | None):
        raise ValueError(f"{place}.failure_kind is no text")
    return FailureKind(kind) if kind else None


def _runtime(result: Mapping[str, Any]) -> Mapping[str, str]:
    words = _ours(result, "runtime").items()
    return {name: word for name, word in words if isinstance(word, str)}


def _ours(result: Mapping[str, Any], name: str) -> Mapping[str, object]:
    """Return a table that Livery adds to a result; empty where it did not."""
    ours = result.get("livery")
    told = cast("dict[str, object]", ours).get(name) if isinstance(ours, dict) else None
    return cast("dict[str, object]", told) if isinstance(told, dict) else {}


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is no object")
    return cast("Mapping[str, Any]", value)


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise ValueError(f"{name} is no text")
    return text
