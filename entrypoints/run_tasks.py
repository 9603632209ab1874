# SPDX-License-Identifier: Apache-2.0
"""The tasks of a run: loaded and checked before anything is made for them."""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Final, cast

import attrs

from ..domain.digests import Json, canonical
from ..domain.rollouts import rollout_id
from ..domain.tasks import EpisodeId, Task, TaskId
from ..ports.required.harness import (
    Harness,
    HarnessRequest,
    PlacedFile,
    RequestRefused,
)
from ..ports.required.task_source import (
    CallSolutions,
    Solutions,
    TaskSource,
    TasksRefused,
)
from ..ports.required.world import SolvedWorld, TaskRefused, World

MISTAKES_MAX: Final = 20


@attrs.frozen(kw_only=True)
class RunTasks:
    """The tasks that a run takes."""

    source: str
    """As it was named."""
    taskset: str
    tasks: Mapping[TaskId, Task]
    digest: str

    @property
    def ids(self) -> tuple[TaskId, ...]:
        """Their names, in order."""
        return tuple(self.tasks)


@attrs.frozen
class WorldSolutions:
    """The `Solutions` of tasks that carry their own, as their world reads them."""

    tasks: RunTasks
    world: SolvedWorld

    def solution(self, task: TaskId) -> tuple[PlacedFile, ...]:
        """Return the files that solve the task; raises `NoSolution`."""
        return self.world.solution(self.tasks.tasks[task])


def called_solutions_of(source: TaskSource) -> CallSolutions | None:
    """Return where the calls are that solve the tasks; None where there are none."""
    return cast("CallSolutions", source) if hasattr(source, "calls") else None


def solutions_of(source: TaskSource, world: World, tasks: RunTasks) -> Solutions | None:
    """Return where the reference solutions are; None where there can be none."""
    # Both are extra abilities, which the protocols keep apart.
    if hasattr(source, "solution"):
        return cast("Solutions", source)
    if hasattr(world, "solution"):
        return WorldSolutions(tasks, cast("SolvedWorld", world))
    return None


def load_tasks(source: TaskSource, *, named: str, limit: int | None) -> RunTasks:
    """Return the first `limit` tasks of a source, or all.

    Raises:
        TasksRefused: Something is wrong with them, or there are none.
    """
    tasks: dict[TaskId, Task] = {}
    digest = hashlib.sha256()
    for task in itertools.islice(source.tasks(), limit):
        if task.task_id in tasks:
            name = f"{task.task_id.taskset}/{task.task_id.task_id}"
            raise TasksRefused(
                where=named, mistakes=f"task {name} is there twice; names are unique"
            )
        tasks[task.task_id] = task
        content: Json = [
            [task.task_id.taskset, task.task_id.task_id],
            task.responses_create_params,
            task.task_data,
        ]
        digest.update(canonical(content).encode("utf-8", "surrogatepass") + b"\n")
    if not tasks:
        raise TasksRefused(where=named, mistakes="there is no task in it")
    return RunTasks(
        source=named, taskset=source.name, tasks=tasks, digest=digest.hexdigest()
    )


def check_tasks(tasks: RunTasks, world: World, harness: Harness) -> None:
    """Ask world and harness whether they can do with each task.

    Raises:
        TasksRefused: With the mistakes of all tasks.
    """
    mistakes = list(
        itertools.islice(_mistakes(tasks, world, harness), MISTAKES_MAX + 1)
    )
    if len(mistakes) > MISTAKES_MAX:
        mistakes[MISTAKES_MAX:] = ["…and more; these are the first."]
    if mistakes:
        raise TasksRefused(where=tasks.source, mistakes="\n".join(mistakes))


def _mistakes(tasks: RunTasks, world: World, harness: Harness) -> Iterator[str]:
    for task in tasks.tasks.values():
        request = HarnessRequest(
            episode=EpisodeId(rollout_id(task.task_id, 0)),
            task=task.task_id,
            parameters=task.responses_create_params,
        )
        try:
            world.check(task)
            harness.check(request)
        except TaskRefused as refused:
            yield str(refused)
        except RequestRefused as refused:
            yield f"Task {task.task_id.task_id}: {refused}"
