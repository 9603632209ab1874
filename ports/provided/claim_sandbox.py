# SPDX-License-Identifier: Apache-2.0
"""Claim a sandbox: the intent first, then the sandbox, then the fact.

Creation is named by the claim, so asking again after a crash or a lost reply adopts
what is there. Whatever fails or is cancelled on the way releases the claim before
it is raised; what could not be released stays open for the reaper.
"""

import hashlib
import logging
from typing import Final

import anyio
import attrs

from ...domain.claims import (
    DECIDER,
    Borrower,
    Claim,
    ClaimId,
    ClaimNotUsable,
    ClaimPhase,
    Command,
    Hold,
    Lend,
    NoteLost,
    OwnerId,
    RequestClaim,
    SpecDigest,
    StartCreation,
    TakeOver,
)
from ...domain.deciders import Instant
from ...domain.refusals import Refusal
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.holders import Holders
from ..required.journal import Journal, claim_stream
from ..required.sandbox import Sandbox, SandboxLost
from ..required.sandbox_provider import ClaimLabel, SandboxProvider, SandboxSpec
from .carry_out import Standing, carry_out
from .log_context import logged_as
from .release_claim import ReleaseClaim

log = logging.getLogger(__name__)

UNDO_SECONDS: Final = 60.0
"""How long a failed or cancelled claim may take to be released."""

_FRESH: Final = Standing(DECIDER.initial, 0)
_TO_MAKE: Final = (ClaimPhase.REQUESTED, ClaimPhase.CREATING, ClaimPhase.IN_DOUBT)


@attrs.frozen(kw_only=True)
class HeldSandbox:
    """A sandbox under a claim of ours."""

    label: ClaimLabel
    sandbox: Sandbox
    standing: Standing[Claim]


@attrs.frozen(kw_only=True)
class ClaimSandbox:
    """The use case, for one provider and one owner."""

    journal: Journal
    clock: Clock
    provider: SandboxProvider
    owner: OwnerId
    holders: Holders
    release: ReleaseClaim

    async def __call__(
        self,
        claim: ClaimId,
        spec: SandboxSpec,
        *,
        used_by: str,
        lend_to: Borrower | None = None,
    ) -> HeldSandbox:
        """Return the claim's sandbox, made now or found again.

        Raises:
            Refusal: The claim stands for something else, or its release has begun.
            Fault: The provider's, as `SandboxProvider.create` says; or `SandboxLost`.
        """
        label = ClaimLabel(claim=claim, owner=self.owner)
        with logged_as(claim=claim):
            standing = await self._request(label, spec, used_by)
            if standing.state.phase in (ClaimPhase.HELD, ClaimPhase.LENT):
                return await self._find_again(label, standing)
            if standing.state.phase not in _TO_MAKE:
                raise ClaimNotUsable(phase=standing.state.phase, command="ClaimSandbox")
            return await self._make(label, spec, standing, lend_to)

    async def _request(
        self, label: ClaimLabel, spec: SandboxSpec, used_by: str
    ) -> Standing[Claim]:
        request = RequestClaim(
            claim=label.claim,
            owner=label.owner,
            provider=self.provider.name,
            spec=spec_digest(spec),
            used_by=used_by,
            holder=self.holders.own,
            at=self.clock.now(),
        )
        takeover = TakeOver(holder=self.holders.own, at=self.clock.now())
        start = StartCreation(at=self.clock.now())
        stream = claim_stream(label.claim)
        try:
            return await carry_out(
                self.journal, stream, DECIDER, request, start, known=_FRESH
            )
        except Refusal:
            # Not a fresh claim: one from before a restart is gone on with.
            return await carry_out(self.journal, stream, DECIDER, request, takeover)
        except anyio.get_cancelled_exc_class() as cut_off:
            # The intent may be written all the same, and nobody knows of it yet.
            await self._undo(label, None, cut_off)
            raise

    async def _find_again(
        self, label: ClaimLabel, standing: Standing[Claim]
    ) -> HeldSandbox:
        sandbox = await self.provider.find(label)
        reason = "it was not found again"
        if sandbox is not None:
            if sandbox.sandbox_id == standing.state.sandbox:
                return HeldSandbox(label=label, sandbox=sandbox, standing=standing)
            # A creation that came late, when the claim's own sandbox had ended: it
            # holds nothing of the work. The release ends it by the claim's name.
            await sandbox.disconnect()
            reason = "another one stands under its name"
        lost = SandboxLost(
            provider=self.provider.name,
            sandbox=str(standing.state.sandbox),
            reason=reason,
        )
        await self._carry_out(
            label, NoteLost(reason=lost.reason, at=self.clock.now()), known=standing
        )
        raise lost

    async def _make(
        self,
        label: ClaimLabel,
        spec: SandboxSpec,
        standing: Standing[Claim],
        lend_to: Borrower | None,
    ) -> HeldSandbox:
        if standing.state.phase is ClaimPhase.REQUESTED:
            start = StartCreation(at=self.clock.now())
            standing = await self._carry_out(label, start, known=standing)
        sandbox: Sandbox | None = None
        try:
            sandbox = await self.provider.create(label, spec)
            standing = await self._hold(label, sandbox, standing, lend_to)
        except BaseException as error:
            await self._undo(label, sandbox, error)
            raise
        return HeldSandbox(label=label, sandbox=sandbox, standing=standing)

    async def _hold(
        self,
        label: ClaimLabel,
        sandbox: Sandbox,
        standing: Standing[Claim],
        lend_to: Borrower | None,
    ) -> Standing[Claim]:
        expires_at = sandbox.expires_at
        hold = Hold(
            sandbox=sandbox.sandbox_id,
            expires_at=None if expires_at is None else Instant(expires_at),
            at=self.clock.now(),
        )
        if lend_to is None:
            return await self._carry_out(label, hold, known=standing)
        lend = Lend(borrower=lend_to, at=self.clock.now())
        return await self._carry_out(label, hold, lend, known=standing)

    async def _undo(
        self, label: ClaimLabel, sandbox: Sandbox | None, error: BaseException
    ) -> None:
        reason = str(error) if isinstance(error, Fault | Refusal) else "cancelled"
        with anyio.move_on_after(UNDO_SECONDS, shield=True):
            if sandbox is not None:
                await sandbox.disconnect()
            try:
                await self.release(label, reason=f"creation failed: {reason}")
            except (Fault, Refusal) as left:
                log.error("Claim %s is still open: %s", label.claim, left)

    async def _carry_out(
        self, label: ClaimLabel, *commands: Command, known: Standing[Claim]
    ) -> Standing[Claim]:
        return await carry_out(
            self.journal, claim_stream(label.claim), DECIDER, *commands, known=known
        )


def given_back(provider: str, claim: ClaimId, refused: ClaimNotUsable) -> SandboxLost:
    """Return what to tell whoever still needs the sandbox of a claim that is over."""
    return SandboxLost(
        provider=provider,
        sandbox=str(claim),
        reason=f"it was given back (its claim is {refused.phase})",
    )


def spec_digest(spec: SandboxSpec) -> SpecDigest:
    """Return what makes two specs the same; values of `env` are in it as a digest."""
    text = repr(sorted(attrs.asdict(spec).items(), key=str))
    return SpecDigest(hashlib.sha256(text.encode()).hexdigest())
