# SPDX-License-Identifier: Apache-2.0
"""Closed sessions: the replies of so many are kept for a while, then all is forgotten.

And the sweeper, which looks for what is old as long as sessions are served.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import attrs

from ...domain.deciders import Instant
from ...domain.refusals import Refusal
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.journal import StreamMoved

log = logging.getLogger(__name__)

SWEEPS: Final = 4
"""How often within the shortest of its times the sweeper looks."""
SWEEP_SECONDS_MAX: Final = 30.0

S = TypeVar("S", bound=str)


@attrs.define(kw_only=True, eq=False)
class ClosedSessions(Generic[S]):
    """The closed sessions that this process knows of, oldest first."""

    clock: Clock
    keep_seconds: float
    kept_max: int
    closed_at: Callable[[S], Awaitable[Instant | None]]
    """When a session was closed, by the journal; None while it is not."""
    erase: Callable[[S], Awaitable[None]]
    """Forgets what the journal knows of a closed session; may raise `StreamMoved`."""
    _known: OrderedDict[S, Instant] = attrs.field(
        factory=OrderedDict[S, Instant], init=False
    )

    @property
    def names(self) -> tuple[S, ...]:
        """Which they are."""
        return tuple(self._known)

    async def note(self, session: S, at: Instant) -> None:
        """Know that a session was closed; the oldest goes when there are too many."""
        self._known.setdefault(session, at)
        try:
            while len(self._known) > self.kept_max:
                await self._forget(next(iter(self._known)))
        except Fault as fault:
            # This session is closed all the same, which is what its caller asked for.
            log.warning("What is too much was not forgotten: %s", fault)

    async def forget_if_old(self, session: S) -> bool:
        """Forget a session that was closed long enough ago: its id is free again.

        Return whether it was one.
        """
        at = await self.closed_at(session)
        if at is None:
            self._known.pop(session, None)
        elif at <= self.clock.now() - self.keep_seconds:
            await self._forget(session)
            return True
        return False

    async def forget_old(self) -> None:
        """Forget all that were closed long enough ago; the others are not looked up."""
        before = self.clock.now() - self.keep_seconds
        for session, at in tuple(self._known.items()):
            if at <= before and session in self._known:
                # One that cannot be read must not keep the others for ever.
                self._known.move_to_end(session)
                await self.forget_if_old(session)

    async def _forget(self, session: S) -> None:
        at = self._known.pop(session, None)
        try:
            await self.erase(session)
        except StreamMoved:
            log.info("Another process has forgotten session %s", session)
        except BaseException:
            # A later sweep tries again, and the others first.
            if at is not None:
                self._known.setdefault(session, at)
            raise


async def sweeping(
    clock: Clock, sweep: Callable[[], Awaitable[None]], *, shortest_seconds: float
) -> None:
    """Sweep often enough for the shortest of the times that count, until cancelled."""
    pause = min(shortest_seconds / SWEEPS, SWEEP_SECONDS_MAX)
    while True:
        try:
            await sweep()
        except (Fault, Refusal) as fault:
            log.warning("What is old was not swept: %s", fault)
        await clock.sleep(pause)
