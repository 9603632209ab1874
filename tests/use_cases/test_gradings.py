# SPDX-License-Identifier: Apache-2.0
"""Gradings that break: another sandbox for a lost grader, a new one after a kill."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from livery.domain import episodes
from livery.domain.claims import DECIDER, ClaimId, ClaimPhase, ReleaseStarted
from livery.domain.digests import Json
from livery.domain.episodes import Participant
from livery.domain.tasks import EpisodeId, Task
from livery.ports.provided.carry_out import read_state
from livery.ports.provided.grade_work import GRADING_ATTEMPTS_MAX, grader_claim
from livery.ports.required.journal import claim_stream, episode_stream
from livery.ports.required.sandbox_provider import ClaimLabel

from .outside import Killed, MortalJournal
from .stable import OWNER, Ground, Stable, task

pytestmark = pytest.mark.anyio

EPISODE = EpisodeId("gradings")
SOLVE = "printf 42 > answer.txt"
WAIT_SECONDS = 60.0
MANY = 10_000


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def graded_at_length(ground: Ground, *, times: int) -> Task:
    """Return a task whose grader hangs so many times, and judges from then on."""
    tries = f'"{ground.folder}/gradings"'
    grader = (
        f"read -r mark; echo x >> {tries};"
        f' if [ "$(wc -l < {tries})" -le {times} ]; then sleep 600; fi;'
        ' test "$(cat answer.txt)" = 42; status=$?; echo "$mark"; exit $status'
    )
    asked = task()
    asked.task_data["grader"] = {
        "files": {},
        "command": ["sh", "-c", grader],
        "timeout_seconds": 900,
    }
    return asked


def gradings(ground: Ground) -> int:
    """Return how many graders began."""
    file = ground.folder / "gradings"
    return len(file.read_text().splitlines()) if file.exists() else 0


async def until_graded(ground: Ground, times: int) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        while gradings(ground) < times:  # noqa: ASYNC110 - other processes write them
            await anyio.sleep(0.01)


async def claims_of(ground: Ground, stable: Stable) -> list[ClaimId]:
    """Return the graders' claims of an episode that was queued."""
    use = stable.run_episode
    stream = episode_stream(use.run, EPISODE.key)
    queued = (await read_state(ground.journal, stream, episodes.DECIDER)).state.queued
    assert queued is not None
    session = use.session(Participant.RESOURCES, EPISODE, queued.at)
    return [grader_claim(session, number) for number in range(3)]


async def phases(ground: Ground, claims: list[ClaimId]) -> list[ClaimPhase]:
    found = [
        await read_state(ground.journal, claim_stream(claim), DECIDER)
        for claim in claims
    ]
    return [standing.state.phase for standing in found]


async def with_losses(ground: Ground, times: int) -> Mapping[str, Json]:
    """Run an episode whose grader loses its sandbox so many times."""
    async with ground.stable(ground.counting(SOLVE)) as it:
        rows: list[Mapping[str, Json]] = []

        async def run() -> None:
            rows.append(
                await it.run_episode(EPISODE, graded_at_length(ground, times=times))
            )

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await until_graded(ground, 1)
            for number, claim in enumerate((await claims_of(ground, it))[:times]):
                await until_graded(ground, number + 1)
                await it.provider.destroy(ClaimLabel(claim=claim, owner=OWNER))
    return rows[0]


async def test_a_grader_that_is_lost_is_given_another_sandbox(ground: Ground) -> None:
    row = await with_losses(ground, 1)

    result = row["result"]
    assert isinstance(result, dict), row["failure"]
    assert (result["reward"], result["mask_sample"]) == (1.0, False)
    assert gradings(ground) == 2
    assert len(ground.starts) == 1, "the agent is not run again for that"
    assert ground.sandboxes == []


async def test_a_grader_that_is_lost_each_time_masks_its_sample(ground: Ground) -> None:
    row = await with_losses(ground, GRADING_ATTEMPTS_MAX)

    result = row["result"]
    assert isinstance(result, dict), row["failure"]
    assert (result["reward"], result["mask_sample"]) == (0.0, True)
    assert gradings(ground) == GRADING_ATTEMPTS_MAX
    assert ground.sandboxes == []


async def test_a_grading_that_a_kill_cut_off_begins_again_in_a_new_sandbox(
    ground: Ground,
) -> None:
    harness, asked = ground.counting(SOLVE), graded_at_length(ground, times=1)
    mortal = MortalJournal(ground.journal, appends_left=MANY, after=False)
    try:
        async with (
            ground.stable(harness, mortal) as it,
            anyio.create_task_group() as group,
        ):
            group.start_soon(it.run_episode, EPISODE, asked)
            await until_graded(ground, 1)
            claims = await claims_of(ground, it)
            mortal.dead = True
            group.cancel_scope.cancel()
    except* Killed:
        pass
    cut_off = await phases(ground, claims)

    async with ground.stable(harness) as it:
        row = await it.run_episode(EPISODE, asked)

    assert cut_off == [ClaimPhase.HELD, ClaimPhase.ABSENT, ClaimPhase.ABSENT]
    assert await phases(ground, claims) == [
        ClaimPhase.RELEASED,
        ClaimPhase.RELEASED,
        ClaimPhase.ABSENT,
    ]
    first = await ground.journal.read(claim_stream(claims[0]))
    reasons = [e.reason for e in first.events if isinstance(e, ReleaseStarted)]
    assert reasons == ["its grading was cut off"]
    result = row["result"]
    assert isinstance(result, dict), row["failure"]
    assert (result["reward"], result["mask_sample"]) == (1.0, False)
    assert gradings(ground) == 2
    assert len(ground.starts) == 1
    assert ground.sandboxes == []
