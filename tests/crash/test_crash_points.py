# SPDX-License-Identifier: Apache-2.0
"""An episode on Docker, struck at each point around each effect, has the same end.

The whole matrix is long; each day has its part in the peers' tests.
"""

from pathlib import Path

import pytest

from .courses import FATES, UNDISTURBED, Case, cases, check, differences, listed, todays
from .forks import Forks
from .one_episode import OneEpisode

pytestmark = pytest.mark.peer("docker")

A_DAY = 6
"""How many cases the peers' tests have in a day."""


@pytest.fixture
def one(tmp_path: Path, test_image: str, forks: Forks) -> OneEpisode:
    episode = OneEpisode(folder=tmp_path, image=test_image, forks=forks)
    episode.prepare()
    return episode


def test_the_undisturbed_episode_passes_the_points_that_are_listed(
    one: OneEpisode,
) -> None:
    ended = one.begin()

    assert ended.status == 0, ended.said
    assert one.end() == UNDISTURBED
    renewed = "python -m tests.crash --write renews the list"
    assert differences(one.notes) == (set(), set()), renewed


@pytest.mark.parametrize("share", range(A_DAY))
def test_todays_part(one: OneEpisode, share: int) -> None:
    case = todays(cases(), A_DAY)[share]
    print(f'python -m tests.crash {case.fate} "{case.point}"')

    check(one, case)


@pytest.mark.long
@pytest.mark.parametrize("point", listed())
@pytest.mark.parametrize("fate", FATES)
def test_each_fate_at_each_point(one: OneEpisode, fate: str, point: str) -> None:
    check(one, Case(fate, point))
