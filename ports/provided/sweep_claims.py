# SPDX-License-Identifier: Apache-2.0
"""Sweep claims: the reaper beside a server, again and again, within bounds.

A sweep lets go of what nobody can go on with any more at once. What a dead process
still held is left for a grace, in which its callers may come back to another process.
What is in no journal is told, and ended only when a person asks for it. A sweep that
fails is told, and the next one tries again. Any number of sweeps may be under way on
one journal: the first append stands, and ending a sandbox twice ends it once.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Final

import anyio
import attrs

from ...domain.claims import ClaimId, ClaimPhase
from ...domain.refusals import Refusal
from ..required.clock import Clock
from ..required.faults import Fault
from .reap_claims import Cause, Finding, ReapClaims, Reaped, ReapReport

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 120.0
SWEEP_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 900.0
LIST_SHARE: Final = 0.25
"""What of a sweep's time listening to one provider may take."""
RELEASE_SHARE: Final = 0.5
"""What of a sweep's time one release may take."""


class SweepEnd(StrEnum):
    """How a sweep ended."""

    DONE = "done"
    FAILED = "failed"
    CUT_OFF = "cut off"


Told = Callable[[SweepEnd, ReapReport | None], None]
Opened = Callable[[], AbstractAsyncContextManager[ReapClaims]]


@attrs.define(kw_only=True, eq=False)
class SweepClaims:
    """The use case. All times are in seconds."""

    opened: Opened
    """Opens the reaper for one sweep: a provider that was away may be back."""
    clock: Clock
    interval_seconds: float = INTERVAL_SECONDS
    """How long after a sweep, or after the start, the next one begins."""
    sweep_seconds: float = SWEEP_SECONDS
    grace_seconds: float = GRACE_SECONDS
    told: Told = lambda end, report: None
    _left: dict[ClaimId, float] = attrs.field(factory=dict[ClaimId, float], init=False)
    """Since when each claim was seen without anybody who uses it."""
    _unknown: frozenset[ClaimId] = attrs.field(factory=frozenset[ClaimId], init=False)
    """Sandboxes in no journal that the log has told of."""

    async def __call__(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self.clock.sleep(self.interval_seconds)
            await self.sweep()

    async def sweep(self) -> SweepEnd:
        """Sweep once; whatever goes wrong is told, and is the next one's."""
        report: ReapReport | None = None
        end = SweepEnd.FAILED
        try:
            with anyio.move_on_after(self.sweep_seconds) as scope:
                report = await self._reaped()
                end = SweepEnd.DONE
            if scope.cancelled_caught:
                end = SweepEnd.CUT_OFF
                log.warning(
                    "A sweep of the claims took longer than %g s; the next goes on",
                    self.sweep_seconds,
                )
        except (Fault, Refusal) as error:
            log.warning("A sweep of the claims failed; the next tries again: %s", error)
        except Exception:
            # It must end no server.
            log.exception("A sweep of the claims hit a mistake of ours")
        if report is not None:
            self._tell(report)
        self.told(end, report)
        return end

    async def _reaped(self) -> ReapReport:
        now = self.clock.monotonic()
        left: dict[ClaimId, float] = {}

        def spare(seen: Reaped) -> bool:
            if seen.is_unknown:
                return True
            if seen.phase == ClaimPhase.RELEASING or seen.cause is Cause.LATE:
                return False  # Nobody can go on with it.
            since = left.setdefault(seen.claim, self._left.get(seen.claim, now))
            self._left[seen.claim] = since  # Also when the sweep is cut off.
            return now - since < self.grace_seconds

        async with self.opened() as reap:
            reap = attrs.evolve(
                reap,
                list_seconds=self.sweep_seconds * LIST_SHARE,
                release_seconds=self.sweep_seconds * RELEASE_SHARE,
            )
            report = await reap(spare=spare)
        self._left = left
        return report

    def _tell(self, report: ReapReport) -> None:
        for name, reason in report.unlisted:
            log.warning("Provider %s was not swept: %s", name, reason)
        unknown = [one for one in report.reaped if one.is_unknown]
        for one in unknown:
            if one.claim not in self._unknown:
                log.warning(
                    "Provider %s has a sandbox of ours that is in no journal, claim %s:"
                    " `livery claims reap` ends it",
                    one.provider,
                    one.claim,
                )
        self._unknown = frozenset(one.claim for one in unknown)
        for one in report.reaped:
            if one.finding is Finding.RELEASED:
                log.info("Claim %s was reaped: %s", one.claim, one.cause)
