# SPDX-License-Identifier: Apache-2.0
"""Places: who has one keeps it, and nobody else gets it."""

import attrs
import pytest

from livery.domain.admissions import Ticket
from livery.domain.claims import Holder
from livery.domain.deciders import Instant
from livery.domain.places import DECIDER, PlaceIsTaken, TakePlace, decide

from .deciding import after

TAKE = TakePlace(ticket=Ticket("t"), holder=Holder("one"), at=Instant(1.0))


def test_a_place_is_taken_once_however_often_it_is_asked_for() -> None:
    taken = after(DECIDER, TAKE)

    assert taken.taken is not None
    assert taken.taken.ticket == "t"
    assert decide(taken, attrs.evolve(TAKE, at=Instant(2.0))) == ()


def test_what_a_dead_holder_left_is_taken_over_from_it_alone() -> None:
    left = after(DECIDER, TAKE).taken
    over = attrs.evolve(TAKE, holder=Holder("two"), taken_from=left)
    late = attrs.evolve(over, holder=Holder("three"))

    taken = after(DECIDER, TAKE, over)

    assert taken.taken is not None
    assert taken.taken.holder == "two"
    with pytest.raises(PlaceIsTaken):
        decide(taken, late)


@pytest.mark.parametrize(
    "other",
    [
        attrs.evolve(TAKE, ticket=Ticket("u")),
        attrs.evolve(TAKE, holder=Holder("two")),
    ],
)
def test_nobody_else_gets_it(other: TakePlace) -> None:
    with pytest.raises(PlaceIsTaken):
        decide(after(DECIDER, TAKE), other)
