# SPDX-License-Identifier: Apache-2.0
"""The world on the page for authors works as it stands there."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from livery.domain.scores import GraderEnd
from livery.domain.tasks import Task, TaskId
from livery.ports.required.sandbox import (
    Ended,
    Exited,
    How,
    Lost,
    NotStarted,
    Output,
    TimedOut,
)
from livery.ports.required.sandbox_provider import SandboxSpec
from livery.ports.required.world import GraderRun, TaskRefused, World

PAGE = Path(__file__).parents[2] / "docs" / "authors" / "worlds.md"
MARK = "mark-1"


def documented() -> World:
    codes = re.findall(
        r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    space: dict[str, Any] = {"__name__": "documented"}
    exec(compile("\n".join(codes), str(PAGE), "exec"), space)
    world: World = space["AnswerWorld"]()
    return world


def a_task(**task_data: Any) -> Task:
    return Task(
        task_id=TaskId("set", "one"), responses_create_params={}, task_data=task_data
    )


@pytest.mark.parametrize(("answer", "reward"), [("42", 1.0), ("41", 0.0)])
def test_it_grades_an_answer(tmp_path: Path, answer: str, reward: float) -> None:
    world, task = documented(), a_task(answer="42")
    world.check(task)
    plan = world.grader(task, MARK)
    assert plan is not None
    assert world.sandbox(task, SandboxSpec()) == SandboxSpec()
    for file in (*world.files(task), *plan.files):
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.content)
    (tmp_path / "answer.txt").write_text(answer)

    run = subprocess.run(
        plan.command.argv,
        input=plan.command.stdin,
        cwd=tmp_path,
        capture_output=True,
        timeout=30,
        check=False,
    )

    output = Output(head=run.stdout, size=len(run.stdout))
    ended = Ended(how=Exited(run.returncode), stdout=output)
    evidence = world.evidence(task, GraderRun(mark=MARK, ended=ended))
    assert evidence.marked
    assert evidence.reward == reward


@pytest.mark.parametrize(
    ("how", "end"),
    [
        (TimedOut(1.0), GraderEnd.TIMED_OUT),
        (NotStarted("x"), GraderEnd.NOT_STARTED),
        (Lost("x"), GraderEnd.LOST),
    ],
)
def test_it_tells_how_the_grader_ended(how: How, end: GraderEnd) -> None:
    run = GraderRun(mark=MARK, ended=Ended(how=how))

    assert documented().evidence(a_task(answer=""), run).end is end
    assert documented().evidence(a_task(answer=""), None).end is GraderEnd.NOT_STARTED


def test_it_refuses_a_task_with_every_mistake() -> None:
    with pytest.raises(TaskRefused) as caught:
        documented().check(a_task(anwser="42"))

    assert len(caught.value.mistakes.splitlines()) == 2
