# SPDX-License-Identifier: Apache-2.0
"""The whole system in simulated time, from a seed: no rule is ever broken.

A seed that fails is played again with
`python -m tests.simulation SEED`, which prints its story.
"""

import itertools
import secrets
from pathlib import Path

import pytest

from .growth import seconds_of_an_episode
from .kept_seeds import keep_seed, kept_seeds
from .playing import play, play_on_all_cores
from .shrinking import shrunk
from .simulation import Story, simulate

SEEDS_FAST = 300
SEEDS_FRESH = 300
SEEDS_LONG = 5_000
BATCH = 50
SHRUNK_MAX = 5
FRESH_MIN = 10**6
FRESH_MAX = 10**12


def play_all(first: int, count: int) -> None:
    broken = play(range(first, first + count)).broken

    told = [f"seed {seed}: {fault}" for seed, fault in broken]
    assert not told, "python -m tests.simulation SEED tells the story of\n" + "\n".join(
        told
    )


@pytest.mark.parametrize("first", range(0, SEEDS_FAST, BATCH))
def test_no_rule_is_broken_whatever_goes_wrong(first: int) -> None:
    play_all(first, BATCH)


@pytest.mark.parametrize("seed", kept_seeds())
def test_what_broke_a_rule_once_does_not_again(seed: int) -> None:
    play_all(seed, 1)


@pytest.mark.parametrize("part", range(SEEDS_FRESH // BATCH))
def test_no_rule_is_broken_in_stories_nobody_has_played(part: int) -> None:
    play_all(FRESH_MIN + secrets.randbelow(FRESH_MAX), BATCH)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SEEDS_FAST, SEEDS_LONG, BATCH))
def test_no_rule_is_broken_in_thousands_of_stories(first: int) -> None:
    play_all(first, BATCH)


SEEDS_ONCE_TOLD_IN_TWO_WAYS = (36, 99)
"""Who was cancelled with others was so in the order of addresses."""


@pytest.mark.parametrize("seed", [*range(0, 36, 4), *SEEDS_ONCE_TOLD_IN_TWO_WAYS])
def test_a_seed_tells_the_same_story_again(seed: int) -> None:
    first, *again = [simulate(seed).told for _ in range(3)]
    assert again == [first, first]


def test_a_broken_story_is_shrunk_to_what_breaks_it() -> None:
    rough = next(seed for seed in itertools.count() if len(simulate(seed).mishaps) > 20)

    def breakable(seed: int, only: frozenset[str] | None) -> Story:
        story = simulate(seed, only)
        if any(kind == "reply lost" for kind, _ in story.mishaps):
            story.outside.broken(0, "a reply was lost")
        return story

    story = shrunk(rough, breakable)

    kinds = [kind for kind, _ in story.mishaps]
    assert kinds.count("reply lost") == 1
    assert len(kinds) <= SHRUNK_MAX < len(simulate(rough).mishaps)
    assert story.told.endswith("rule 0: a reply was lost")


def test_a_broken_seed_is_kept_once(tmp_path: Path) -> None:
    file = tmp_path / "kept.txt"
    file.write_text("# Kept.\n")

    for _ in range(2):
        keep_seed(7, "it broke", file)

    assert file.read_text() == "# Kept.\n7  # it broke\n"
    assert kept_seeds(file) == (7,)


def test_seeds_are_counted_whichever_core_plays_them() -> None:
    alone = play(range(20))
    together = play_on_all_cores(iter(range(20)), cores=2)

    assert (together.seeds, together.episodes) == (20, alone.episodes)
    assert together.mishaps == alone.mishaps
    assert f"{together.episodes:,} episodes" in str(together)


def test_many_episodes_in_flight_all_come_to_their_end() -> None:
    assert seconds_of_an_episode(30) > 0
