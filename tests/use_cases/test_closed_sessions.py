# SPDX-License-Identifier: Apache-2.0
"""Closed sessions are forgotten when they are old, and left alone until then."""

import attrs
import pytest

from livery.domain.deciders import Instant
from livery.ports.provided.closed_sessions import ClosedSessions

from .outside import HandClock

pytestmark = pytest.mark.anyio

KEEP_SECONDS = 300.0


@attrs.define
class Kept:
    """What is known elsewhere of closed sessions, and how often it was looked up."""

    clock: HandClock = attrs.field(factory=HandClock)
    closed: dict[str, Instant] = attrs.field(factory=dict[str, Instant])
    looked_up: list[str] = attrs.field(factory=list[str])

    @property
    def sessions(self) -> ClosedSessions[str]:
        return ClosedSessions(
            clock=self.clock,
            keep_seconds=KEEP_SECONDS,
            kept_max=1000,
            closed_at=self.closed_at,
            erase=self.erase,
        )

    async def closed_at(self, session: str) -> Instant | None:
        self.looked_up.append(session)
        return self.closed.get(session)

    async def erase(self, session: str) -> None:
        del self.closed[session]


async def test_a_sweep_looks_up_the_old_ones_alone() -> None:
    it = Kept()
    sessions = it.sessions
    for number in range(100):
        it.clock.time += 1.0
        it.closed[f"s{number}"] = it.clock.now()
        await sessions.note(f"s{number}", it.clock.now())

    it.clock.time += KEEP_SECONDS - 98.0
    await sessions.forget_old()

    assert it.looked_up == ["s0", "s1"]
    assert sessions.names == tuple(f"s{number}" for number in range(2, 100))
