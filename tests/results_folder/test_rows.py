# SPDX-License-Identifier: Apache-2.0
"""What came of an episode is read out of its row, strictly."""

import json
from pathlib import Path

import pytest

from livery.adapters.results_folder import RowDamaged, read_rows, to_record
from livery.adapters.results_folder.rows import to_row
from livery.domain.digests import Json
from livery.domain.rollouts import RecordKind
from livery.domain.tasks import EpisodeId
from livery.ports.required.result_log import ResultLogUnusable

from .rows import failure, result

GYM = Path(__file__).parents[3] / "shared" / "gym-transcripts"


@pytest.mark.parametrize(
    ("row", "kind", "terminal"),
    [
        (result(reward=1.0), RecordKind.PASSED, True),
        (result(reward=2), RecordKind.PASSED, True),
        (result(reward=0.5), RecordKind.FAILED, True),
        (result(reward=0.0, masked=True), RecordKind.MASKED, True),
        (failure(terminal=True), RecordKind.BROKEN, True),
        (failure(terminal=False, kind=None, stage=None), RecordKind.BROKEN, False),
    ],
)
def test_a_row_tells_what_came_of_the_attempt(
    row: dict[str, Json], kind: RecordKind, terminal: bool
) -> None:
    record = to_record(row)

    assert (record.kind, record.terminal) == (kind, terminal)
    assert record.episode == EpisodeId("t.r0", 0)


def changed(row: dict[str, Json], **changes: Json) -> dict[str, Json]:
    return {**row, **changes}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (changed(result(), extra=1), "it has the keys"),
        (changed(result(), result=None), "exactly one"),
        (changed(result(), failure={}), "exactly one"),
        (changed(result(), result=3), "result is no object"),
        (changed(result(), result={"reward": "1"}), "reward is no number"),
        (changed(result(), result={"reward": True}), "reward is no number"),
        (changed(result(), result={"reward": float("nan")}), "not finite"),
        (changed(result(), result={"reward": 10**400}), "not finite, or too large"),
        (
            changed(result(), result={"reward": 1, "failure_kind": ["a"]}),
            "result.failure_kind is no text",
        ),
        (
            changed(failure(), failure={"terminal": True, "failure_kind": 5}),
            "failure.failure_kind is no text",
        ),
        (changed(result(), result={"reward": 1, "_ng_x": 1}), "reserved keys: _ng_x"),
        (changed(result(), episode_id={}), "episode_id is not"),
        (changed(result(), episode_id={"rollout_id": "-"}), "rollout_id '-'"),
        (changed(result(), task_id={"taskset": "a"}), "task_id is no text"),
        (changed(failure(), failure={}), "neither true nor false"),
    ],
)
def test_what_is_no_row_is_told(row: dict[str, Json], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        to_record(row)


def test_times_that_are_none_are_not_counted() -> None:
    """They may be another server's: what is no number makes no table of the report."""
    seconds: dict[str, Json] = {
        "seed": 2,
        "act": float("nan"),
        "verify": 10**400,
        "clean": True,
    }

    assert to_row(result(seconds=seconds)).seconds == {"seed": 2.0}


def test_results_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(ResultLogUnusable, match="Is a directory"):
        list(read_rows(tmp_path))


def test_a_damaged_line_is_told_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result()) + "\nnot json\n")

    with pytest.raises(RowDamaged, match="line 2: it is no row"):
        list(read_rows(path))


def test_a_torn_last_line_is_no_row_yet(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result()) + "\n" + json.dumps(result("u"))[:50])

    assert len(list(read_rows(path))) == 1
    assert list(read_rows(tmp_path / "none")) == []


def test_rows_of_nemo_gym_itself_are_understood() -> None:
    if not GYM.exists():
        pytest.skip("the recorded exchanges are not beside this checkout")
    found: list[RecordKind] = []
    for path in sorted(GYM.glob("[0-9]*.json")):
        for exchange in json.loads(path.read_text())["exchanges"]:
            body = (exchange.get("response") or {}).get("body")
            # An answer with keys that its own collector refuses is recorded as well.
            if exchange["path"] == "/run" and "_ng_" not in json.dumps(body):
                found += [to_record(body).kind] if "episode_id" in (body or {}) else []

    assert set(found) >= {RecordKind.PASSED, RecordKind.BROKEN}
