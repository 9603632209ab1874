# SPDX-License-Identifier: Apache-2.0
"""Reap claims: give back every sandbox that nobody uses any more.

Two lists are held against each other: what the journal says is open, and what the
providers say is there with our owner's label. A claim of a living process is left
alone, unless that one has tried to release it in vain or the sandbox's own time is
over. What is there without an open claim is ended too: it came late, or its journal is
gone. One that cannot be ended does not keep the others, and a claim that somebody has
gone on with since it was looked at is not touched.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Final

import anyio
import attrs

from ...domain.claims import (
    DECIDER,
    Claim,
    ClaimId,
    ClaimPhase,
    Holder,
    OwnerId,
    StartRelease,
)
from ...domain.refusals import Refusal
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.holders import Holders
from ..required.journal import Journal, StreamMoved, claim_stream
from ..required.sandbox_provider import ClaimLabel, ListedSandbox, SandboxProvider
from .carry_out import Standing, carry_out, read_state
from .release_claim import ReleaseClaim

log = logging.getLogger(__name__)

REAPED_AT_ONCE: Final = 8
LOOKED_AT_ONCE: Final = 64
"""How many claims are looked at together: a journal in a database answers all that
ask at a time in one go, and a sweep of a hundred thousand has a minute."""
HURRIED_SECONDS: Final = 3.0
"""How long a provider is listened to that nobody configured, and may not be there."""
EXPIRED_SECONDS: Final = 60.0
"""How long a sandbox is past its time before that ends the claim of a living process.

It ends itself then; clocks of two machines differ, and an ending takes its time.
"""
REASON: Final = "reaped: nobody uses it"


class Finding(StrEnum):
    """What the reaper found of one claim."""

    IN_USE = "in use"
    RELEASED = "released"
    TO_RELEASE = "to release"
    FAILED = "failed"
    UNREACHABLE = "provider not configured"


class Cause(StrEnum):
    """Why a sandbox is the reaper's."""

    UNRELEASED = "unreleased"
    """Who held it is no more, or has tried in vain to give it back."""
    IN_DOUBT = "in doubt"
    """Its creation ended without an answer."""
    EXPIRED = "expired"
    """Its own time is over."""
    LATE = "came late"
    """It was made when its claim had been released."""
    UNKNOWN = "in no journal"
    """It carries our label, and nothing is written of it."""


@attrs.frozen(kw_only=True)
class Reaped:
    """One claim and what was done about it."""

    claim: ClaimId
    provider: str
    finding: Finding
    cause: Cause | None = None
    """None: it is in use."""
    used_by: str = ""
    phase: str = ""
    reason: str = ""

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is written of it."""
        return self.cause is Cause.UNKNOWN


@attrs.frozen(kw_only=True)
class ReapReport:
    """Everything the reaper saw."""

    reaped: tuple[Reaped, ...]
    unlisted: tuple[tuple[str, str], ...]
    """Providers that could not be asked, each with the reason."""


Spare = Callable[[Reaped], bool]
"""Whether a claim that nobody uses is told of, and not released."""


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
    list_seconds: float | None = None
    """How long any provider is listened to; None: as long as it takes."""
    release_seconds: float | None = None
    """How long one release may take; what it has not ended is the next one's."""

    async def __call__(
        self, *, dry_run: bool = False, spare: Spare | None = None
    ) -> ReapReport:
        """Release what nobody uses and `spare` does not keep, or tell what would be."""
        # The providers first: a sandbox seen here has its claim in the journal by now.
        listed, unlisted = await self._listed()
        expired = self._expired(listed)
        claims = dict.fromkeys(map(ClaimId, await self.journal.open_streams("claims")))
        unclaimed = [
            (sandbox.label.claim, provider)
            for provider, sandbox in listed
            if sandbox.label.claim not in claims
        ]
        look = _Look(expired=expired, spare=(lambda _: True) if dry_run else spare)
        found = await self._all_looked_at((*claims.items(), *unclaimed), look)
        return ReapReport(
            reaped=tuple(sorted(found, key=lambda reaped: reaped.claim)),
            unlisted=unlisted,
        )

    async def _listed(
        self,
    ) -> tuple[list[tuple[str, ListedSandbox]], tuple[tuple[str, str], ...]]:
        listed: list[tuple[str, ListedSandbox]] = []
        unlisted: list[tuple[str, str]] = []
        broken: list[Exception] = []

        async def ask(name: str, provider: SandboxProvider) -> None:
            seconds = HURRIED_SECONDS if name in self.hurried else self.list_seconds
            try:
                with anyio.move_on_after(seconds) as scope:
                    async for each in provider.list(self.owner):
                        listed.append((name, each))
            except Fault as fault:
                unlisted.append((name, str(fault)))
                return
            except Exception as error:
                broken.append(
                    error
                )  # Raised below: from in here it would come in a group.
                return
            if scope.cancelled_caught:
                unlisted.append((name, f"it did not answer within {seconds:g} s"))

        # At once: one that hangs must not keep what the others have.
        async with anyio.create_task_group() as group:
            for name, provider in self.providers.items():
                group.start_soon(ask, name, provider)
        for error in broken:
            raise error
        return listed, tuple(sorted(unlisted))

    def _expired(self, listed: list[tuple[str, ListedSandbox]]) -> frozenset[ClaimId]:
        before = self.clock.now() - EXPIRED_SECONDS
        return frozenset(
            sandbox.label.claim
            for _, sandbox in listed
            if sandbox.expires_at is not None and sandbox.expires_at < before
        )

    async def _standing(self, claim: ClaimId) -> Standing[Claim]:
        return await read_state(self.journal, claim_stream(claim), DECIDER)

    async def _all_looked_at(
        self, all_of_them: Collection[tuple[ClaimId, str | None]], look: "_Look"
    ) -> list[Reaped]:
        """Look at each, a bounded number at once."""
        left = iter(all_of_them)
        found: list[Reaped] = []
        broken: list[Exception] = []

        async def work() -> None:
            for claim, provider in left:
                if broken:
                    return
                try:
                    found.append(await self._looked_at(claim, provider, look))
                except Exception as error:
                    broken.append(error)  # Raised below, as in `_listed`.

        async with anyio.create_task_group() as group:
            for _ in range(min(LOOKED_AT_ONCE, len(all_of_them))):
                group.start_soon(work)
        for error in broken:
            raise error
        return found

    async def _looked_at(
        self, claim: ClaimId, provider: str | None, look: "_Look"
    ) -> Reaped:
        """Look at an open claim, or at what `provider` has without one."""
        if provider is not None:
            return await self._reap(claim, provider, None, look)
        standing = await self._standing(claim)
        requested = standing.state.requested
        assert requested is not None, "an open claim was requested"
        return await self._reap(claim, requested.provider, standing, look)

    async def _reap(
        self,
        claim: ClaimId,
        name: str,
        standing: Standing[Claim] | None,
        look: "_Look",
    ) -> Reaped:
        state = None if standing is None else standing.state
        requested = None if state is None else state.requested
        expired = claim in look.expired
        seen = Reaped(
            claim=claim,
            provider=name,
            finding=Finding.TO_RELEASE,
            used_by="" if requested is None else requested.used_by,
            phase="without a claim" if state is None else state.phase,
            reason="" if state is None else state.reason,
        )
        holder = None if state is None else state.holder
        # Nobody uses what is being released; where that failed once, all may help. Nor
        # what has outlived its own time.
        is_left = state is not None and (state.release_attempts > 0 or expired)
        if holder is not None and not is_left and await self._alive(holder, look):
            return attrs.evolve(seen, finding=Finding.IN_USE)
        seen = attrs.evolve(seen, cause=await self._cause(claim, state, expired))
        provider = self.providers.get(name)
        if provider is None:
            return attrs.evolve(seen, finding=Finding.UNREACHABLE)
        if look.spare is not None and look.spare(seen):
            return seen
        async with look.releasing:
            with anyio.move_on_after(self.release_seconds) as scope:
                return await self._release(seen, provider, standing)
        assert scope.cancelled_caught, "it returns, raises or is cut off"
        log.warning("Claim %s was not released in time", claim)
        reason = f"its release took longer than {self.release_seconds:g} s"
        return attrs.evolve(seen, finding=Finding.FAILED, reason=reason)

    async def _alive(self, holder: Holder, look: "_Look") -> bool:
        """Tell whether a holder lives; each is asked about once in a round, or nearly."""
        if holder not in look.alive:
            look.alive[holder] = await self.holders.alive(holder)
        return look.alive[holder]

    async def _cause(self, claim: ClaimId, state: Claim | None, expired: bool) -> Cause:
        if state is None:
            known = await self._standing(claim)
            return Cause.LATE if known.version else Cause.UNKNOWN
        if state.phase in (ClaimPhase.IN_DOUBT, ClaimPhase.CREATING):
            return Cause.IN_DOUBT
        if expired or state.phase is ClaimPhase.EXPIRED:
            return Cause.EXPIRED
        return Cause.UNRELEASED

    async def _release(
        self, seen: Reaped, provider: SandboxProvider, standing: Standing[Claim] | None
    ) -> Reaped:
        label = ClaimLabel(claim=seen.claim, owner=self.owner)
        release = ReleaseClaim(
            journal=self.journal, clock=self.clock, provider=provider
        )
        begun = standing
        if standing is not None:
            start = StartRelease(reason=REASON, at=self.clock.now())
            stream = claim_stream(seen.claim)
            try:
                # Of what was seen alone: whoever has gone on with it since, has it.
                begun = await carry_out(
                    self.journal, stream, DECIDER, start, known=standing, attempts_max=1
                )
            except StreamMoved:
                return attrs.evolve(seen, finding=Finding.IN_USE, cause=None)
        try:
            if begun is None:
                await provider.destroy(label)
            else:
                await release(label, reason=REASON, known=begun)
        except (Fault, Refusal) as error:
            log.warning("Claim %s could not be reaped: %s", seen.claim, error)
            return attrs.evolve(seen, finding=Finding.FAILED, reason=str(error))
        return attrs.evolve(seen, finding=Finding.RELEASED)


@attrs.frozen(kw_only=True)
class _Look:
    """What one round of the reaper goes by."""

    expired: frozenset[ClaimId]
    spare: Spare | None
    alive: dict[Holder, bool] = attrs.field(factory=dict[Holder, bool])
    """What was found of holders."""
    releasing: anyio.CapacityLimiter = attrs.field(
        factory=lambda: anyio.CapacityLimiter(REAPED_AT_ONCE)
    )
