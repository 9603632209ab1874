# SPDX-License-Identifier: Apache-2.0
"""What the bodies of the resources server's routes mean to the core, and its answers."""

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Final, cast

import attrs

from ...adapters.gym_servers.wire_names import (
    OUTCOME_HEADER,
    STILLNESS_HEADER,
    UPSTREAM_HEADER,
)
from ...domain.activations import Outcome, Stillness
from ...domain.digests import Json
from ...domain.resources_sessions import ResourcesSessionId
from ...domain.tasks import EpisodeId, Task, TaskId
from ...ports.required.participants import Turn
from ...ports.required.sandbox import SandboxAccess
from ..http_serving.bodies import read_body, to_episode, wrong_value
from .bodies import AGGREGATE, CLOSE, SEED, VERIFY
from .metrics import usage_of

PARAMETERS: Final = "responses_create_params"
RESPONSE: Final = "response"
ROWS: Final = "verify_responses"
NUMBER_MAX: Final = 1e100
"""Of larger numbers the squares, or the sum of many, are beyond what a number can be."""
DIGITS_SHOWN: Final = 6

_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "cancelled": Outcome.CANCELLED,
    "failed": Outcome.FAILED,
    "incomplete": Outcome.INCOMPLETE,
}
_UNNAMED: Final = TaskId("seeded", "seeded")
"""A verify names no task; the session does."""


@attrs.frozen(kw_only=True)
class SeedMessage:
    """What a seed asks for."""

    session: ResourcesSessionId
    episode: EpisodeId
    task: Task


@attrs.frozen(kw_only=True)
class CloseMessage:
    """What a close asks for."""

    session: ResourcesSessionId
    episode: EpisodeId


@attrs.frozen(kw_only=True)
class VerifyMessage:
    """What a verify brings."""

    task: Task
    turn: Turn
    stillness: Stillness | None
    """Why nothing of the harness can still write, by the environment's word."""


def to_seed(body: bytes) -> SeedMessage:
    """Read the body of a seed; raises `BodyRefused`."""
    read = read_body(body, SEED)
    task = cast("Mapping[str, str]", read["task_id"])
    return SeedMessage(
        session=ResourcesSessionId(cast("str", read["resources_session_id"])),
        episode=to_episode(read),
        task=Task(
            task_id=TaskId(task["taskset"], task["task_id"]),
            responses_create_params={},
            task_data=dict(cast("Mapping[str, Json]", read["task_data"])),
        ),
    )


def to_close(body: bytes) -> CloseMessage:
    """Read the body of a close; raises `BodyRefused`."""
    read = read_body(body, CLOSE)
    return CloseMessage(
        session=ResourcesSessionId(cast("str", read["resources_session_id"])),
        episode=to_episode(read),
    )


def to_verify(body: bytes, headers: Mapping[str, str]) -> VerifyMessage:
    """Read a verify; raises `BodyRefused`.

    An environment of ours tells in `headers` what a Responses object has no words for.
    """
    read = read_body(body, VERIFY)
    response = cast("Mapping[str, Json]", read[RESPONSE])
    data = {n: v for n, v in read.items() if n not in (PARAMETERS, RESPONSE)}
    parameters = cast("Mapping[str, Json]", read[PARAMETERS])
    return VerifyMessage(
        task=Task(
            task_id=_UNNAMED,
            responses_create_params=dict(parameters),
            task_data=data,
        ),
        turn=Turn(
            response=response,
            outcome=_outcome(headers.get(OUTCOME_HEADER), response.get("status")),
            upstream_failed=headers.get(UPSTREAM_HEADER) == "true",
        ),
        stillness=_stillness(headers.get(STILLNESS_HEADER)),
    )


def to_rows(body: bytes) -> list[Mapping[str, Json]]:
    """Read the rows to aggregate; raises `BodyRefused`."""
    read = read_body(body, AGGREGATE)
    rows = cast("list[Mapping[str, Json]]", read[ROWS])
    for index, row in enumerate(rows):
        measures: list[tuple[tuple[str, ...], Json]]
        measures = [((name,), value) for name, value in row.items()]
        measures += [(("response", "usage", n), v) for n, v in usage_of(row).items()]
        for place, value in measures:
            if isinstance(value, int | float) and abs(value) > NUMBER_MAX:
                reason = f"no number may be beyond {NUMBER_MAX:g}, to be summed up"
                # Of a whole number of any length the beginning is enough.
                found = str(Decimal(value).normalize(Context(prec=DIGITS_SHOWN)))
                raise wrong_value((ROWS, index, *place), reason, found)
    return rows


def _stillness(word: str | None) -> Stillness | None:
    return Stillness(word) if word is not None and word in [*Stillness] else None


def _outcome(word: str | None, status: Json) -> Outcome:
    if word is not None and word in [*Outcome]:
        return Outcome(word)
    told = _OUTCOMES.get(status) if isinstance(status, str) else None
    return told or Outcome.COMPLETED


def from_access(access: SandboxAccess | None) -> Json:
    """Return what a borrower is told of the sandbox."""
    if access is None:
        return None
    return {
        "connection": {
            "kind": "direct",
            "provider_config_ref": access.provider,
            "descriptor": dict(access.descriptor),
        },
        "workdir": access.workdir,
    }
