# SPDX-License-Identifier: Apache-2.0
"""Long-lived processes collect rarely, and leave the collector as they found it."""

import gc

from livery.entrypoints.collector import THRESHOLDS, collected_rarely

from ..simulation.growth import played

EPISODES = 100


def test_the_collector_is_as_before_after_the_block() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()

    with collected_rarely():
        assert gc.get_threshold() == THRESHOLDS
        assert gc.get_freeze_count() > before[1]

    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_an_episode_leaves_nothing_to_the_collector() -> None:
    played(1, 0)  # What is loaded or made once is none of an episode's.
    gc.collect()
    gc.disable()
    try:
        _, outside = played(EPISODES, 1)  # It is one cycle itself, and kept.
        found = gc.collect()
    finally:
        gc.enable()

    assert len(outside.results.kept) == EPISODES
    assert found < EPISODES, f"{found} objects of {EPISODES} episodes"
