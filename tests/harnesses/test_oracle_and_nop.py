# SPDX-License-Identifier: Apache-2.0
"""The harnesses that drive no model: one knows the answer, one does nothing."""

import pytest

from livery.adapters.harnesses.nop import NopHarness
from livery.adapters.harnesses.oracle import OracleHarness
from livery.domain.activations import Outcome
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.required.harness import (
    Capture,
    Harness,
    HarnessRequest,
    Launch,
    Place,
    PlacedFile,
    RequestRefused,
)
from livery.ports.required.sandbox import Lost
from livery.ports.required.task_source import NoSolution

pytestmark = pytest.mark.anyio

PLACE = Place(workdir="/w", scratch="/s")
SOLVED = (PlacedFile(path="solution.py", content=b"right"),)


class OneSolution:
    def solution(self, task: TaskId) -> tuple[PlacedFile, ...]:
        if task.task_id != "solved":
            raise NoSolution(taskset=task.taskset, task_id=task.task_id)
        return SOLVED


ORACLE: Harness = OracleHarness(OneSolution())
NOP: Harness = NopHarness()


def asking(task: str = "solved") -> HarnessRequest:
    return HarnessRequest(
        episode=EpisodeId("r"),
        task=TaskId("set", task),
        parameters={"input": 5, "tools": [{"type": "function"}], "nonsense": 1},
    )


async def test_the_oracle_puts_the_solution_down_and_runs_nothing() -> None:
    assert await ORACLE.prepare(asking(), PLACE) == Launch(files=SOLVED)


async def test_the_oracle_refuses_a_task_without_a_solution() -> None:
    with pytest.raises(RequestRefused, match="no reference solution"):
        ORACLE.check(asking("unsolved"))
    with pytest.raises(RequestRefused, match="no reference solution"):
        await ORACLE.prepare(asking("unsolved"), PLACE)


async def test_nop_puts_nothing_down_and_runs_nothing() -> None:
    assert await NOP.prepare(asking(), PLACE) == Launch()


@pytest.mark.parametrize("harness", [ORACLE, NOP], ids=lambda harness: harness.name)
async def test_they_take_any_conversation_and_say_one_thing(harness: Harness) -> None:
    harness.check(asking())

    reading = await harness.read(asking(), Capture(how=None))

    assert reading.outcome is Outcome.COMPLETED
    assert reading.reason == ""
    assert [item["role"] for item in reading.output] == ["assistant"]
    assert [r["kind"] for r in reading.observations.records] == ["agent_invocation"]
    assert reading.observations.gaps == ()
    assert not harness.stepwise
    assert not harness.needs


@pytest.mark.parametrize("harness", [ORACLE, NOP], ids=lambda harness: harness.name)
async def test_a_lost_sandbox_is_told_as_such(harness: Harness) -> None:
    reading = await harness.read(asking(), Capture(how=Lost("removed")))

    assert reading.outcome is Outcome.SANDBOX_ERROR
    assert "removed" in reading.reason


@pytest.mark.parametrize("harness", [ORACLE, NOP], ids=lambda harness: harness.name)
async def test_a_stopped_activation_is_cancelled(harness: Harness) -> None:
    reading = await harness.read(asking(), Capture(how=None, stopped=True))

    assert reading.outcome is Outcome.CANCELLED
    assert reading.reason
