# SPDX-License-Identifier: Apache-2.0
"""The bodies of the environment server's routes, and what they mean to the core."""

from collections.abc import Mapping
from typing import Final, cast

import attrs

from ...domain.digests import Json
from ...domain.tasks import EpisodeId, Task, TaskId
from ..http_serving.bodies import (
    EPISODE,
    TASK,
    BodyRefused,
    Mistake,
    Schema,
    object_of,
    read_body,
    to_episode,
    wrong_value,
)

PARAMETERS: Final = "responses_create_params"
DATA: Final = "task_data"

_INPUT: Final[Schema] = {
    "type": "object",
    "description": "Fields beside these two are taken into task_data.",
    "properties": {
        PARAMETERS: {
            "type": "object",
            "properties": {"input": {"anyOf": [{"type": "string"}, {"type": "array"}]}},
            "required": ["input"],
        },
        DATA: {"type": "object"},
    },
    "additionalProperties": {},
}
RUN: Final[Schema] = object_of(
    {
        "episode_id": EPISODE,
        "task": object_of({"task_id": TASK, "task_input": _INPUT}),
    }
)
AGGREGATE: Final[Schema] = {
    "type": "object",
    "properties": {"verify_responses": {"type": "array", "items": {"type": "object"}}},
    "required": ["verify_responses"],
    "additionalProperties": {},
}


@attrs.frozen(kw_only=True)
class RunMessage:
    """Which episode of which task is to be run."""

    episode: EpisodeId
    task: Task


def to_run(body: bytes) -> RunMessage:
    """Read the body of a run; raises `BodyRefused`."""
    read = read_body(body, RUN)
    task = cast("Mapping[str, Json]", read["task"])
    name = cast("Mapping[str, str]", task["task_id"])
    given = cast("Mapping[str, Json]", task["task_input"])
    if PARAMETERS not in given:
        raise BodyRefused((_no_parameters(),))
    return RunMessage(
        episode=to_episode(read),
        task=Task(
            task_id=TaskId(name["taskset"], name["task_id"]),
            responses_create_params=dict(cast("Mapping[str, Json]", given[PARAMETERS])),
            task_data=_data(given),
        ),
    )


def to_aggregate(body: bytes) -> Mapping[str, Json]:
    """Read rows that are to be aggregated; raises `BodyRefused`."""
    return read_body(body, AGGREGATE)


def _no_parameters() -> Mistake:
    msg = "Input should be a valid dictionary or object to extract fields from"
    place = ("task", "task_input", PARAMETERS)
    return Mistake("model_attributes_type", place, msg, None)


def _data(given: Mapping[str, Json]) -> dict[str, Json]:
    """Return the task's data, with the fields that stand beside it."""
    data = dict(cast("Mapping[str, Json]", given.get(DATA) or {}))
    for name, value in given.items():
        if name in (PARAMETERS, DATA):
            continue
        if name in data and data[name] != value:
            reason = f"Conflicting task field '{name}' inside and outside task_data"
            raise wrong_value(("task", "task_input"), reason, given)
        data[name] = value
    return data
