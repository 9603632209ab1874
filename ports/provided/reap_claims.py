# SPDX-License-Identifier: Apache-2.0
"""Reap claims: give back every sandbox that nobody uses any more.

Two lists are held against each other: what the journal says is open, and what the
providers say is there with our owner's label. A claim of a living process is left
alone, unless that one has tried to release it in vain. What is there without an open
claim is ended too: it came late, or its journal is gone. One that cannot be ended does
not keep the others.
"""

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import anyio
import attrs

from ...domain.claims import DECIDER, Claim, ClaimId, OwnerId
from ...domain.refusals import Refusal
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.holders import Holders
from ..required.journal import Journal, claim_stream
from ..required.sandbox_provider import ClaimLabel, ListedSandbox, SandboxProvider
from .carry_out import read_state
from .release_claim import ReleaseClaim

log = logging.getLogger(__name__)

REAPED_AT_ONCE: Final = 8
HURRIED_SECONDS: Final = 3.0
"""How long a provider is listened to that nobody configured, and may not be there."""


class Finding(StrEnum):
    """What the reaper found of one claim."""

    IN_USE = "in use"
    RELEASED = "released"
    TO_RELEASE = "to release"
    FAILED = "failed"
    UNREACHABLE = "provider not configured"


@attrs.frozen(kw_only=True)
class Reaped:
    """One claim and what was done about it."""

    claim: ClaimId
    provider: str
    finding: Finding
    used_by: str = ""
    phase: str = ""
    reason: str = ""


@attrs.frozen(kw_only=True)
class ReapReport:
    """Everything the reaper saw."""

    reaped: tuple[Reaped, ...]
    unlisted: tuple[tuple[str, str], ...]
    """Providers that could not be asked, each with the reason."""


@attrs.frozen(kw_only=True)
class ReapClaims:
    """The use case, over every configured provider."""

    journal: Journal
    clock: Clock
    providers: Mapping[str, SandboxProvider]
    owner: OwnerId
    holders: Holders
    hurried: frozenset[str] = frozenset()
    """Names of the providers that are asked for what they have, and not waited for.

    Claims of theirs that the journal knows are released all the same.
    """

    async def __call__(self, *, dry_run: bool = False) -> ReapReport:
        """Release what nobody uses, or tell what would be."""
        # The providers first: a sandbox seen here has its claim in the journal by now.
        listed, unlisted = await self._listed()
        claims: dict[ClaimId, Claim] = {}
        for key in await self.journal.open_streams("claims"):
            claim = ClaimId(key)
            stream = claim_stream(claim)
            claims[claim] = (await read_state(self.journal, stream, DECIDER)).state
        found: list[Reaped] = []
        limiter = anyio.CapacityLimiter(REAPED_AT_ONCE)

        async def reap(claim: ClaimId, provider: str, state: Claim | None) -> None:
            async with limiter:
                found.append(await self._reap(claim, provider, state, dry_run))

        async with anyio.create_task_group() as group:
            for claim, state in claims.items():
                assert state.requested is not None, "an open claim was requested"
                group.start_soon(reap, claim, state.requested.provider, state)
            for provider, sandbox in listed:
                if sandbox.label.claim not in claims:
                    group.start_soon(reap, sandbox.label.claim, provider, None)
        return ReapReport(
            reaped=tuple(sorted(found, key=lambda reaped: reaped.claim)),
            unlisted=unlisted,
        )

    async def _listed(
        self,
    ) -> tuple[list[tuple[str, ListedSandbox]], tuple[tuple[str, str], ...]]:
        listed: list[tuple[str, ListedSandbox]] = []
        unlisted: list[tuple[str, str]] = []
        for name, provider in self.providers.items():
            seconds = HURRIED_SECONDS if name in self.hurried else None
            try:
                with anyio.move_on_after(seconds) as scope:
                    listed += [(name, each) async for each in provider.list(self.owner)]
            except Fault as fault:
                unlisted.append((name, str(fault)))
                continue
            if scope.cancelled_caught:
                unlisted.append((name, f"it did not answer within {seconds:g} s"))
        return listed, tuple(unlisted)

    async def _reap(
        self, claim: ClaimId, name: str, state: Claim | None, dry_run: bool
    ) -> Reaped:
        requested = None if state is None else state.requested
        seen = Reaped(
            claim=claim,
            provider=name,
            finding=Finding.TO_RELEASE,
            used_by="" if requested is None else requested.used_by,
            phase="without a claim" if state is None else state.phase,
            reason="" if state is None else state.reason,
        )
        holder = None if state is None else state.holder
        # Nobody uses what is being released; where that failed once, all may help.
        is_left = state is not None and state.release_attempts > 0
        if holder is not None and not is_left and await self.holders.alive(holder):
            return attrs.evolve(seen, finding=Finding.IN_USE)
        provider = self.providers.get(name)
        if provider is None:
            return attrs.evolve(seen, finding=Finding.UNREACHABLE)
        if dry_run:
            return seen
        return await self._release(seen, provider, state)

    async def _release(
        self, seen: Reaped, provider: SandboxProvider, state: Claim | None
    ) -> Reaped:
        label = ClaimLabel(claim=seen.claim, owner=self.owner)
        release = ReleaseClaim(
            journal=self.journal, clock=self.clock, provider=provider
        )
        try:
            if state is None:
                await provider.destroy(label)
            else:
                await release(label, reason="reaped: nobody uses it")
        except (Fault, Refusal) as error:
            log.warning("Claim %s could not be reaped: %s", seen.claim, error)
            return attrs.evolve(seen, finding=Finding.FAILED, reason=str(error))
        return attrs.evolve(seen, finding=Finding.RELEASED)
