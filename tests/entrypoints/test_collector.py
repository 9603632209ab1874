# SPDX-License-Identifier: Apache-2.0
"""Long-lived processes collect rarely, and leave the collector as they found it."""

import gc
import mmap
import weakref
from pathlib import Path

import pytest

from livery.entrypoints import collector
from livery.entrypoints.collector import (
    GROWTH_BYTES_LEAST,
    YOUNG,
    YOUNG_MOST,
    YOUNG_SHARE_BYTES,
    collected_rarely,
)

from ..simulation.growth import played

EPISODES = 100
MIB = 2**20


class Ring:
    """Nothing but the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def pass_young() -> None:
    """Make and drop enough objects for a young pass, and for one that follows it."""
    for _ in range(2):
        kept: list[list[int]] = [[] for _ in range(2 * gc.get_threshold()[0])]
        del kept


def test_what_is_held_grows_with_what_is_made() -> None:
    before = collector.held_bytes()
    # Pages of its own: what is free in the heap is held already.
    with mmap.mmap(-1, 64 * MIB) as block:
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1

        assert before > MIB
        assert collector.held_bytes() > before + len(block) // 2


def test_where_what_is_held_cannot_be_read_it_is_what_was_held_at_most(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = collector.held_bytes()
    monkeypatch.setattr(collector, "_STATM", tmp_path / "none")

    assert collector.held_bytes() > held // 2


def test_what_is_old_is_looked_through_when_the_process_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = [GROWTH_BYTES_LEAST]
    monkeypatch.setattr(collector, "held_bytes", lambda: held[0])
    with collected_rarely():
        ring = Ring()
        gone = weakref.ref(ring)
        pass_young()  # The ring is in use, and is old from here on.
        del ring
        for _ in range(10):
            pass_young()
        is_left = gone() is not None
        held[0] += GROWTH_BYTES_LEAST + 1
        pass_young()
        pass_young()
        is_freed = gone() is None
        again = Ring()
        left_again = weakref.ref(again)
        pass_young()
        del again
        for _ in range(10):
            pass_young()

        # Once more it is only looked through when there is yet more.
        assert left_again() is not None

    assert (is_left, is_freed) == (True, True)


def test_a_young_pass_waits_for_more_in_a_larger_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[int] = []
    larger = 2 * YOUNG * YOUNG_SHARE_BYTES
    for held in (0, larger, 100 * larger):
        monkeypatch.setattr(collector, "held_bytes", lambda held=held: held)
        with collected_rarely():
            pass_young()
            waits.append(gc.get_threshold()[0])

    assert waits == [YOUNG, 2 * YOUNG, YOUNG_MOST]


def test_the_collector_is_as_before_after_the_block() -> None:
    before = gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)

    with collected_rarely():
        assert gc.get_threshold()[0] == YOUNG
        assert len(gc.callbacks) == before[2] + 1
        assert gc.get_freeze_count() > before[1]

    assert (gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)) == before


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
