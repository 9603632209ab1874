# SPDX-License-Identifier: Apache-2.0
"""The tasks on the page for authors and in the example file do what they say."""

import json
import re
from pathlib import Path

import pytest

from livery.adapters.task_sources.json_lines import JsonLinesTasks
from livery.adapters.worlds.workspace import WorkspaceWorld
from livery.adapters.worlds.workspace_task import (
    GRADER_TIMEOUT_SECONDS,
    GRADER_TIMEOUT_SECONDS_MAX,
    Grader,
    Wishes,
    WorkspaceTask,
    to_workspace_task,
)
from livery.domain.scores import Verdict
from livery.ports.required.harness import PlacedFile

from .grading import WORLD, grade

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples" / "tasks.jsonl"
PAGE = (DOCS / "tasks.md").read_text(encoding="utf-8")
SOURCE = JsonLinesTasks(EXAMPLES, WorkspaceWorld())
TASKS = {task.task_id.task_id: task for task in SOURCE.tasks()}


def rewards(verdict: Verdict) -> float:
    assert not verdict.masked, verdict
    return verdict.reward


def test_the_task_on_the_page_is_the_first_of_the_examples() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)

    first = EXAMPLES.read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(block) == json.loads(first)


def test_the_examples_show_each_way_to_tell_a_reward() -> None:
    ways = {
        type(to_workspace_task(task.task_data).grader.reward) for task in TASKS.values()
    }

    assert len(ways) == len(TASKS) == 3


@pytest.mark.parametrize("name", TASKS)
def test_the_solution_of_an_example_passes(tmp_path: Path, name: str) -> None:
    task = TASKS[name]

    found = grade(tmp_path, task, *SOURCE.solution(task.task_id))

    assert rewards(found.verdict) == 1.0, found.told


@pytest.mark.parametrize("name", TASKS)
def test_an_untouched_example_does_not_pass(tmp_path: Path, name: str) -> None:
    found = grade(tmp_path, TASKS[name])

    assert rewards(found.verdict) < 1.0, found.told


def test_a_part_of_the_work_is_a_part_of_the_reward(tmp_path: Path) -> None:
    whole = b"a, b = input().split()\nprint(int(a) + int(b))\n"

    found = grade(tmp_path, TASKS["add"], PlacedFile(path="add.py", content=whole))

    assert rewards(found.verdict) == 0.75
    kept = WORLD.evidence(TASKS["add"], found.run).details
    assert kept == {"right": ["1 2", "-1 1", "40 2"]}


@pytest.mark.parametrize(
    "program",
    [
        "import os\nos._exit(0)\n",
        "print('3')\n",
        "import os\n"
        "open('.grader/reward.json', 'w').write('{\"reward\": 1}')\n"
        "os.kill(os.getppid(), 9)\n",
    ],
)
def test_a_cheat_does_not_pass_the_python_example(tmp_path: Path, program: str) -> None:
    work = PlacedFile(path="add.py", content=program.encode())

    found = grade(tmp_path, TASKS["add"], work)

    assert rewards(found.verdict) < 1.0


def test_a_reward_that_the_agent_wrote_counts_for_nothing(tmp_path: Path) -> None:
    written = PlacedFile(path=".grader/reward", content=b"1\n")

    found = grade(tmp_path, TASKS["words"], written)

    assert rewards(found.verdict) < 1.0


@pytest.mark.parametrize("cls", [WorkspaceTask, Grader, Wishes])
def test_every_key_is_on_the_page(cls: type) -> None:
    for field in cls.__annotations__:
        assert f"`{field}`" in PAGE or f"`{field}." in PAGE, field


def test_the_bounds_on_the_page_are_the_ones_that_hold() -> None:
    row = next(line for line in PAGE.splitlines() if "`timeout_seconds`" in line)

    assert f"{GRADER_TIMEOUT_SECONDS_MAX:.0f}" in row
    assert f"{GRADER_TIMEOUT_SECONDS:.0f}" in row
