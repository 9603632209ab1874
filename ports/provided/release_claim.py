# SPDX-License-Identifier: Apache-2.0
"""Release a claim: end its sandbox and see it gone.

A release that fails leaves the claim open, with its reason, for the reaper.
"""

import logging

import attrs

from ...domain.claims import (
    DECIDER,
    Claim,
    ClaimPhase,
    NoteReleased,
    NoteReleaseFailed,
    StartRelease,
)
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.journal import Journal, claim_stream
from ..required.sandbox_provider import ClaimLabel, SandboxProvider
from .carry_out import Standing, carry_out, read_state
from .log_context import logged_as

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class ReleaseClaim:
    """The use case, for one provider."""

    journal: Journal
    clock: Clock
    provider: SandboxProvider

    async def __call__(
        self, label: ClaimLabel, *, reason: str, known: Standing[Claim] | None = None
    ) -> None:
        """End the claim's sandbox until seen gone; a claim that never was is done.

        Raises:
            Fault: It is still there, or nobody could look; the claim stays open.
        """
        stream = claim_stream(label.claim)
        with logged_as(claim=label.claim):
            standing = known or await read_state(self.journal, stream, DECIDER)
            if not standing.state.open:
                return
            start = StartRelease(reason=reason, at=self.clock.now())
            standing = await carry_out(
                self.journal, stream, DECIDER, start, known=standing
            )
            if standing.state.phase is ClaimPhase.RELEASED:
                return
            await self._end(label, standing)

    async def _end(self, label: ClaimLabel, standing: Standing[Claim]) -> None:
        stream = claim_stream(label.claim)
        try:
            await self.provider.destroy(label)
        except Fault as fault:
            failed = NoteReleaseFailed(reason=str(fault), at=self.clock.now())
            after = await carry_out(
                self.journal, stream, DECIDER, failed, known=standing
            )
            if after.state.phase is ClaimPhase.RELEASED:
                return  # Another process has seen it gone.
            raise
        gone = NoteReleased(at=self.clock.now())
        await carry_out(self.journal, stream, DECIDER, gone, known=standing)
