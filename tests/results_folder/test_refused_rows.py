# SPDX-License-Identifier: Apache-2.0
"""An answer that is no row is the failure of its episode, and of no other."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from livery.adapters.results_folder import make_results_folder
from livery.domain.digests import Json
from livery.domain.rollouts import RecordKind, owed
from livery.domain.tasks import EpisodeId, Task, TaskId
from livery.ports.provided.collect_rollouts import CollectRollouts

from .rows import failure, result
from .test_folder import CARD

pytestmark = pytest.mark.anyio


def nested(depth: int) -> Json:
    found: Json = None
    for _ in range(depth):
        found = [found]
    return found


def answer(row: Mapping[str, Json], name: str, **changes: Json) -> Mapping[str, Json]:
    """Return a row, with changes of what is not null in it."""
    told: Json = row[name]
    assert isinstance(told, Mapping)
    return {**row, name: {**told, **changes}}


@pytest.mark.case("FC-122")
@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (answer(result(), "result", reward=None), "result.reward is no number"),
        (answer(result(), "result", reward=float("inf")), "not finite"),
        (answer(result(), "result", metrics={"loss": float("nan")}), "not JSON"),
        (answer(result(), "result", metrics=nested(100_000)), "recursion"),
        (answer(failure(), "failure", terminal=None), "neither true nor false"),
        ({**result(), "more": 1}, "it has the keys"),
    ],
)
async def test_what_is_no_row_is_its_episode_s_failure(
    tmp_path: Path, bad: Mapping[str, Json], told: str
) -> None:
    tasks = [TaskId("set", str(number)) for number in range(3)]

    async def run_episode(
        episode: EpisodeId, task: Task, *, scope: anyio.CancelScope | None = None
    ) -> Mapping[str, Json]:
        row = bad if task.task_id == tasks[1] else result()
        name: Json = {"rollout_id": episode.rollout_id, "attempt": episode.attempt}
        return {**row, "episode_id": name}

    with make_results_folder(tmp_path / "run", CARD) as folder:
        collect = CollectRollouts(
            run_episode=run_episode,
            results=folder.log,
            task=lambda name: Task(
                task_id=name, responses_create_params={}, task_data={}
            ),
        )
        progress = await collect(owed(tasks, 1, ()))
        records = folder.log.records()
        text = (folder.path / "results.jsonl").read_text()

    kinds = sorted(record.kind for record in records)
    assert kinds == [RecordKind.BROKEN, RecordKind.PASSED, RecordKind.PASSED]
    assert (progress.passed, progress.broken) == (2, 1)
    assert [record.terminal for record in records] == [True, True, True]
    assert "What came of the episode cannot be kept: " in text
    assert told in text
