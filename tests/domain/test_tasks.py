# SPDX-License-Identifier: Apache-2.0
"""Tasks and episodes: names that the protocol allows, and one key for each."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.domain.tasks import BadName, EpisodeId, TaskId

ROLLOUT_IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True).filter(
    lambda text: not re.search(r"-a[1-9][0-9]*$", text)
)
EPISODES = st.builds(EpisodeId, ROLLOUT_IDS, st.integers(0, 12))


@pytest.mark.parametrize(
    "rollout_id", ["", "-x", ".x", "a b", "a/b", "ä", "x\n", "x-a1", "x-a20", "-a1"]
)
def test_a_rollout_id_outside_the_rule_is_refused(rollout_id: str) -> None:
    with pytest.raises(BadName) as caught:
        EpisodeId(rollout_id)

    assert caught.value.field == "rollout_id"


@pytest.mark.parametrize("rollout_id", ["x", "9", "x-a0", "x-a1b", "a1", "x-a01"])
def test_a_rollout_id_within_the_rule_is_taken(rollout_id: str) -> None:
    assert EpisodeId(rollout_id).key == rollout_id


def test_an_attempt_is_not_negative() -> None:
    with pytest.raises(BadName):
        EpisodeId("x", -1)


@given(one=EPISODES, other=EPISODES)
def test_two_episodes_never_share_a_key(one: EpisodeId, other: EpisodeId) -> None:
    assert (one.key == other.key) is (one == other)


@given(rollout_id=ROLLOUT_IDS, attempts=st.lists(st.integers(0, 30), unique=True))
def test_every_attempt_has_a_key_of_its_own(
    rollout_id: str, attempts: list[int]
) -> None:
    keys = {EpisodeId(rollout_id, attempt).key for attempt in attempts}

    assert len(keys) == len(attempts)


@pytest.mark.parametrize(("taskset", "task_id"), [("", "x"), ("x", ""), ("", "")])
def test_a_task_has_both_parts_of_its_name(taskset: str, task_id: str) -> None:
    with pytest.raises(BadName):
        TaskId(taskset, task_id)
