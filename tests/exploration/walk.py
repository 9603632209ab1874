# SPDX-License-Identifier: Apache-2.0
"""Walk a small world breadth first: every state once, every move of it.

States are merged by value. In each the rules are looked at, and afterwards it is
worked out backwards from which states the end can be reached when nothing goes wrong
any more: where it cannot, that is a dead end.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from .worlds import Move, World

PARENTS_OF_NONE: Final = -1
TOLD_MAX: Final = 5
"""How many broken rules and dead ends are told, each with its way there."""


@attrs.frozen(kw_only=True)
class Model:
    """One decider in its small world."""

    name: str
    beginning: World
    moves: Callable[[World], Iterator[Move]]
    broken: Callable[[World], Iterable[str]]
    """What is against the rules in a state."""
    at_rest: Callable[[World], bool]
    """Whether all is released, and nobody waits."""


@attrs.frozen(kw_only=True)
class Walk:
    """What was seen of a world."""

    name: str
    states: int
    moves: int
    depth: int
    seconds: float
    whole: bool
    """Whether every state was seen that there is."""
    broken: tuple[str, ...]
    dead_ends: tuple[str, ...]

    def __str__(self) -> str:
        space = "the whole space" if self.whole else "cut off"
        words = (
            f"{self.name:20} {self.states:9,} states {self.moves:10,} moves"
            f"  depth {self.depth:3}  {self.seconds:6.1f} s  {space}"
        )
        return "\n".join((words, *self.broken, *self.dead_ends))


def walk(model: Model, *, states_max: int) -> Walk:
    """See every state of the world, up to `states_max`."""
    begun = time.monotonic()
    numbers: dict[World, int] = {model.beginning: 0}
    worlds = [model.beginning]
    parents: list[tuple[int, str]] = [(PARENTS_OF_NONE, "")]
    depths: list[int] = [0]
    arrivals: list[list[int]] = [[]]
    """From where each state is reached calmly."""
    broken: list[str] = []
    resting: list[int] = []
    unseen: deque[int] = deque((0,))
    moved = 0
    while unseen and len(worlds) <= states_max:
        number = unseen.popleft()
        world = worlds[number]
        for what in model.broken(world):
            if len(broken) < TOLD_MAX:
                broken.append(f"{what}\n{_way(parents, number)}")
        if model.at_rest(world):
            resting.append(number)
        for what, calm, after in model.moves(world):
            moved += 1
            following = numbers.get(after)
            if following is None:
                following = numbers[after] = len(worlds)
                worlds.append(after)
                parents.append((number, what))
                depths.append(depths[number] + 1)
                arrivals.append([])
                unseen.append(following)
            if calm:
                arrivals[following].append(number)
    # What was not looked at any more counts as good: its own moves are unknown.
    ending = _reaching(arrivals, [*resting, *unseen])
    dead = [number for number in range(len(worlds)) if number not in ending]
    return Walk(
        name=model.name,
        states=len(worlds),
        moves=moved,
        depth=depths[-1],
        seconds=time.monotonic() - begun,
        whole=not unseen,
        broken=tuple(broken),
        dead_ends=tuple(
            f"dead end: {worlds[number]}\n{_way(parents, number)}"
            for number in dead[:TOLD_MAX]
        ),
    )


def _reaching(arrivals: list[list[int]], ends: list[int]) -> set[int]:
    """Return from where one of the ends is reached."""
    seen = set(ends)
    waiting = deque(ends)
    while waiting:
        for before in arrivals[waiting.popleft()]:
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return seen


def _way(parents: list[tuple[int, str]], number: int) -> str:
    """Return the shortest way to a state, a line for each move."""
    lines: list[str] = []
    while number != 0:
        number, what = parents[number]
        lines.append(f"    {what}")
    return "\n".join(reversed(lines))
