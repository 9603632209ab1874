# SPDX-License-Identifier: Apache-2.0
"""Sleepers wake in the order in which they are due, and then in that in which they came."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.virtual_clock.sleepers import Sleepers

MOMENTS = st.floats(0, 5) | st.integers(0, 5).map(float)


@given(
    st.lists(st.tuples(st.just("add"), MOMENTS) | st.sampled_from([("wake",), ("go",)]))
)
def test_the_first_due_wakes_first_whoever_comes_or_goes(
    steps: list[tuple[str, float] | tuple[str]],
) -> None:
    loop = asyncio.new_event_loop()
    try:
        sleepers = Sleepers()
        asleep: list[tuple[float, int, asyncio.Future[None]]] = []
        for number, step in enumerate(steps):
            if len(step) == 2:
                woken = loop.create_future()
                sleepers.add(step[1], woken)
                asleep.append((step[1], number, woken))
                continue
            due = sleepers.next_due()
            assert due == (min(asleep)[0] if asleep else None)
            if due is not None and step[0] == "wake":
                sleepers.wake_first()
                assert min(asleep)[2].done()
                asleep.remove(min(asleep))
            elif due is not None:
                # One of them sleeps no more: any, here the one that is due last.
                gone = max(asleep)
                gone[2].cancel()
                asleep.remove(gone)
        while sleepers.next_due() is not None:
            sleepers.wake_first()
            assert min(asleep)[2].done()
            asleep.remove(min(asleep))
        assert asleep == []
    finally:
        loop.close()
