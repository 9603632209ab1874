# SPDX-License-Identifier: Apache-2.0
"""Shrink a broken story: leave out every mishap without which it breaks as well.

Each question has chances of its own, so what is left out changes little else.
"""

from collections.abc import Callable
from typing import Final

from .simulation import Story, simulate

PLAYS_MAX: Final = 400
"""How often a story is played to shrink it."""

Play = Callable[[int, frozenset[str] | None], Story]


def shrunk(seed: int, simulate: Play = simulate) -> Story:
    """Return the story of a broken seed with the fewest mishaps that were found."""
    story = simulate(seed, None)
    assert story.faults, "there is nothing to shrink"
    plays = begin = 0
    size = len(story.mishaps)
    while size and plays < PLAYS_MAX:
        names = [name for _, name in story.mishaps]
        if begin >= len(names):
            begin, size = 0, size // 2
            continue
        plays += 1
        kept = frozenset((*names[:begin], *names[begin + size :]))
        other = simulate(seed, kept)
        if other.faults and len(other.mishaps) < len(names):
            story = other
        else:
            begin += size
    return story
