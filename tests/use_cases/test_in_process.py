# SPDX-License-Identifier: Apache-2.0
"""Whole episodes in one process, in real host sandboxes, killed and taken over."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.harnesses.command import CommandHarness
from livery.adapters.harnesses.nop import NopHarness
from livery.domain.activations import Outcome, Stillness
from livery.domain.agent_sessions import AgentSessionId
from livery.domain.failures import AGENT_RUN_ERROR
from livery.domain.resources_sessions import ResourcesSessionId
from livery.domain.rollouts import RecordKind, owed, rollout_id
from livery.domain.tasks import EpisodeId
from livery.ports.provided.collect_rollouts import Progress
from livery.ports.provided.in_process_resources import InProcessResources
from livery.ports.required.artifact_store import Reader, Shelf
from livery.ports.required.participants import Lent, ParticipantFailed

from .outside import Killed, MortalJournal, Outside
from .stable import OWNER, Ground, Stable, task

pytestmark = pytest.mark.anyio

EPISODE = EpisodeId(rollout_id(task().task_id, 0))
AGENT = AgentSessionId("agent-1")
RESOURCES = ResourcesSessionId("resources-1")
SOLVE = "printf 42 > answer.txt"
WAIT_SECONDS = 60.0


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def seeded(stable: Stable) -> None:
    lent = await stable.resources.seed(RESOURCES, EPISODE, task())
    await stable.agent.seed(AGENT, EPISODE, task().task_id, lent)


async def until_started(ground: Ground) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        while not ground.starts:  # noqa: ASYNC110 - another process writes them
            await anyio.sleep(0.01)


async def collected(stable: Stable) -> Progress:
    return await stable.collect(owed((task().task_id,), 1, ()))


@pytest.mark.case("FC-224", "FC-247")
async def test_a_command_that_is_not_there_fails_for_good_and_is_named(
    ground: Ground,
) -> None:
    async with ground.stable(CommandHarness(argv=("my-agnet", "--key=k"))) as it:
        progress = await collected(it)

    assert progress.broken == 1
    (row,) = ground.results.rows
    failure = row["failure"]
    assert isinstance(failure, Mapping)
    assert failure["terminal"] is True
    assert failure["failure_kind"] == AGENT_RUN_ERROR
    told = str(failure["failure_reason"])
    assert "program my-agnet: No such file or directory" in told
    assert "--key" not in told
    assert ground.sandboxes == []


async def test_a_command_that_is_not_there_is_told_again_and_its_close_is_no_stop(
    ground: Ground,
) -> None:
    async with ground.stable(CommandHarness(argv=("my-agnet",))) as it:
        await seeded(it)
        told: list[str] = []
        for _ in range(2):
            with pytest.raises(ParticipantFailed) as caught:
                await it.agent.activate(AGENT, EPISODE, task().responses_create_params)
            assert caught.value.terminal
            told.append(caught.value.reason)
        closed = await it.agent.close(AGENT, EPISODE)
        await it.resources.close(RESOURCES, EPISODE)

    assert told[0] == told[1]
    assert closed.observations is not None
    (record,) = closed.observations["records"]  # type: ignore[misc, union-attr]
    assert record["error_type"] == "sandbox_error"  # type: ignore[call-overload, index]


async def test_work_that_solves_the_task_passes(ground: Ground) -> None:
    async with ground.stable(
        ground.counting(f"{SOLVE}; echo told; echo err >&2")
    ) as it:
        progress = await collected(it)

    assert (progress.passed, progress.done) == (1, 1)
    assert len(ground.starts) == 1
    assert ground.sandboxes == []
    shelf = await ground.artifacts.list(Shelf(EPISODE.key))
    assert {a.name for a in shelf} >= {"stdout.log", "stderr.log", "workspace.tar"}


async def test_doing_nothing_fails_and_is_not_masked(ground: Ground) -> None:
    async with ground.stable(NopHarness()) as it:
        progress = await collected(it)

    assert (progress.failed, progress.masked) == (1, 0)


async def test_a_failing_command_is_graded_like_any_other(ground: Ground) -> None:
    async with ground.stable(ground.counting(f"{SOLVE}; exit 3")) as it:
        progress = await collected(it)

    assert progress.passed == 1


@pytest.mark.case("FC-112", "FC-113", "FC-109")
async def test_many_askers_share_one_run_and_one_answer(ground: Ground) -> None:
    async with ground.stable(ground.counting(f"sleep 0.3; {SOLVE}")) as it:
        await seeded(it)
        replies: list[object] = []

        async def ask() -> None:
            replies.append(
                await it.agent.activate(AGENT, EPISODE, task().responses_create_params)
            )

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)
        later = await it.agent.activate(AGENT, EPISODE, task().responses_create_params)
        with pytest.raises(ParticipantFailed, match="is another"):
            await it.agent.activate(AGENT, EPISODE, {"input": "Another request."})
        await it.agent.close(AGENT, EPISODE)
        await it.resources.close(RESOURCES, EPISODE)

    assert len(ground.starts) == 1
    assert len(replies) == 5
    assert all(reply == later for reply in replies)


@pytest.mark.case("FC-086", "FC-100", "FC-061", "FC-099")
async def test_close_ends_a_run_and_keeps_what_it_wrote(ground: Ground) -> None:
    async with ground.stable(ground.counting("echo so far; sleep 600")) as it:
        await seeded(it)
        outcomes: list[Outcome] = []

        async def ask() -> None:
            turn = await it.agent.activate(
                AGENT, EPISODE, task().responses_create_params
            )
            outcomes.append(turn.outcome)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await until_started(ground)
            closed = await it.agent.close(AGENT, EPISODE)
        again = await it.agent.close(AGENT, EPISODE)
        await it.resources.close(RESOURCES, EPISODE)

    assert outcomes == [Outcome.CANCELLED]
    assert closed.stillness is Stillness.PROCESSES_SEEN_DEAD
    assert again == closed
    async with ground.artifacts.get(
        Shelf(EPISODE.key), "stdout.log", reader=Reader.OPERATOR
    ) as chunks:
        kept = b"".join([chunk async for chunk in chunks])
    assert kept == b"so far\n"


@pytest.mark.case("FC-083", "FC-084", "FC-085")
async def test_close_without_an_activation_answers_the_same_each_time(
    ground: Ground,
) -> None:
    async with ground.stable(NopHarness()) as it:
        await seeded(it)
        closed = await it.agent.close(AGENT, EPISODE)
        again = await it.agent.close(AGENT, EPISODE)
        never = await it.agent.close(AgentSessionId("never"), EPISODE)
        with pytest.raises(ParticipantFailed, match="already closed"):
            await it.agent.seed(AGENT, EPISODE, task().task_id, Lent())
        await it.resources.close(RESOURCES, EPISODE)

    assert closed == again
    assert closed.observations is not None
    assert never.stillness is Stillness.NOTHING_RAN


@pytest.mark.case("FC-133")
async def test_a_seed_that_hangs_delays_no_other(ground: Ground) -> None:
    async with ground.stable(NopHarness()) as it:
        outside = Outside()
        outside.provider.hangs = True
        slow = InProcessResources(
            sessions=attrs.evolve(it.resources.sessions, claim=outside.claim)
        )
        other = ResourcesSessionId("other")
        async with anyio.create_task_group() as group:
            group.start_soon(slow.seed, RESOURCES, EPISODE, task())
            with anyio.fail_after(WAIT_SECONDS):
                while not outside.provider.made:
                    await anyio.lowlevel.checkpoint()
                await it.resources.seed(other, EpisodeId("other"), task())
            group.cancel_scope.cancel()
        await it.resources.close(other, EpisodeId("other"))

    assert outside.provider.live == {}


async def test_a_closed_session_leaves_nothing_in_memory(ground: Ground) -> None:
    async with ground.stable(NopHarness()) as it:
        await seeded(it)
        await it.agent.close(AGENT, EPISODE)
        await it.resources.close(RESOURCES, EPISODE)

        assert it.agent.sessions.open_here == ()
        assert it.resources.sessions.open_here == ()
        assert it.resources.sessions.in_hand == 0


async def test_grading_is_refused_while_nobody_saw_the_harness_end(
    ground: Ground,
) -> None:
    async with ground.stable(ground.counting(SOLVE)) as it:
        await seeded(it)
        turn = await it.agent.activate(AGENT, EPISODE, task().responses_create_params)
        with pytest.raises(ParticipantFailed, match="nobody saw"):
            await it.resources.verify(RESOURCES, EPISODE, task(), turn, stillness=None)
        await it.agent.close(AGENT, EPISODE)
        await it.resources.close(RESOURCES, EPISODE)


async def test_a_verdict_is_given_once_and_replayed(ground: Ground) -> None:
    async with ground.stable(ground.counting(SOLVE)) as it:
        await seeded(it)
        turn = await it.agent.activate(AGENT, EPISODE, task().responses_create_params)
        closed = await it.agent.close(AGENT, EPISODE)
        first, again = [
            await it.resources.verify(
                RESOURCES, EPISODE, task(), turn, stillness=closed.stillness
            )
            for _ in range(2)
        ]
        await it.resources.close(RESOURCES, EPISODE)

    assert first == again
    assert first["reward"] == 1.0


@pytest.mark.case("FC-171", "FC-247")
async def test_an_agent_that_kills_its_supervisor_is_measured_and_not_masked(
    ground: Ground,
) -> None:
    async with ground.stable(ground.counting(f"{SOLVE}; kill -9 $PPID")) as it:
        progress = await collected(it)

    assert (progress.failed, progress.done) == (1, 1), ground.results.rows
    result = ground.results.rows[0]["result"]
    assert isinstance(result, dict)
    assert (result["reward"], result["mask_sample"]) == (0.0, False)
    assert "supervised" in result["failure_reason"]
    assert ground.sandboxes == []


async def test_work_that_is_larger_than_is_taken_out_is_measured(
    ground: Ground,
) -> None:
    async with ground.stable(ground.counting(f"{SOLVE}; truncate -s 40G big")) as it:
        progress = await collected(it)

    assert (progress.failed, progress.done) == (1, 1), ground.results.rows
    result = ground.results.rows[0]["result"]
    assert isinstance(result, dict)
    assert (result["reward"], result["mask_sample"]) == (0.0, False)
    assert "more than" in result["failure_reason"]
    assert ground.sandboxes == []


@pytest.mark.parametrize(
    "whom", ["$PPID", "$(cut -d' ' -f4 /proc/$PPID/stat)"], ids=["keeper", "worker"]
)
@pytest.mark.case("FC-247")
async def test_work_that_kills_what_supervises_its_grader_is_not_masked(
    ground: Ground, whom: str
) -> None:
    # What the agent leaves is run by the grader.
    kill = f"cat > answer.txt <<'END'\nkill -9 {whom}\nEND\n"
    runs_it = task()
    runs_it.task_data["grader"] = {"command": ["sh", "-c", ". ./answer.txt; sleep 600"]}
    async with ground.stable(ground.counting(kill)) as it:
        row = await it.run_episode(EPISODE, runs_it)

    result = row["result"]
    assert isinstance(result, dict), row["failure"]
    assert (result["reward"], result["mask_sample"]) == (0.0, False)
    assert ground.sandboxes == []


@pytest.mark.case("FC-054", "FC-247", "FC-248")
async def test_a_sandbox_that_vanishes_is_no_fault_of_the_agent(ground: Ground) -> None:
    async with ground.stable(ground.counting("sleep 600")) as it:

        async def end_it() -> None:
            await until_started(ground)
            claims = [label.label async for label in it.provider.list(OWNER)]
            await it.provider.destroy(claims[0])

        async with anyio.create_task_group() as group:
            group.start_soon(end_it)
            progress = await collected(it)

    assert progress.broken == 1
    record = ground.results.kept[0]
    assert record.terminal is False
    assert ground.sandboxes == []


@pytest.mark.case("FC-086", "FC-022")
async def test_stopping_a_run_gives_every_sandbox_back_and_writes_every_row(
    ground: Ground,
) -> None:
    async with ground.stable(ground.counting("sleep 600"), tasks=3) as it:

        async def stop() -> None:
            await until_started(ground)
            it.collect.stop()

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            tasks = tuple(task(number).task_id for number in (1, 2, 3))
            progress = await it.collect(owed(tasks, 1, ()))

    assert progress.broken == len(ground.results.kept) > 0
    assert {record.failure_kind for record in ground.results.kept} == {"cancelled"}
    assert ground.sandboxes == []


async def test_one_that_was_stopped_before_its_row_was_kept_is_tried_again_at_once(
    ground: Ground,
) -> None:
    # Who is told once more to end does so in the middle of the cleaning up.
    async with ground.stable(ground.counting("sleep 600")) as it:

        async def stop() -> None:
            await until_started(ground)
            it.collect.stop()

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            await collected(it)
    ground.results.kept.clear()
    async with ground.stable(ground.counting(SOLVE)) as it:
        progress = await collected(it)

    kinds = [record.kind for record in ground.results.kept]
    assert kinds == [RecordKind.BROKEN, RecordKind.PASSED]
    assert (progress.total, progress.passed) == (2, 1)


async def collected_until_killed(
    ground: Ground, harness: CommandHarness, number: int, *, after: bool
) -> None:
    """Collect until the process dies at a write, just before or just after it."""
    mortal = MortalJournal(ground.journal, appends_left=number, after=after)
    try:
        async with ground.stable(harness, mortal) as it:
            await collected(it)
    except* Killed:
        assert mortal.dead


def points() -> list[object]:
    """Return every write of an episode as a point to die at; some are for always."""
    always = {3, 6, 9, 10, 14, 17}
    return [
        pytest.param(
            number,
            after,
            marks=() if number in always and after else pytest.mark.long,
            id=f"{number}-{'written' if after else 'unwritten'}",
        )
        for number in range(1, 28)
        for after in (True, False)
    ]


@pytest.mark.parametrize(("number", "after"), points())
async def test_a_process_killed_at_a_write_is_followed_by_one_that_finishes(
    ground: Ground, number: int, after: bool
) -> None:
    harness = ground.counting(SOLVE)
    await collected_until_killed(ground, harness, number, after=after)
    async with ground.stable(harness) as it:
        if ground.results.kept == [] or ground.results.kept[-1].kind is not (
            RecordKind.PASSED
        ):
            await it.collect(owed((task().task_id,), 1, ground.results.records()))

    passed = [r for r in ground.results.kept if r.kind is RecordKind.PASSED]
    assert len(passed) == 1, ground.results.rows
    # Each attempt has a sandbox of its own, in whose folder its command starts.
    assert len(ground.starts) == len(set(ground.starts))
    assert ground.sandboxes == []


async def test_a_sandbox_that_is_gone_when_its_build_is_gone_on_with_leaves_no_claim(
    ground: Ground,
) -> None:
    harness = ground.counting(SOLVE)
    held = 4  # Queued, build started, claim requested, and held.
    await collected_until_killed(ground, harness, held, after=True)
    async with ground.stable(harness) as it:
        labels = [listed.label async for listed in it.provider.list(OWNER)]
        for label in labels:
            await it.provider.destroy(label)
        await collected(it)

    assert len(labels) == 1
    assert [record.failure_kind for record in ground.results.kept] == ["session_lost"]
    assert await ground.journal.open_streams("claims") == ()
    assert ground.sandboxes == []
