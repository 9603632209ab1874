# SPDX-License-Identifier: Apache-2.0
"""What an episode is written down as: its row, its turn, its failure."""

import json
from collections.abc import Mapping
from typing import Final

from ...domain.activations import Outcome
from ...domain.digests import Json
from ...domain.episodes import EpisodePhase, Participant
from ...domain.failures import Failure, Stage
from ...domain.tasks import EpisodeId, TaskId
from ..required.participants import ParticipantFailed, Turn
from .json_texts import to_json

_STAGES: Final[Mapping[EpisodePhase, Stage]] = {
    EpisodePhase.ABSENT: Stage.ADMISSION,
    EpisodePhase.WAITING: Stage.ADMISSION,
    EpisodePhase.SEEDING: Stage.SEED,
    EpisodePhase.ACTING: Stage.AGENT,
    EpisodePhase.VERIFYING: Stage.VERIFICATION,
}

Row = Mapping[str, Json]
"""One finished episode in the shape of NeMo Gym's episode response."""


def to_row(
    episode: EpisodeId,
    task: TaskId,
    *,
    result: Mapping[str, Json] | None,
    failure: Failure | None,
    response: Mapping[str, Json] | None,
) -> Row:
    """Return the row of a finished episode; `response` is what a failure keeps."""
    return {
        "episode_id": {"rollout_id": episode.rollout_id, "attempt": episode.attempt},
        "task_id": {"taskset": task.taskset, "task_id": task.task_id},
        "result": result,
        "failure": None
        if failure is None
        else {
            "failure_reason": failure.reason,
            "terminal": failure.terminal,
            "failure_kind": failure.kind,
            "stage": failure.stage,
            "partial_response": response,
        },
    }


def to_result(
    text: str | None,
    seconds: Mapping[str, float],
    turn: Turn | None,
) -> Mapping[str, Json] | None:
    """Return a verified result with its times here, and the program that was used.

    Times that were written down with it, by a process of before, are kept.
    """
    if text is None:
        return None
    result: dict[str, Json] = json.loads(text)
    runtime = None if turn is None else turn.runtime
    told = {} if runtime is None else {"runtime": runtime}
    return {**result, "livery": {**_timed(result, seconds), **told}}


def from_result(
    reply: Mapping[str, Json], observations: Json, seconds: Mapping[str, float]
) -> str:
    """Write a verified result down, with what it took until then, for the journal."""
    result = {**reply, "ng_agent_observations": observations}
    told = {**result, "livery": _timed(result, seconds)}
    return to_json(told)


def _timed(result: Mapping[str, Json], seconds: Mapping[str, float]) -> dict[str, Json]:
    """Return what Livery tells in a result, with these times beside those in it."""
    known = result.get("livery")
    more: Mapping[str, Json] = known if isinstance(known, Mapping) else {}
    before = more.get("seconds")
    times: dict[str, Json] = dict(before) if isinstance(before, Mapping) else {}
    times |= {stage: round(time, 6) for stage, time in seconds.items()}
    return {**more, "seconds": times}


def with_seconds(row: Row, stage: str, seconds: float) -> Row:
    """Return a row whose result tells the time of one more stage."""
    result = row["result"]
    told = result.get("livery") if isinstance(result, Mapping) else None
    if not isinstance(result, Mapping) or not isinstance(told, Mapping):
        return row
    known = told.get("seconds")
    times = {stage: round(seconds, 6), **(known if isinstance(known, Mapping) else {})}
    return {**row, "result": {**result, "livery": {**told, "seconds": times}}}


def from_turn(turn: Turn) -> str:
    """Write a finished turn down, for the journal."""
    return to_json(
        {
            "response": turn.response,
            "outcome": turn.outcome,
            "upstream_failed": turn.upstream_failed,
            "reason": turn.reason,
            "runtime": turn.runtime,
            "seconds": turn.seconds,
        }
    )


def to_turn(text: str) -> Turn:
    """Read a turn back from the journal."""
    known = json.loads(text)
    return Turn(
        response=known["response"],
        outcome=Outcome(known["outcome"]),
        upstream_failed=known["upstream_failed"],
        reason=known["reason"],
        runtime=known.get("runtime"),
        seconds=known.get("seconds", 0.0),
    )


def failure_of(failed: ParticipantFailed) -> Failure:
    """Return the failure of an episode whose participant failed, with its stage."""
    stages = {
        "verify": Stage.VERIFICATION,
        "close": Stage.CLEANUP,
        "tell the task's state": Stage.AGENT,
    }
    stage = stages.get(failed.step, Stage.SEED)
    if failed.participant == Participant.AGENT and stage is Stage.SEED:
        stage = Stage.AGENT
    return Failure(
        stage=stage,
        kind=failed.failure_kind,
        reason=failed.reason,
        terminal=failed.terminal,
    )


def stage_of(phase: EpisodePhase) -> Stage:
    """Return the stage in which an episode that is there has failed."""
    return _STAGES.get(phase, Stage.CLEANUP)
