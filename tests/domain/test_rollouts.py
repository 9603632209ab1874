# SPDX-License-Identifier: Apache-2.0
"""Rollouts: what a run still owes, and nothing that was measured twice."""

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from livery.domain.failures import CANCELLED, SHUTDOWN, VERIFIER_ERROR
from livery.domain.rollouts import (
    ATTEMPTS_MAX,
    Owed,
    Record,
    RecordKind,
    owed,
    rollout_id,
)
from livery.domain.tasks import EpisodeId, TaskId

TASKS = (TaskId("set", "one"), TaskId("set", "two"))
TASK = TASKS[0]
NAME = rollout_id(TASK, 0)
PARTS = st.text(st.characters(), min_size=1, max_size=12) | st.text("a/-.", min_size=1)
TASK_IDS = st.builds(TaskId, PARTS, PARTS)


def record(
    attempt: int, kind: RecordKind = RecordKind.BROKEN, *, terminal: bool = False
) -> Record:
    return Record(episode=EpisodeId(NAME, attempt), kind=kind, terminal=terminal)


def next_attempts(*records: Record, retry_masked: bool = False) -> list[int]:
    return [
        each.episode.attempt
        for each in owed([TASK], 1, records, retry_masked=retry_masked)
    ]


@given(task=TASK_IDS, repeat=st.integers(0, 99))
@example(task=TaskId("t" * 300, "x" * 300), repeat=0)
@example(task=TaskId("-", "-"), repeat=1)
@example(task=TaskId("set", "x-a2"), repeat=2)
def test_a_rollout_id_is_legal(task: TaskId, repeat: int) -> None:
    assert EpisodeId(rollout_id(task, repeat)).attempt == 0


@given(one=TASK_IDS, other=TASK_IDS, repeats=st.tuples(*[st.integers(0, 3)] * 2))
@example(one=TaskId("a/b", "c"), other=TaskId("a", "b/c"), repeats=(0, 0))
@example(one=TaskId("s", "x" * 200 + "1"), other=TaskId("s", "x" * 200), repeats=(0, 0))
def test_two_rollouts_never_share_an_id(
    one: TaskId, other: TaskId, repeats: tuple[int, int]
) -> None:
    same = (one, repeats[0]) == (other, repeats[1])

    assert (rollout_id(one, repeats[0]) == rollout_id(other, repeats[1])) is same


def test_a_fresh_run_owes_every_repeat_of_every_task_in_order() -> None:
    found = owed(TASKS, 2, [])

    assert [each.task for each in found] == [*TASKS, *TASKS]
    assert len({each.episode for each in found}) == 4


@pytest.mark.parametrize("kind", [RecordKind.PASSED, RecordKind.FAILED])
@pytest.mark.parametrize("later", [[], [record(1)], [record(1, RecordKind.MASKED)]])
def test_what_was_graded_is_never_run_again(
    kind: RecordKind, later: list[Record]
) -> None:
    assert next_attempts(record(0, kind), *later, retry_masked=True) == []


def test_what_can_be_tried_again_gets_a_new_attempt_up_to_a_bound() -> None:
    tried = [record(attempt) for attempt in range(ATTEMPTS_MAX)]

    assert next_attempts(*tried[:1]) == [1]
    assert next_attempts(*tried[:2]) == [2]
    assert next_attempts(*tried) == []


def test_what_is_terminal_is_not_tried_again() -> None:
    assert next_attempts(record(0, terminal=True)) == []


def test_masked_ones_are_tried_again_only_when_asked_for() -> None:
    masked = record(0, RecordKind.MASKED, terminal=True)

    assert next_attempts(masked) == []
    assert next_attempts(masked, retry_masked=True) == [1]


@pytest.mark.parametrize("kind", [CANCELLED, SHUTDOWN])
def test_attempts_that_were_cancelled_from_outside_do_not_count(kind: str) -> None:
    cancelled = [
        attrs.evolve(record(attempt), failure_kind=kind) for attempt in range(9)
    ]
    broken = attrs.evolve(record(9), failure_kind=VERIFIER_ERROR)

    assert next_attempts(*cancelled) == [9]
    assert next_attempts(*cancelled, broken) == [10]


@given(order=st.permutations(range(ATTEMPTS_MAX - 1)))
def test_the_order_of_records_does_not_count(order: list[int]) -> None:
    assert next_attempts(*(record(attempt) for attempt in order)) == [len(order)]


class Rollouts(RuleBasedStateMachine):
    """A run that is stopped and resumed while attempts end in every way."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.running: list[Owed] = []

    @rule(retry_masked=st.booleans())
    def the_run_is_started_again(self, retry_masked: bool) -> None:
        plan = owed(TASKS, 2, self.records, retry_masked=retry_masked)
        finished = {each.episode for each in self.records}

        assert not finished & {each.episode for each in plan}
        assert len({each.episode.rollout_id for each in plan}) == len(plan)
        # What began and has no record is asked for again by its own name.
        plain = owed(TASKS, 2, self.records)
        unfinished = {each.episode for each in self.running}
        for each in plain:
            same = {e for e in unfinished if e.rollout_id == each.episode.rollout_id}
            assert same <= {each.episode}
        self.running = list(plan)

    @rule(
        kind=st.sampled_from(RecordKind),
        terminal=st.booleans(),
        failure=st.sampled_from([None, CANCELLED, VERIFIER_ERROR]),
    )
    @precondition(lambda self: self.running)
    def an_attempt_ends(
        self, kind: RecordKind, terminal: bool, failure: str | None
    ) -> None:
        ended = self.running.pop()
        self.records.append(
            Record(
                episode=ended.episode,
                kind=kind,
                terminal=terminal,
                failure_kind=failure,  # type: ignore[arg-type]
            )
        )

    @invariant()
    def one_measured_result_a_rollout_and_no_attempt_twice(self) -> None:
        episodes = [each.episode for each in self.records]
        assert len(set(episodes)) == len(episodes)
        measured = [
            each.episode.rollout_id
            for each in self.records
            if each.kind in (RecordKind.PASSED, RecordKind.FAILED)
        ]
        assert len(set(measured)) == len(measured)

    @invariant()
    def attempts_that_count_are_bounded(self) -> None:
        for name in {each.episode.rollout_id for each in self.records}:
            counted = [
                each
                for each in self.records
                if each.episode.rollout_id == name and each.failure_kind != CANCELLED
            ]
            assert len(counted) <= ATTEMPTS_MAX


TestRollouts = Rollouts.TestCase
