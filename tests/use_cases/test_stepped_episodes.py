# SPDX-License-Identifier: Apache-2.0
"""Stepped episodes: one model call an activation, and none after the task is done."""

import contextlib
from collections.abc import Mapping

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.journals import MemoryJournal
from livery.domain.activations import Outcome
from livery.domain.agent_sessions import AgentSessionId
from livery.domain.digests import Json
from livery.domain.resources_sessions import ResourcesSessionId
from livery.domain.tasks import EpisodeId
from livery.ports.provided.run_episode import Row, RunEpisode
from livery.ports.required.journal import Journal
from livery.ports.required.participants import TaskState, Turn

from .outside import Killed, MortalJournal
from .test_run_episode import (
    EPISODE,
    TASK,
    FakeAgent,
    FakeResources,
    Partners,
    use_case,
)

pytestmark = pytest.mark.anyio

CALL: Mapping[str, Json] = {
    "type": "function_call",
    "name": "do",
    "call_id": "c",
    "arguments": "{}",
}
DONE: Mapping[str, Json] = {"type": "function_call_output", "call_id": "c"}
ANSWER: Mapping[str, Json] = {"type": "message", "role": "assistant", "content": []}


@attrs.define
class Stepper:
    """An agent whose model calls a tool so many times, and then answers.

    Its activations are replayed by their request, as a session's are.
    """

    calls: int
    ends: Outcome = Outcome.COMPLETED
    """How the last step ends."""
    asked: list[Mapping[str, Json]] = attrs.field(factory=list[Mapping[str, Json]])
    made: dict[int, Turn] = attrs.field(factory=dict[int, Turn])

    @property
    def model_calls(self) -> int:
        return len(self.made)

    def activate(self, parameters: Mapping[str, Json]) -> Turn:
        given = parameters["input"]
        so_far = 0 if isinstance(given, str) else len(given) - 1
        self.asked.append(parameters)
        if so_far not in self.made:
            last = self.model_calls >= self.calls
            self.made[so_far] = Turn(
                response={
                    "id": f"r{so_far}",
                    "output": [ANSWER] if last else [CALL, DONE],
                    "usage": {"total_tokens": 1, "details": {"cached": 2}},
                },
                outcome=self.ends if last else Outcome.COMPLETED,
            )
        return self.made[so_far]


@attrs.frozen
class StepAgent(FakeAgent):
    stepper: Stepper

    async def activate(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        parameters: Mapping[str, Json],
    ) -> Turn:
        await self.partners.step("agent.activate")
        return self.stepper.activate(parameters)


@attrs.frozen
class StepResources(FakeResources):
    stepper: Stepper
    complete_after: int | None

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        await self.partners.step("resources.task_state")
        done = self.stepper.model_calls
        complete = self.complete_after is not None and done >= self.complete_after
        return TaskState(complete=complete, revision=done)


def stepped(
    stepper: Stepper,
    *,
    complete_after: int | None = None,
    max_steps: int = 50,
    journal: Journal | None = None,
    partners: Partners | None = None,
) -> RunEpisode:
    partners = partners or Partners()
    return attrs.evolve(
        use_case(partners, journal),
        agent=StepAgent(partners, stepper),
        resources=StepResources(partners, stepper, complete_after),
        max_steps=max_steps,
    )


def outputs(row: Row) -> list[Json]:
    result = row["result"]
    assert isinstance(result, Mapping)
    turn = result["graded"]
    assert isinstance(turn, Mapping)
    output = turn["output"]
    assert isinstance(output, list)
    return output


def expected_calls(calls: int, complete_after: int | None, max_steps: int) -> int:
    """A task that completes takes the calls until then; another one its calls and
    one answer without tools; and none takes more than it may.
    """
    if complete_after is not None and complete_after <= calls:
        return min(complete_after, max_steps)
    return min(calls + 1, max_steps)


@given(
    calls=st.integers(0, 8),
    complete_after=st.none() | st.integers(1, 8),
    max_steps=st.integers(1, 8),
)
def test_a_stepped_task_takes_exactly_the_calls_that_it_needs(
    calls: int, complete_after: int | None, max_steps: int
) -> None:
    stepper = Stepper(calls)

    async def run() -> Row:
        use = stepped(stepper, complete_after=complete_after, max_steps=max_steps)
        return await use(EPISODE, TASK)

    row = anyio.run(run)

    assert row["failure"] is None
    assert stepper.model_calls == expected_calls(calls, complete_after, max_steps)


@given(kill=st.integers(1, 20), after=st.booleans())
def test_a_stepped_episode_killed_at_any_write_goes_on_without_a_further_call(
    kill: int, after: bool
) -> None:
    anyio.run(_killed_and_resumed, kill, after)


async def _killed_and_resumed(kill: int, after: bool) -> None:
    kept, stepper, partners = MemoryJournal(), Stepper(4), Partners()
    mortal = MortalJournal(kept, appends_left=kill, after=after)
    with contextlib.suppress(Killed):
        await stepped(stepper, complete_after=3, journal=mortal, partners=partners)(
            EPISODE, TASK
        )
    row = await stepped(stepper, complete_after=3, journal=kept, partners=partners)(
        EPISODE, TASK
    )

    assert row["failure"] is None
    # The call that was under way at the kill may have been made and be replayed; the
    # task is complete then, and no other is made.
    assert stepper.model_calls == 3


async def test_each_step_is_asked_with_the_conversation_so_far() -> None:
    stepper = Stepper(2)
    await stepped(stepper)(EPISODE, TASK)

    asked = {"type": "message", "role": "user", "content": "do it"}
    assert [request["input"] for request in stepper.asked] == [
        "do it",
        [asked, CALL, DONE],
        [asked, CALL, DONE, CALL, DONE],
    ]


async def test_the_turn_is_all_steps_together() -> None:
    partners = Partners()
    graded: list[Turn] = []
    stepper = Stepper(2)

    @attrs.frozen
    class Noting(StepResources):
        async def verify(self, *asked: object, **more: object) -> Mapping[str, Json]:
            (turn,) = (one for one in asked if isinstance(one, Turn))
            graded.append(turn)
            return {"reward": 1.0, "mask_sample": False}

    use = stepped(stepper, partners=partners)
    await attrs.evolve(use, resources=Noting(partners, stepper, None))(EPISODE, TASK)

    (turn,) = graded
    assert turn.response == {
        "id": "r4",
        "output": [CALL, DONE, CALL, DONE, ANSWER],
        "usage": {"total_tokens": 3, "details": {"cached": 6}},
    }


@pytest.mark.parametrize("ends", [Outcome.INCOMPLETE, Outcome.FAILED, Outcome.TIMEOUT])
async def test_a_step_that_does_not_complete_is_the_last(ends: Outcome) -> None:
    partners = Partners()
    stepper = Stepper(1, ends=ends)
    row = await stepped(stepper, partners=partners)(EPISODE, TASK)

    assert row["failure"] is None
    assert stepper.model_calls == 2
    assert partners.asked.count("resources.task_state") == 1
