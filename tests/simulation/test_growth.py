# SPDX-License-Identifier: Apache-2.0
"""What an episode does is the same however many are in flight.

Calls are counted and no time is measured: how often a function of Livery is called for
an episode may not grow with the episodes that are in flight beside it.
"""

from .growth import calls_of_an_episode

FEW, MANY = 30, 240
TIMES_MAX = 1.5
"""Tasks differ, so that an average of few is not the average of many."""
CALLS_MIN = 1.0
"""What is called less often for an episode than this has no part in its cost."""


def test_no_function_is_called_more_often_with_many_in_flight() -> None:
    few, many = calls_of_an_episode(FEW), calls_of_an_episode(MANY)

    grown = {
        name: (round(few.get(name, 0.0), 1), round(calls, 1))
        for name, calls in many.items()
        if calls > CALLS_MIN and calls > TIMES_MAX * few.get(name, 0.0)
    }
    assert not grown
    assert sum(many.values()) > CALLS_MIN * 1000, "nothing was counted"
