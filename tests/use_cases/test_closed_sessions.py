# SPDX-License-Identifier: Apache-2.0
"""Closed sessions are forgotten when they are old, and left alone until then."""

import attrs
import pytest

from livery.domain.deciders import Instant
from livery.ports.provided.closed_sessions import ClosedSessions
from livery.ports.required.journal import JournalUnusable

from .outside import HandClock

pytestmark = pytest.mark.anyio

KEEP_SECONDS = 300.0


@attrs.define
class Kept:
    """What is known elsewhere of closed sessions, and how often it was looked up."""

    clock: HandClock = attrs.field(factory=HandClock)
    closed: dict[str, Instant] = attrs.field(factory=dict[str, Instant])
    looked_up: list[str] = attrs.field(factory=list[str])
    away: bool = False
    damaged: str = ""
    kept_max: int = 1000

    @property
    def sessions(self) -> ClosedSessions[str]:
        return ClosedSessions(
            clock=self.clock,
            keep_seconds=KEEP_SECONDS,
            kept_max=self.kept_max,
            closed_at=self.closed_at,
            erase=self.erase,
        )

    async def closed_at(self, session: str) -> Instant | None:
        self.looked_up.append(session)
        if session == self.damaged:
            raise JournalUnusable(where="here", reason="damaged", advice="Restore it.")
        return self.closed.get(session)

    async def erase(self, session: str) -> None:
        if self.away:
            raise JournalUnusable(where="here", reason="away", advice="Wait.")
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


async def test_what_could_not_be_forgotten_is_forgotten_by_a_later_sweep() -> None:
    it = Kept(away=True)
    sessions = it.sessions
    for name in ("s0", "s1"):
        it.closed[name] = it.clock.now()
        await sessions.note(name, it.clock.now())
    it.clock.time += KEEP_SECONDS

    for _ in range(3):
        with pytest.raises(JournalUnusable):
            await sessions.forget_old()
    it.away = False
    await sessions.forget_old()

    assert it.closed == {}
    assert sessions.names == ()


async def test_one_that_cannot_be_read_does_not_keep_the_others() -> None:
    it = Kept(damaged="s0")
    sessions = it.sessions
    for number in range(4):
        it.closed[f"s{number}"] = it.clock.now()
        await sessions.note(f"s{number}", it.clock.now())
    it.clock.time += KEEP_SECONDS

    for _ in range(2):
        with pytest.raises(JournalUnusable):
            await sessions.forget_old()

    assert sessions.names == ("s0",)
    assert list(it.closed) == ["s0"]


async def test_a_close_stands_when_another_session_cannot_be_forgotten() -> None:
    it = Kept(away=True, kept_max=1)
    sessions = it.sessions
    for name in ("s0", "s1", "s2"):
        it.closed[name] = it.clock.now()
        await sessions.note(name, it.clock.now())
    it.away = False
    it.closed["s3"] = it.clock.now()
    await sessions.note("s3", it.clock.now())

    assert len(it.closed) == 1
    assert sessions.names == tuple(it.closed)
