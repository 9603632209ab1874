# SPDX-License-Identifier: Apache-2.0
"""The world `workspace`: files to work on, and a grader that looks at them after.

A pass needs the grader's own word: the first line of its standard input is a mark,
fresh for each run, and the last line of its output must be that mark. Work that
ends the grader early, or prints what it likes, therefore never passes. Grader files
are laid over the agent's files of the same name, and a reward file starts empty, so
one that the agent wrote counts for nothing.
"""

from typing import Final, TypeVar, assert_never

import attrs

from ...domain.scores import GraderEnd, GraderEvidence
from ...domain.tasks import Task
from ...ports.provided.how_it_ended import is_out_of_memory, to_words
from ...ports.required.harness import PlacedFile
from ...ports.required.sandbox import (
    Command,
    Exited,
    ExitUnknown,
    How,
    Lost,
    NotStarted,
    Signalled,
    TimedOut,
)
from ...ports.required.sandbox_provider import Network, SandboxSpec, narrower
from ...ports.required.task_source import NoSolution
from ...ports.required.world import GraderPlan, GraderRun, TaskRefused
from .strict import Mistaken
from .workspace_rewards import ends_with, read_reward
from .workspace_task import Wishes, WorkspaceTask, to_workspace_task

T = TypeVar("T")

NAME: Final = "workspace"


@attrs.frozen
class WorkspaceWorld:
    """The `World` of tasks that are done in a folder of files."""

    @property
    def name(self) -> str:
        """The short word in tasks and configuration."""
        return NAME

    def check(self, task: Task) -> None:
        """Raise `TaskRefused`, with every mistake, for a task it cannot build."""
        _read(task)

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        """Return the configured sandbox, bent as the task asks.

        A task can close the network; it cannot open one that was configured closed.
        """
        read = _read(task)
        spec = _bent(configured, read.sandbox)
        if read.workdir is not None:
            spec = attrs.evolve(spec, workdir=read.workdir)
        return spec

    def files(self, task: Task) -> tuple[PlacedFile, ...]:
        """Return what the workspace holds when the agent starts."""
        return _read(task).files

    def grader(self, task: Task, mark: str) -> GraderPlan | None:
        """Return how the work is graded, in a run that `mark` belongs to."""
        assert mark.isprintable(), "a mark is one line"
        assert mark == mark.strip(), "blanks around the last line do not count"
        grader = _read(task).grader
        reward = grader.reward_path
        emptied = () if reward is None else (PlacedFile(path=reward, content=b""),)
        return GraderPlan(
            where=grader.grade,
            files=(*grader.files, *emptied),
            command=Command(
                argv=grader.command,
                env=grader.env,
                stdin=f"{mark}\n{grader.input}".encode(),
                timeout_seconds=grader.timeout_seconds,
            ),
            reward_file=reward,
        )

    def evidence(self, task: Task, run: GraderRun | None) -> GraderEvidence:
        """Read the grader's end, its mark and its reward."""
        if run is None:
            return GraderEvidence(end=GraderEnd.NOT_STARTED, reason="no grader was run")
        end = _end(run.ended.how)
        if end is not GraderEnd.ENDED:
            return GraderEvidence(
                end=end, reason=f"the grader {to_words(run.ended.how)}"
            )
        if not ends_with(run.ended.stdout, run.mark):
            return GraderEvidence(end=end, marked=False)
        read = read_reward(_read(task).grader.reward, run.ended, run.reward_file)
        return GraderEvidence(
            end=end,
            marked=True,
            reward=read.reward,
            reason=read.reason,
            details=read.details,
        )

    def solution(self, task: Task) -> tuple[PlacedFile, ...]:
        """Return the files that solve the task.

        Raises:
            NoSolution: The task carries none.
        """
        solution = _read(task).solution
        if solution is None:
            raise NoSolution(taskset=task.task_id.taskset, task_id=task.task_id.task_id)
        return solution.files


def _read(task: Task) -> WorkspaceTask:
    try:
        return to_workspace_task(task.task_data)
    except Mistaken as mistaken:
        lines = "\n".join(f"{path}: {text}" for path, text in mistaken.found)
        raise TaskRefused(task_id=task.task_id.task_id, mistakes=lines) from mistaken


def _bent(configured: SandboxSpec, wishes: Wishes) -> SandboxSpec:
    network = narrower(configured.network, wishes.network)
    return attrs.evolve(
        configured,
        env={**configured.env, **wishes.env},
        network=network,
        reachable=_reachable(configured, wishes) if network is Network.LISTED else (),
        image=_first(wishes.image, configured.image),
        user=_first(wishes.user, configured.user),
        cpus=_first(wishes.cpus, configured.cpus),
        memory_mib=_first(wishes.memory_mib, configured.memory_mib),
        processes_max=_first(wishes.processes_max, configured.processes_max),
    )


def _reachable(configured: SandboxSpec, wishes: Wishes) -> tuple[str, ...]:
    """Return what a task reaches: of two lists, what both name."""
    if wishes.network is not Network.LISTED:
        return configured.reachable
    if configured.network is not Network.LISTED:
        return wishes.reachable
    return tuple(one for one in wishes.reachable if one in configured.reachable)


def _first(wished: T | None, configured: T | None) -> T | None:
    return configured if wished is None else wished


def _end(how: How) -> GraderEnd:
    match how:
        case Exited() | Signalled():
            return GraderEnd.ENDED
        case TimedOut():
            return GraderEnd.TIMED_OUT
        case NotStarted():
            return GraderEnd.NOT_STARTED
        case ExitUnknown():
            return GraderEnd.LOST
        case Lost():
            if is_out_of_memory(how):
                return GraderEnd.OUT_OF_MEMORY
            return GraderEnd.LOST
        case _:
            assert_never(how)
