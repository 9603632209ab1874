# SPDX-License-Identifier: Apache-2.0
"""Where tasks come from, and their reference solutions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Protocol

import attrs

from ...domain.digests import Json
from ...domain.tasks import Task, TaskId
from .faults import Fault
from .harness import PlacedFile


@attrs.frozen
class TasksRefused(Fault):
    """The tasks cannot be used; every mistake is told at once."""

    kind: ClassVar[str] = "tasks_refused"
    message: ClassVar[str] = "{where}:\n{mistakes}"

    where: str
    mistakes: str
    """One line a mistake: the place, what is there, what would be right."""


@attrs.frozen
class NoSolution(Fault):
    """The task comes without a reference solution."""

    kind: ClassVar[str] = "no_solution"
    message: ClassVar[str] = (
        "Task {task_id} of {taskset} has no reference solution;"
        " the oracle has nothing to apply."
    )

    taskset: str
    task_id: str


class TaskSource(Protocol):
    """A set of tasks in a fixed order."""

    @property
    def name(self) -> str:
        """What the set is called in results."""
        ...

    def tasks(self) -> Iterator[Task]:
        """Tell the tasks in order; the same ones each time.

        Raises:
            TasksRefused: Something in them is wrong; told before the first task.
        """
        ...


class PlacedTasks(Protocol):
    """The extra ability: tasks that stand where a user can look."""

    def place(self, task: TaskId) -> str:
        """Return where in the source a task stands, `line 3` say."""
        ...


class Solutions(Protocol):
    """The reference solutions, which only the oracle sees."""

    def solution(self, task: TaskId) -> tuple[PlacedFile, ...]:
        """Return the files that solve the task.

        Raises:
            NoSolution: There are none.
        """
        ...


class SolvingCall(Protocol):
    """One call of a solution."""

    @property
    def tool(self) -> str:
        """The tool's name in one word."""
        ...

    @property
    def arguments(self) -> Mapping[str, Json]:
        """What it is called with."""
        ...


class CallSolutions(Protocol):
    """The extra ability: solutions that are calls of tools."""

    def calls(self, task: TaskId) -> Sequence[SolvingCall]:
        """Return the calls that solve the task, in order.

        Raises:
            NoSolution: There are none.
        """
        ...
