# SPDX-License-Identifier: Apache-2.0
"""The task source `numbers:N`: write each number from 1 to N into a file."""

from collections.abc import Iterator

import attrs

from livery.domain.tasks import Task, TaskId
from livery.entrypoints.plug_ins import Surroundings, TaskSourcePlugIn
from livery.ports.required.task_source import TasksRefused

NUMBERS_MAX = 1000


@attrs.frozen
class NumberTasks:
    """The numbers from 1 on, as a `TaskSource`."""

    last: int

    @property
    def name(self) -> str:
        """What the set is called in results."""
        return "numbers"

    def tasks(self) -> Iterator[Task]:
        """Tell the tasks in order."""
        return (_task(number) for number in range(1, self.last + 1))


def _task(number: int) -> Task:
    check = f'read -r mark; echo "$mark"; test "$(cat answer)" = {number}'
    return Task(
        task_id=TaskId("numbers", str(number)),
        responses_create_params={"input": f"Write {number} into the file answer."},
        task_data={
            "grader": {"command": ["/bin/sh", "-c", check]},
            "solution": {"files": {"answer": f"{number}\n"}},
        },
    )


def make_numbers(surroundings: Surroundings, argument: str) -> NumberTasks:
    """Return the source for what stands behind `numbers:`."""
    if not argument.isdecimal() or not 1 <= int(argument) <= NUMBERS_MAX:
        told = f"{argument!r} is not a number from 1 to {NUMBERS_MAX}: numbers:5"
        raise TasksRefused(where="numbers", mistakes=told)
    return NumberTasks(int(argument))


PLUG_IN = TaskSourcePlugIn(make=make_numbers)
