# SPDX-License-Identifier: Apache-2.0
"""Verdicts of a world with apps: many at once leave the loop to others in between."""

from typing import Any, cast

import anyio
import anyio.lowlevel
import attrs
import pytest

from livery.adapters.system_clock import SystemClock
from livery.domain.activations import Outcome, Stillness
from livery.domain.scores import GraderEnd, GraderEvidence
from livery.domain.tasks import EpisodeId, Task, TaskId
from livery.ports.provided.grade_work import GradeWork
from livery.ports.provided.take_turns import TakeTurns
from livery.ports.required.participants import Turn

pytestmark = pytest.mark.anyio


@attrs.define
class Rounds:
    """Apps that note in which round of the loop they were judged."""

    now: int = 0
    judged: list[int] = attrs.field(factory=list[int])

    async def count(self) -> None:
        while True:
            self.now += 1
            await anyio.lowlevel.checkpoint()

    async def evidence(self) -> GraderEvidence:
        self.judged.append(self.now)
        return GraderEvidence(end=GraderEnd.ENDED, marked=True, reward=1.0)


@pytest.mark.parametrize("in_turns", [True, False])
async def test_the_loop_goes_round_between_verdicts(in_turns: bool) -> None:
    turns = TakeTurns(clock=SystemClock(), yield_seconds=0.01) if in_turns else None
    rounds, nothing = Rounds(), cast(Any, None)  # What grades by apps asks nobody else.
    grade = GradeWork(
        world=nothing,
        claim=nothing,
        release=nothing,
        artifacts=nothing,
        archive_program=b"",
        marks=nothing,
        turns=turns,
    )
    turn = Turn(response={}, outcome=Outcome.COMPLETED)
    task = Task(task_id=TaskId("t", "1"), responses_create_params={}, task_data={})

    async def judge() -> None:
        reply = await grade(
            session="s",
            episode=EpisodeId("e"),
            task=task,
            turn=turn,
            stillness=Stillness.NOTHING_RAN,
            held=None,
            spec=None,
            apps=cast(Any, rounds),
        )
        assert reply["reward"] == 1.0

    async with anyio.create_task_group() as counting:
        counting.start_soon(rounds.count)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(judge)
        counting.cancel_scope.cancel()

    assert len(rounds.judged) == 5
    assert len(set(rounds.judged)) == (5 if in_turns else 1)
