# SPDX-License-Identifier: Apache-2.0
"""Grades work as the use case does, with host processes in place of a sandbox."""

import os
import secrets
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import attrs

from livery.adapters.worlds.workspace import WorkspaceWorld
from livery.domain.activations import Outcome
from livery.domain.scores import Evidence, Verdict, judge
from livery.domain.tasks import Task
from livery.ports.required.harness import PlacedFile
from livery.ports.required.sandbox import Ended, Exited, Output, Signalled, TimedOut
from livery.ports.required.world import GraderRun

WORLD = WorkspaceWorld()


@attrs.frozen(kw_only=True)
class Graded:
    """What came of it."""

    mark: str
    verdict: Verdict
    run: GraderRun

    @property
    def passed(self) -> bool:
        return self.verdict == Verdict(reward=1.0)

    @property
    def told(self) -> str:
        return self.run.ended.stderr.kept.decode(errors="replace")


def place(folder: Path, placed: Iterable[PlacedFile]) -> None:
    for file in placed:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)


def grade(
    folder: Path,
    task: Task,
    *work: PlacedFile,
    python: str | None = None,
    timeout_seconds: float | None = None,
) -> Graded:
    """Put the task and the work into the folder, and grade it there.

    `python` stands in for the command's own `python3`.
    """
    mark = f"mark-{secrets.token_hex(16)}"
    plan = WORLD.grader(task, mark)
    assert plan is not None
    place(folder, WORLD.files(task))
    place(folder, work)
    place(folder, plan.files)
    program, *words = plan.command.argv
    before = time.monotonic()
    with subprocess.Popen(
        [python or program, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **plan.command.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(
                plan.command.stdin, timeout_seconds or plan.command.timeout_seconds
            )
            code = process.returncode
            how = Exited(code) if code >= 0 else Signalled(-code)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            stdout, stderr = process.communicate()
            how = TimedOut(time.monotonic() - before)
    reward = None
    if plan.reward_file is not None:
        reward = (folder / plan.reward_file).read_bytes()
    run = GraderRun(
        mark=mark,
        ended=Ended(
            how=how,
            stdout=Output(head=stdout, size=len(stdout)),
            stderr=Output(head=stderr, size=len(stderr)),
        ),
        reward_file=reward,
    )
    found = WORLD.evidence(task, run)
    verdict = judge(Evidence(outcome=Outcome.COMPLETED, grader=found))
    return Graded(mark=mark, verdict=verdict, run=run)
