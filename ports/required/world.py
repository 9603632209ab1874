# SPDX-License-Identifier: Apache-2.0
"""Worlds: what a task's surroundings are and how the work in them is graded.

A world describes; the use cases act: they claim the sandbox, put the files, end the
harness, export the workspace, run the grader and read its end.
"""

from enum import StrEnum
from typing import ClassVar, Protocol

import attrs

from ...domain.scores import GraderEvidence
from ...domain.tasks import Task
from .faults import Fault
from .harness import PlacedFile
from .sandbox import Command, Ended
from .sandbox_provider import SandboxSpec


@attrs.frozen
class TaskRefused(Fault):
    """The task's data is not what the world can build from."""

    kind: ClassVar[str] = "task_refused"
    message: ClassVar[str] = "Task {task_id}: {mistakes}"

    task_id: str
    mistakes: str
    """One line a mistake: the path of the field, what is there, what would be right."""


class GradeWhere(StrEnum):
    """Which sandbox the grader runs in."""

    FRESH = "fresh"
    """A new one, on an exported copy of the workspace."""
    SAME = "same"
    """The agent's, after every process of the harness was seen dead."""


@attrs.frozen(kw_only=True)
class GraderPlan:
    """What to run to grade, and what it needs beside the workspace."""

    where: GradeWhere
    files: tuple[PlacedFile, ...]
    """Files that the agent never sees."""
    command: Command
    """Its standard input gives the mark that its output must end with."""
    reward_file: str | None = None
    """A file to read afterwards, where the reward stands; None: not in a file."""


@attrs.frozen(kw_only=True)
class GraderRun:
    """What came of running the plan."""

    mark: str
    ended: Ended
    reward_file: bytes | None = None
    """What the reward file held; None when there was none."""


class World(Protocol):
    """A kind of task world."""

    @property
    def name(self) -> str:
        """The short word in tasks and configuration."""
        ...

    def check(self, task: Task) -> None:
        """Raise `TaskRefused`, with every mistake, for a task it cannot build."""
        ...

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        """Return the sandbox the task needs, from the configured one; None: none."""
        ...

    def files(self, task: Task) -> tuple[PlacedFile, ...]:
        """Return what the workspace holds when the agent starts."""
        ...

    def grader(self, task: Task, mark: str) -> GraderPlan | None:
        """Return how the work is graded; None: by `evidence` alone, without a run."""
        ...

    def evidence(self, task: Task, run: GraderRun | None) -> GraderEvidence:
        """Read the grader's end and reward."""
        ...


class SolvedWorld(World, Protocol):
    """The extra ability of a world whose tasks may carry their own solution."""

    def solution(self, task: Task) -> tuple[PlacedFile, ...]:
        """Return the files that solve the task.

        Raises:
            NoSolution: The task carries none.
        """
        ...
