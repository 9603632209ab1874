# SPDX-License-Identifier: Apache-2.0
"""The task source `desk`: tasks in the usual office, each with calls that solve it."""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from typing import Final, cast

import attrs

from ....domain.digests import Json
from ....domain.tasks import Task, TaskId
from ....ports.required.apps import Reach
from ....ports.required.harness import PlacedFile
from ....ports.required.task_source import NoSolution, TasksRefused
from .desk_task import USUAL
from .world import ACTIONS

NAME: Final = "desk"
DIRECT: Final = "direct"
"""Apps as functions that the request itself lists, called over plain HTTP."""


@attrs.frozen(kw_only=True)
class SolvingCall:
    """One call of a solution."""

    tool: str
    arguments: Mapping[str, Json]


@attrs.define(eq=False, slots=False)
class DeskTasks:
    """The tasks as a `TaskSource`, all reached the same way."""

    way: str = Reach.MCP.value
    """`mcp`, `commands`, `endpoints`, or `direct`."""

    def __attrs_post_init__(self) -> None:
        """Raise `TasksRefused` for a way that there is not."""
        known = [*(way.value for way in Reach), DIRECT]
        if self.way not in known:
            told = f"{self.way!r} is no way to reach apps; there are {', '.join(known)}"
            raise TasksRefused(where=NAME, mistakes=told)

    @property
    def name(self) -> str:
        """What the set is called in results."""
        return NAME

    def tasks(self) -> Iterator[Task]:
        """Tell the tasks in order."""
        return (self._task(row) for row in self._rows)

    def calls(self, task: TaskId) -> tuple[SolvingCall, ...]:
        """Return the calls that solve a task; raises `NoSolution`."""
        for row in self._rows:
            if task == TaskId(NAME, str(row["id"])):
                solution = cast("list[list[Json]]", row["solution"])
                return tuple(
                    SolvingCall(
                        tool=str(tool), arguments=cast("Mapping[str, Json]", given)
                    )
                    for tool, given in solution
                )
        raise NoSolution(taskset=task.taskset, task_id=task.task_id)

    def solution(self, task: TaskId) -> tuple[PlacedFile, ...]:
        """Raise `NoSolution`: no file in the workspace solves such a task."""
        raise NoSolution(taskset=task.taskset, task_id=task.task_id)

    @cached_property
    def _rows(self) -> tuple[Mapping[str, Json], ...]:
        text = (
            files(__name__.rpartition(".")[0])
            .joinpath("tasks.json")
            .read_text(encoding="utf-8")
        )
        return tuple(json.loads(text))

    def _task(self, row: Mapping[str, Json]) -> Task:
        office = cast("Mapping[str, Json]", row.get("office", {}))
        data: dict[str, Json] = {
            "office": {"base": USUAL, **office},
            "changes": row["changes"],
            "reach": Reach.MCP.value if self.way == DIRECT else self.way,
        }
        if "files" in row:
            data["files"] = row["files"]
        asked: dict[str, Json] = {
            "input": [{"role": "user", "content": row["request"]}],
        }
        if self.way == DIRECT:
            asked["tools"] = [
                {
                    "type": "function",
                    "name": action.tool.name,
                    "description": action.tool.description,
                    "parameters": action.tool.parameters,
                    "strict": False,
                }
                for action in ACTIONS.values()
            ]
        return Task(
            task_id=TaskId(NAME, str(row["id"])),
            responses_create_params=asked,
            task_data=data,
        )
