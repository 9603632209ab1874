# SPDX-License-Identifier: Apache-2.0
"""Small worlds are walked breadth first: no rule is broken, no end out of reach.

`make explore` walks them further.
"""

from collections.abc import Iterator

import attrs
import pytest

from .walk import Model, walk
from .whole import WORLDS
from .worlds import World

STATES_MAX = 8_000
STATES_TOLD = 100


@pytest.mark.parametrize("model", WORLDS, ids=lambda model: model.name)
def test_no_rule_is_broken_and_every_end_is_reached(model: Model) -> None:
    seen = walk(model, states_max=STATES_MAX)

    assert seen.states > STATES_MAX
    assert not seen.broken, seen
    assert not seen.dead_ends, seen


def test_a_broken_rule_is_told_with_the_way_to_it() -> None:
    def broken(world: World) -> Iterator[str]:
        if any(world.callers):
            yield "somebody was answered"

    seen = walk(attrs.evolve(WORLDS[0], broken=broken), states_max=STATES_TOLD)

    assert "somebody was answered\n    worker 0: caller 0 asks run 1" in str(seen)
    assert not seen.whole


def test_what_cannot_end_is_told() -> None:
    calm = WORLDS[0].beginning._replace(crashes=0, faults=0)

    def at_rest(world: World) -> bool:
        return False

    never = attrs.evolve(WORLDS[0], beginning=calm, at_rest=at_rest)

    seen = walk(never, states_max=STATES_MAX)

    assert seen.whole
    assert seen.dead_ends[0].startswith("dead end: World(")
