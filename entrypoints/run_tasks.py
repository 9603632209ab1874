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
from ..ports.required.faults import Fault
from ..ports.required.harness import (
    Harness,
    HarnessRequest,
    PlacedFile,
    RequestRefused,
)
from ..ports.required.sandbox_provider import (
    ProviderTerms,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)
from ..ports.required.task_source import (
    CallSolutions,
    PlacedTasks,
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
    places: PlacedTasks | None = None
    """Tells where a task stands; None where nothing does."""

    @property
    def ids(self) -> tuple[TaskId, ...]:
        """Their names, in order."""
        return tuple(self.tasks)

    def placed(self, task: TaskId, mistake: str) -> str:
        """Return a mistake that names its task, with the place where that is known."""
        place = "" if self.places is None else self.places.place(task)
        return f"{place}: {mistake}" if place else mistake

    def told(self, task: TaskId, refused: Fault) -> str:
        """Return what is refused of a task, with its name and place."""
        return self.placed(task, f"Task {task.task_id}: {refused}")


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
        source=named,
        taskset=source.name,
        tasks=tasks,
        digest=digest.hexdigest(),
        places=cast("PlacedTasks", source) if hasattr(source, "place") else None,
    )


def check_tasks(tasks: RunTasks, world: World, harness: Harness) -> None:
    """Ask world and harness whether they can do with each task.

    Raises:
        TasksRefused: With the mistakes of all tasks.
    """
    _refuse(tasks, _mistakes(tasks, world, harness))


def check_sandboxes(
    tasks: RunTasks, world: World, configured: SandboxSpec, terms: ProviderTerms
) -> None:
    """See that the provider can make the sandbox of each task; it is not asked.

    Raises:
        Unsupported, SpecRefused: It refuses what is configured, whatever the task says.
        TasksRefused: With the mistakes of all tasks.
    """
    _refuse(tasks, _of_sandboxes(tasks, world, configured, terms))


def of_task(tasks: RunTasks, task: TaskId, refused: Fault) -> TasksRefused:
    """Return the refusal of one task's sandbox, with the task and its place."""
    return TasksRefused(where=tasks.source, mistakes=tasks.told(task, refused))


def refusal_of(terms: ProviderTerms, spec: SandboxSpec) -> Fault | None:
    """Return what the provider has against a sandbox; None: nothing."""
    try:
        terms.check(spec)
    except (Unsupported, SpecRefused) as refused:
        return refused
    return None


def _refuse(tasks: RunTasks, found: Iterator[str]) -> None:
    mistakes = list(itertools.islice(found, MISTAKES_MAX + 1))
    if len(mistakes) > MISTAKES_MAX:
        mistakes[MISTAKES_MAX:] = ["…and more; these are the first."]
    if mistakes:
        raise TasksRefused(where=tasks.source, mistakes="\n".join(mistakes))


def _of_sandboxes(
    tasks: RunTasks, world: World, configured: SandboxSpec, terms: ProviderTerms
) -> Iterator[str]:
    # A task may mend what is configured: it names the image, say.
    general = refusal_of(terms, configured)
    for name, task in tasks.tasks.items():
        wanted = world.sandbox(task, configured)
        refused = None if wanted is None else refusal_of(terms, wanted)
        if general is not None and str(refused) == str(general):
            raise general
        if refused is not None:
            yield tasks.told(name, refused)


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
            yield tasks.placed(task.task_id, str(refused))
        except RequestRefused as refused:
            yield tasks.told(task.task_id, refused)
