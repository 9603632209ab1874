# SPDX-License-Identifier: Apache-2.0
"""Tasks and the episodes that attempt them, by name."""

import re
from functools import cached_property
from typing import ClassVar, Final

import attrs

from .digests import Json, RequestDigest, digest_of
from .refusals import Refusal

ROLLOUT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ATTEMPT_SUFFIX: Final = re.compile(r"-a[1-9][0-9]*\Z")


@attrs.frozen
class BadName(Refusal):
    """A name that the protocol does not allow."""

    kind: ClassVar[str] = "bad_name"
    message: ClassVar[str] = "{field} {value!r} is not allowed: {rule}."

    field: str
    value: str
    rule: str


@attrs.frozen(order=True)
class TaskId:
    """A task's name: its set and its id within the set, both non-empty."""

    taskset: str
    task_id: str

    def __attrs_post_init__(self) -> None:
        """Raise `BadName` for an empty part."""
        for field in ("taskset", "task_id"):
            if not getattr(self, field):
                raise BadName(field=field, value="", rule="it must not be empty")


@attrs.frozen(order=True)
class EpisodeId:
    """One attempt at a rollout of a task.

    `rollout_id` starts with a letter or digit, goes on with those and `._-`, and
    does not end like an attempt (`-a2`), since `key` adds that. Source: NeMo Gym's
    schema.
    """

    rollout_id: str
    attempt: int = 0

    def __attrs_post_init__(self) -> None:
        """Raise `BadName` for a name outside the rule."""
        if not ROLLOUT_ID.fullmatch(self.rollout_id):
            raise BadName(
                field="rollout_id",
                value=self.rollout_id,
                rule="a letter or digit, then letters, digits, '.', '_' or '-'",
            )
        if ATTEMPT_SUFFIX.search(self.rollout_id):
            raise BadName(
                field="rollout_id",
                value=self.rollout_id,
                rule="it must not end in -a<N>, which names an attempt",
            )
        if self.attempt < 0:
            raise BadName(field="attempt", value=str(self.attempt), rule="0 or greater")

    @property
    def key(self) -> str:
        """The rollout's name on paths: the attempt is added from the second on."""
        return f"{self.rollout_id}-a{self.attempt}" if self.attempt else self.rollout_id


@attrs.frozen(kw_only=True)
class Task:
    """A task with its input, as NeMo Gym materialises it."""

    task_id: TaskId
    responses_create_params: dict[str, Json]
    """The request for the agent."""
    task_data: dict[str, Json]
    """The data for the grader, which the agent never receives."""

    @cached_property
    def request(self) -> RequestDigest:
        """What makes two runs of a task the same request."""
        return digest_of([self.responses_create_params, self.task_data])
