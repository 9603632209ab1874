# SPDX-License-Identifier: Apache-2.0
"""Await elsewhere: who waits at one worker for what another runs is known to that one.

Callers come back to any worker. The one that runs their activation may have nobody left
who waits at it, and must not take that for nobody at all. So whoever waits for another
worker says so on the journal, in a stream that is forgotten when the wait is over, and
that counts for nothing when its worker has died.
"""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

import anyio
import attrs

from ...domain.admissions import Ticket
from ...domain.agent_sessions import AgentSessionId
from ...domain.places import DECIDER, PlaceTaken, TakePlace
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.holders import Holders
from ..required.journal import Journal, Stream, StreamMoved
from .carry_out import carry_out, read_state

log = logging.getLogger(__name__)

CATEGORY: Final = "waits"


@attrs.frozen(kw_only=True)
class AwaitElsewhere:
    """Who waits for a session at which worker."""

    journal: Journal
    clock: Clock
    holders: Holders
    numbers: Iterator[int] = attrs.field(factory=count)
    """Of the waits of this process, of which several may be for one session."""

    @asynccontextmanager
    async def waiting(self, session: AgentSessionId) -> AsyncGenerator[None]:
        """Have it known, inside the block, that somebody waits here.

        Raises:
            Fault: It could not be said.
        """
        stream = _stream(session, self.holders.own, next(self.numbers))
        take = TakePlace(
            ticket=Ticket(session), holder=self.holders.own, at=self.clock.now()
        )
        # Cut off in between, it would be noted for as long as this worker lives.
        version = 0
        with anyio.CancelScope(shield=True):
            version = (await carry_out(self.journal, stream, DECIDER, take)).version
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await self.journal.forget(stream, expected_version=version)
                except StreamMoved:
                    log.debug("Others took this worker for dead, and forgot its wait")
                except Fault as fault:
                    log.warning("A wait is noted beyond its end: %s", fault)

    async def is_awaited(self, session: AgentSessionId) -> bool:
        """Tell whether somebody waits for the session at a worker that lives.

        Raises:
            Fault: Nobody can tell.
        """
        for key in await self.journal.open_streams(CATEGORY):
            named, holder, _ = key.rsplit("/", 2)
            if named != session or holder == self.holders.own:
                continue
            stream = Stream[PlaceTaken](CATEGORY, key)
            taken = (await read_state(self.journal, stream, DECIDER)).state.taken
            if taken is not None and await self.holders.alive(taken.holder):
                return True
        return False

    async def forget_dead(self) -> None:
        """Forget the waits that workers left when they died.

        Raises:
            Fault: Nobody can tell which.
        """
        for key in await self.journal.open_streams(CATEGORY):
            stream = Stream[PlaceTaken](CATEGORY, key)
            standing = await read_state(self.journal, stream, DECIDER)
            taken = standing.state.taken
            if taken is None or await self.holders.alive(taken.holder):
                continue
            try:
                await self.journal.forget(stream, expected_version=standing.version)
            except StreamMoved:
                continue  # Another process has forgotten it.


def _stream(session: AgentSessionId, holder: str, number: int) -> Stream[PlaceTaken]:
    return Stream(CATEGORY, f"{session}/{holder}/{number}")
