# SPDX-License-Identifier: Apache-2.0
"""One episode that is killed at each point in turn, also at those of its recoveries.

Each process goes on until it comes to a point at which none was killed before. What is
only passed in going on is struck as well, which a single kill does not reach.
"""

from pathlib import Path

import attrs
import pytest

from .courses import UNDISTURBED, effect_of, listed
from .doomed_livery import EACH
from .forks import Forks
from .one_episode import Ended, OneEpisode

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
    ended, lives = struck(one)
    masked = [row for row in one.rows() if row["result"]["mask_sample"]]
    if masked:
        # Killed more often in grading than a session has claims for it: not scored, and
        # asked for once more it is measured.
        ended, more = struck(one, "--retry-masked")
        lives += more
    print(f"{lives} lives")

    end = one.end()
    told = f"{lives} lives: {ended.said}"
    assert ended.status == 0, told
    assert len(masked) <= 1, told
    assert end.graded[-1:] == UNDISTURBED.graded, told
    assert attrs.evolve(end, graded=UNDISTURBED.graded) == UNDISTURBED, told
    assert len(one.starts) == 1 + len(masked), told
    effects = {effect_of(point) for point in listed()}
    assert effects - {effect_of(point) for point in one.notes} == set()
    assert lives >= len(listed()) // 2


def struck(one: OneEpisode, *more: str) -> tuple[Ended, int]:
    """Kill it at each point that comes, and return its last life and their number."""
    for lives in range(1, LIVES_MAX):
        if (ended := one.again({EACH: ["KILL"]}, *more)).status >= 0:
            return ended, lives
    raise AssertionError(f"it never ends: {one.notes[-20:]}")
