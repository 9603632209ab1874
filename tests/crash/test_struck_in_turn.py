# SPDX-License-Identifier: Apache-2.0
"""One episode that is killed at each point in turn, also at those of its recoveries.

Each process goes on until it comes to a point at which none was killed before. What is
only passed in going on is struck as well, which a single kill does not reach.
"""

from pathlib import Path

import pytest

from .courses import UNDISTURBED, effect_of, listed
from .doomed_livery import EACH
from .forks import Forks
from .one_episode import OneEpisode

pytestmark = [pytest.mark.peer("docker"), pytest.mark.long]

LIVES_MAX = 1000
SPARED = [
    point
    for point in listed()
    if listed().index("after Journal.append ActivationStarted")
    <= listed().index(point)
    <= listed().index("before Sandbox.exec supervisor launch")
]
"""Between the intent and the launch a kill costs an attempt, of which there are few."""


def test_an_episode_that_is_killed_at_each_point_in_turn_has_the_same_end(
    tmp_path: Path, test_image: str, forks: Forks
) -> None:
    one = OneEpisode(folder=tmp_path, image=test_image, forks=forks)
    one.prepare()
    (tmp_path / "notes").write_text("".join(f"{point}\n" for point in SPARED))
    lives = 1
    while (ended := one.again({EACH: ["KILL"]})).status < 0:
        lives += 1
        assert lives < LIVES_MAX, one.notes[-20:]
    print(f"{lives} lives")

    assert ended.status == 0, ended.said
    assert one.end() == UNDISTURBED, ended.said
    assert len(one.starts) == 1
    effects = {effect_of(point) for point in listed()}
    assert effects - {effect_of(point) for point in one.notes} == set()
    assert lives >= len(listed()) // 2
