# SPDX-License-Identifier: Apache-2.0
"""Take a census: what stands open in the journal, whichever process wrote it.

What was read of a claim once is not read again, so that a census costs one look for each
open claim at whether it has moved.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import anyio
import attrs

from ...domain.claims import DECIDER, Claim, ClaimId, ClaimPhase
from ..required.clock import Clock
from ..required.journal import Journal, claim_stream
from .carry_out import Standing, read_state

COUNTED: Final = ("agent_sessions", "resources_sessions", "episodes")
"""The categories of which it is counted how many are open."""


@attrs.frozen(kw_only=True)
class Census:
    """What stands open."""

    claims: Mapping[ClaimPhase, int]
    """Of every phase of an open claim; 0 where there is none."""
    oldest_seconds: float
    """How long ago the oldest open claim was requested; 0 when there is none."""
    open: Mapping[str, int]


@attrs.define(kw_only=True, eq=False)
class TakeCensus:
    """The use case."""

    journal: Journal
    clock: Clock
    _known: dict[ClaimId, Standing[Claim]] = attrs.field(
        factory=dict[ClaimId, Standing[Claim]], init=False
    )
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def __call__(self) -> Census:
        """Count; raises `JournalUnusable`."""
        async with self._turn:
            known: dict[ClaimId, Standing[Claim]] = {}
            for key in await self.journal.open_streams("claims"):
                claim = ClaimId(key)
                known[claim] = await read_state(
                    self.journal, claim_stream(claim), DECIDER, self._known.get(claim)
                )
            self._known = known
        states = [one.state for one in known.values() if one.state.open]
        phases = Counter(state.phase for state in states)
        since = [one.requested.at for one in states if one.requested is not None]
        return Census(
            claims={phase: phases[phase] for phase in OPEN},
            oldest_seconds=max(0.0, self.clock.now() - min(since)) if since else 0.0,
            open={
                category: len(await self.journal.open_streams(category))
                for category in COUNTED
            },
        )


OPEN: Final = tuple(phase for phase in ClaimPhase if Claim(phase=phase).open)
"""The phases of a claim that is not released."""
