# SPDX-License-Identifier: Apache-2.0
"""An episode: one result or one failure, and whoever was seeded is closed."""

import contextlib
from collections.abc import Mapping, Sequence

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.journals import MemoryJournal
from livery.domain.activations import Outcome, Stillness
from livery.domain.agent_sessions import AgentSessionId
from livery.domain.digests import Json
from livery.domain.episodes import EpisodeConflict
from livery.domain.failures import PROVIDER_UNAVAILABLE, SESSION_LOST
from livery.domain.resources_sessions import ResourcesSessionId
from livery.domain.tasks import EpisodeId, Task, TaskId
from livery.ports.provided.run_episode import Row, RunEpisode
from livery.ports.required.journal import Journal, Stream
from livery.ports.required.participants import (
    AgentClosed,
    Lent,
    ParticipantFailed,
    TaskState,
    Turn,
)
from livery.ports.required.sandbox import SandboxAccess

from .outside import E, HandClock, Killed, MortalJournal

pytestmark = pytest.mark.anyio

EPISODE = EpisodeId("rollout-1")
TASK = Task(
    task_id=TaskId("set", "1"),
    responses_create_params={"input": "do it"},
    task_data={},
)
ACCESS = SandboxAccess(provider="fake", descriptor={"id": "1"}, workdir="/w")


def broken(participant: str, step: str, *, terminal: bool = False) -> ParticipantFailed:
    return ParticipantFailed(
        participant, step, PROVIDER_UNAVAILABLE, f"{step} broke", terminal
    )


@attrs.define
class Partners:
    """Both participants, which do as a test says and write down what was asked."""

    asked: list[str] = attrs.field(factory=list[str])
    faults: dict[str, BaseException] = attrs.field(factory=dict[str, BaseException])
    """What a step raises, by its name, as `agent.close`."""
    hangs: set[str] = attrs.field(factory=set[str])
    turn: Turn = attrs.field(
        factory=lambda: Turn(response={"id": "r"}, outcome=Outcome.COMPLETED)
    )
    stillness: Stillness | None = Stillness.PROCESSES_SEEN_DEAD
    runs: int = 0
    done: bool = False
    complete: bool = False
    """Whether the task is complete, by its state."""

    async def step(self, name: str) -> None:
        self.asked.append(name)
        await anyio.lowlevel.checkpoint()
        if name in self.hangs:
            await anyio.sleep_forever()
        if name in self.faults:
            raise self.faults[name]


@attrs.frozen
class FakeResources:
    partners: Partners

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> Lent:
        await self.partners.step("resources.seed")
        return Lent(access=ACCESS)

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        await self.partners.step("resources.task_state")
        return TaskState(complete=self.partners.complete, revision=1)

    async def verify(
        self,
        session: ResourcesSessionId,
        episode: EpisodeId,
        task: Task,
        turn: Turn,
        *,
        stillness: Stillness | None,
        handed_back: Mapping[str, str] | None = None,
    ) -> Mapping[str, Json]:
        assert stillness is self.partners.stillness
        await self.partners.step("resources.verify")
        return {"reward": 1.0, "mask_sample": False}

    async def close(self, session: ResourcesSessionId, episode: EpisodeId) -> None:
        await self.partners.step("resources.close")


@attrs.frozen
class FakeAgent:
    partners: Partners

    async def seed(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        task: TaskId,
        lent: Lent,
    ) -> None:
        assert lent == Lent(access=ACCESS)
        await self.partners.step("agent.seed")

    async def activate(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        parameters: Mapping[str, Json],
    ) -> Turn:
        await self.partners.step("agent.activate")
        if not self.partners.done:
            self.partners.runs += 1  # Asked again, a session replays.
            self.partners.done = True
        return self.partners.turn

    async def close(self, session: AgentSessionId, episode: EpisodeId) -> AgentClosed:
        await self.partners.step("agent.close")
        return AgentClosed(
            observations={"source": "t"}, stillness=self.partners.stillness
        )


def use_case(
    partners: Partners,
    journal: Journal | None = None,
    *,
    episode_seconds: float = 60.0,
    cleanup_seconds: float = 60.0,
) -> RunEpisode:
    return RunEpisode(
        journal=journal or MemoryJournal(),
        clock=HandClock(),
        run="run",
        resources=FakeResources(partners),
        agent=FakeAgent(partners),
        episode_seconds=episode_seconds,
        cleanup_seconds=cleanup_seconds,
    )


def failure_of(row: Row) -> Mapping[str, Json]:
    failure = row["failure"]
    assert row["result"] is None
    assert isinstance(failure, Mapping)
    return failure


HAPPY = [
    "resources.seed",
    "agent.seed",
    "agent.activate",
    "agent.close",
    "resources.verify",
    "resources.close",
]


async def test_an_episode_goes_through_its_stages_to_a_result() -> None:
    partners = Partners()
    row = await use_case(partners)(EPISODE, TASK)

    assert partners.asked == HAPPY
    assert row["failure"] is None
    assert row["episode_id"] == {"rollout_id": "rollout-1", "attempt": 0}
    result = row["result"]
    assert isinstance(result, Mapping)
    assert result["reward"] == 1.0
    assert result["ng_agent_observations"] == {"source": "t"}


async def test_asking_again_replays_the_row_and_asks_nobody() -> None:
    partners = Partners()
    run = use_case(partners)
    first = await run(EPISODE, TASK)
    again = await run(EPISODE, TASK)

    assert partners.asked == HAPPY
    assert _without_seconds(again) == _without_seconds(first)
    # It closed nobody, and how long that took before is not in the journal.
    known, told = _seconds(first), _seconds(again)
    assert known.keys() - told.keys() == {"clean"}
    assert all(known[stage] == told[stage] for stage in told)


async def test_another_request_under_the_name_is_a_conflict() -> None:
    run = use_case(Partners())
    await run(EPISODE, TASK)

    with pytest.raises(EpisodeConflict):
        await run(EPISODE, attrs.evolve(TASK, task_data={"other": 1}))


@pytest.mark.parametrize(
    ("step", "stage", "closed"),
    [
        ("resources.seed", "seed", ["resources.close"]),
        ("agent.seed", "agent", ["agent.close", "resources.close"]),
        ("agent.activate", "agent", ["agent.close", "resources.close"]),
        ("resources.verify", "verification", ["resources.close"]),
    ],
)
@pytest.mark.case("FC-090", "FC-247")
async def test_a_broken_step_is_a_typed_failure_and_everybody_is_closed(
    step: str, stage: str, closed: list[str]
) -> None:
    participant, name = step.split(".")
    partners = Partners(faults={step: broken(participant, name)})
    row = await use_case(partners)(EPISODE, TASK)

    failure = failure_of(row)
    assert failure["stage"] == stage
    assert failure["failure_kind"] == PROVIDER_UNAVAILABLE
    assert failure["terminal"] is False
    asked = partners.asked
    assert asked[asked.index(step) + 1 :] == closed


async def test_a_terminal_failure_is_told_as_one() -> None:
    fault = broken("agent", "seed", terminal=True)
    row = await use_case(Partners(faults={"agent.seed": fault}))(EPISODE, TASK)

    assert failure_of(row)["terminal"] is True


async def test_a_failure_after_the_turn_keeps_the_response() -> None:
    fault = broken("resources", "verify")
    row = await use_case(Partners(faults={"resources.verify": fault}))(EPISODE, TASK)

    assert failure_of(row)["partial_response"] == {"id": "r"}


@pytest.mark.case("FC-122", "FC-247")
async def test_an_unexpected_fault_fails_its_episode_alone() -> None:
    partners = Partners(faults={"agent.activate": ZeroDivisionError("ours")})
    row = await use_case(partners)(EPISODE, TASK)

    failure = failure_of(row)
    assert failure["terminal"] is True
    assert "ZeroDivisionError" in str(failure["failure_reason"])
    assert partners.asked[-2:] == ["agent.close", "resources.close"]


@pytest.mark.case("FC-248", "FC-054")
async def test_a_lost_sandbox_is_a_failure_and_never_graded() -> None:
    lost = Turn(response={}, outcome=Outcome.SANDBOX_ERROR, reason="killed")
    partners = Partners(turn=lost)
    row = await use_case(partners)(EPISODE, TASK)

    assert failure_of(row)["failure_kind"] == SESSION_LOST
    assert "resources.verify" not in partners.asked


async def test_an_agent_that_will_not_close_costs_no_other_its_close() -> None:
    partners = Partners(hangs={"agent.close"})
    row = await use_case(partners, cleanup_seconds=0.05)(EPISODE, TASK)

    assert failure_of(row)["stage"] == "cleanup"
    assert partners.asked[-1] == "resources.close"
    assert "resources.verify" not in partners.asked


async def test_an_agent_that_closes_at_the_second_try_costs_nothing() -> None:
    partners = Partners()

    @attrs.frozen
    class Once(FakeAgent):
        async def close(
            self, session: AgentSessionId, episode: EpisodeId
        ) -> AgentClosed:
            if "agent.close" not in partners.asked:
                partners.asked.append("agent.close")
                raise broken("agent", "close")
            return await FakeAgent(partners).close(session, episode)

    run = attrs.evolve(use_case(partners), agent=Once(partners))
    row = await run(EPISODE, TASK)

    assert row["failure"] is None


@pytest.mark.parametrize("broken_step", ["agent.close", "resources.close"])
@pytest.mark.case("FC-088")
async def test_a_mistake_in_one_close_costs_the_other_nothing(broken_step: str) -> None:
    journal = MemoryJournal()
    faults: dict[str, BaseException] = {
        "agent.activate": broken("agent", "activate"),
        broken_step: KeyError("somebody's own"),
    }
    partners = Partners(faults=faults)

    row = await use_case(partners, journal)(EPISODE, TASK)

    assert row["failure"] is not None
    assert {"agent.close", "resources.close"} <= {*partners.asked}
    assert await journal.open_streams("episodes") == ()


async def test_resources_that_will_not_close_leave_the_result_standing() -> None:
    fault = broken("resources", "close")
    row = await use_case(Partners(faults={"resources.close": fault}))(EPISODE, TASK)

    assert row["failure"] is None


@pytest.mark.case("FC-090", "FC-153")
async def test_an_episode_has_an_end_even_when_its_agent_has_none() -> None:
    partners = Partners(hangs={"agent.activate"})
    row = await use_case(partners, episode_seconds=0.05)(EPISODE, TASK)

    failure = failure_of(row)
    assert (failure["stage"], failure["terminal"]) == ("agent", False)
    assert partners.asked[-2:] == ["agent.close", "resources.close"]


@pytest.mark.case("FC-086")
async def test_a_stopped_episode_is_cleaned_up_and_has_a_row() -> None:
    partners = Partners(hangs={"agent.activate"})
    scope = anyio.CancelScope()
    rows: list[Row] = []

    async def run() -> None:
        rows.append(await use_case(partners)(EPISODE, TASK, scope=scope))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        with anyio.fail_after(10):
            while "agent.activate" not in partners.asked:
                await anyio.lowlevel.checkpoint()
        scope.cancel()

    assert failure_of(rows[0])["failure_kind"] == "cancelled"
    assert partners.asked[-2:] == ["agent.close", "resources.close"]


async def test_an_episode_stopped_before_it_began_asks_nobody() -> None:
    partners = Partners()
    scope = anyio.CancelScope()
    scope.cancel()
    row = await use_case(partners)(EPISODE, TASK, scope=scope)

    assert failure_of(row)["failure_kind"] == "cancelled"
    assert partners.asked in ([], ["resources.close"])


@pytest.mark.case("FC-086")
async def test_a_caller_that_goes_away_leaves_nobody_unclosed() -> None:
    partners = Partners(hangs={"agent.activate"})

    async with anyio.create_task_group() as group:
        group.start_soon(use_case(partners), EPISODE, TASK)
        with anyio.fail_after(10):
            while "agent.activate" not in partners.asked:
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    assert partners.asked[-2:] == ["agent.close", "resources.close"]


@given(kill=st.integers(1, 12), after=st.booleans())
def test_an_episode_killed_at_any_write_goes_on_to_the_same_end(
    kill: int, after: bool
) -> None:
    anyio.run(_killed_and_resumed, kill, after)


async def _killed_and_resumed(kill: int, after: bool) -> None:
    kept, partners = MemoryJournal(), Partners()
    mortal = MortalJournal(kept, appends_left=kill, after=after)
    with contextlib.suppress(Killed):
        await use_case(partners, mortal)(EPISODE, TASK)
    row = await use_case(partners, kept)(EPISODE, TASK)

    assert row["failure"] is None
    result = row["result"]
    assert isinstance(result, Mapping)
    assert result["reward"] == 1.0
    assert partners.runs == 1
    assert partners.asked[-1] == "resources.close"


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(("told", "counted"), [(7.0, 7.0), (0.0, 30.0)])
async def test_a_turn_that_was_taken_over_counts_from_its_beginning(
    written: bool, told: float, counted: float
) -> None:
    kept, clock = MemoryJournal(), HandClock()
    turn = Turn(response={"id": "r"}, outcome=Outcome.COMPLETED, seconds=told)

    @attrs.define
    class Slow(Partners):
        """Takes half a minute to act, the first time."""

        async def step(self, name: str) -> None:
            await Partners.step(self, name)
            if name == "agent.activate" and not self.done:
                clock.time += 30.0

    partners = Slow(turn=turn)
    # The fourth write is the end of the turn.
    mortal = MortalJournal(kept, appends_left=4, after=written)
    with contextlib.suppress(Killed):
        await attrs.evolve(use_case(partners, mortal), clock=clock)(EPISODE, TASK)
    row = await attrs.evolve(use_case(partners, kept), clock=clock)(EPISODE, TASK)

    result = row["result"]
    assert isinstance(result, Mapping)
    more = result["livery"]
    assert isinstance(more, Mapping)
    assert partners.runs == 1
    assert more["seconds"] == {"seed": 0.0, "act": counted, "verify": 0.0, "clean": 0.0}


@attrs.define
class CutJournal:
    """A journal whose first writer is cut off, before it is written or after."""

    kept: MemoryJournal
    scope: anyio.CancelScope
    writes: bool
    is_cut: bool = False

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        if self.is_cut:
            return await self.kept.append(
                stream, events, expected_version=expected_version
            )
        self.is_cut = True
        if self.writes:
            await self.kept.append(stream, events, expected_version=expected_version)
        self.scope.cancel()
        await anyio.lowlevel.checkpoint()
        raise AssertionError("it was cut off")

    def __getattr__(self, name: str) -> object:
        return getattr(self.kept, name)


@pytest.mark.parametrize("writes", [True, False])
async def test_an_episode_whose_first_write_was_cut_off_leaves_nothing_open(
    writes: bool,
) -> None:
    kept, scope, partners = MemoryJournal(), anyio.CancelScope(), Partners()
    cut = CutJournal(kept, scope, writes)

    row = await use_case(partners, cut)(EPISODE, TASK, scope=scope)  # type: ignore[arg-type]

    assert failure_of(row)["failure_kind"] == "cancelled"
    assert await kept.open_streams("episodes") == ()
    assert partners.asked == (["resources.close"] if writes else [])


@pytest.mark.parametrize("begun", [1, 2, 3])
async def test_an_episode_of_a_killed_process_is_closed_by_one_that_is_stopped_at_once(
    begun: int,
) -> None:
    kept, scope, partners = MemoryJournal(), anyio.CancelScope(), Partners()
    mortal = MortalJournal(kept, appends_left=begun, after=True)
    with contextlib.suppress(Killed):
        await use_case(partners, mortal)(EPISODE, TASK)
    partners.asked.clear()

    cut = CutJournal(kept, scope, writes=False)
    row = await use_case(partners, cut)(EPISODE, TASK, scope=scope)  # type: ignore[arg-type]

    assert failure_of(row)["failure_kind"] == "cancelled"
    assert await kept.open_streams("episodes") == ()
    assert partners.asked[-1] == "resources.close"


def _seconds(row: Row) -> Mapping[str, Json]:
    result = row["result"]
    assert isinstance(result, Mapping)
    told = result["livery"]
    assert isinstance(told, Mapping)
    seconds = told["seconds"]
    assert isinstance(seconds, Mapping)
    return seconds


def _without_seconds(row: Row) -> Row:
    result = row["result"]
    assert isinstance(result, Mapping)
    return {**row, "result": {**result, "livery": None}}
