# SPDX-License-Identifier: Apache-2.0
"""The sandbox of an agent session: lent by another, the session's own, or none.

A lent one is used and let go of, never ended. One of its own is held by a claim that
is named by the session, so it is found again after a restart and released by
whichever process closes the session.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import attrs

from ...domain import agent_sessions
from ...domain.agent_sessions import AgentSessionId, SeedStarted
from ...domain.claims import DECIDER, ClaimId, ClaimNotUsable, TakeOver
from ...domain.refusals import Refusal
from ..required.harness import Harness, RequestRefused
from ..required.journal import Journal, agent_session_stream, claim_stream
from ..required.sandbox import Sandbox
from ..required.sandbox_provider import (
    Capability,
    ClaimLabel,
    SandboxProvider,
    SandboxSpec,
    Unsupported,
)
from .carry_out import carry_out, read_state
from .claim_sandbox import ClaimSandbox, given_back
from .release_claim import ReleaseClaim
from .session_grants import SessionGrant

WHICH_CHARACTERS: Final = 8

_ACCESS_FIELD: Final = "sandbox_access.connection.provider_config_ref"


@attrs.frozen(kw_only=True)
class OwnSandboxes:
    """How a session that borrows nothing gets a sandbox of its own."""

    claim: ClaimSandbox
    release: ReleaseClaim
    spec: SandboxSpec


@attrs.frozen(kw_only=True)
class SessionSandboxes:
    """Reaches and releases the sandboxes of sessions."""

    harness: Harness
    providers: Mapping[str, SandboxProvider]
    """Where lent sandboxes are reached, by the name in their access."""
    own: OwnSandboxes | None = None

    async def identified(self, grant: SessionGrant) -> SessionGrant:
        """Return the grant with the id of the sandbox that it lends, if it lends one.

        Raises:
            RequestRefused: No such provider is configured.
            Fault: As `SandboxProvider.identify` says.
        """
        if grant.lent is None:
            return grant
        provider = self._lender(grant.lent.provider)
        self._check(provider)
        return attrs.evolve(grant, lent_id=await provider.identify(grant.lent))

    async def reach(self, seeded: SeedStarted, grant: SessionGrant) -> Sandbox | None:
        """Return the session's sandbox, reached now or found again.

        Raises:
            RequestRefused: No such provider is configured.
            Unsupported: The harness needs what the provider cannot do.
            SandboxLost: It was given back, by a server that was stopped or by a reaper.
            Refusal, Fault: As `ClaimSandbox` and `SandboxProvider.connect` say.
        """
        if grant.lent is not None:
            provider = self._lender(grant.lent.provider)
            self._check(provider)
            return await provider.connect(grant.lent, borrower=ClaimId(seeded.session))
        if self.own is None:
            return None
        provider, claim = self.own.claim.provider, claim_of(seeded)
        self._check(provider)
        try:
            held = await self.own.claim(
                claim,
                self.own.spec,
                used_by=f"{seeded.episode.key} ({seeded.session})",
            )
        except ClaimNotUsable as refused:
            raise given_back(provider.name, claim, refused) from refused
        return held.sandbox

    def is_boundary(self, grant: SessionGrant) -> bool:
        """Whether the session's sandbox keeps what runs in it from the host."""
        if grant.access is not None:
            provider = self.providers.get(grant.access.provider)
        else:
            provider = None if self.own is None else self.own.claim.provider
        return provider is not None and Capability.ISOLATION in provider.capabilities

    def claim_for(
        self, seeded: SeedStarted, grant: SessionGrant | None
    ) -> ClaimId | None:
        """Return the claim of a session that has, or would have, a sandbox of its own."""
        lent = grant is not None and grant.access is not None
        return None if lent or self.own is None else claim_of(seeded)

    async def release(
        self, seeded: SeedStarted, grant: SessionGrant | None, *, reason: str
    ) -> None:
        """End the session's own sandbox, if it has one, until seen gone.

        Raises:
            Fault: It is still there, or nobody could look; the claim stays open.
        """
        claim = self.claim_for(seeded, grant)
        if claim is not None and self.own is not None:
            label = ClaimLabel(claim=claim, owner=self.own.claim.owner)
            await self.own.release(label, reason=reason)

    async def adopt(self, claim: ClaimId) -> bool:
        """Hold the claim when the process that held it has died; tell whether it did.

        Otherwise the sandbox of a session that can be gone on with would be reaped.
        """
        if self.own is None:
            return False
        use, stream = self.own.claim, claim_stream(claim)
        standing = await read_state(use.journal, stream, DECIDER)
        holder = standing.state.holder
        if not standing.state.open or holder is None:
            return False
        if await use.holders.alive(holder):
            return False
        take = TakeOver(holder=use.holders.own, at=use.clock.now())
        try:
            await carry_out(use.journal, stream, DECIDER, take, known=standing)
        except Refusal:
            return False  # It is being given back.
        return True

    def _lender(self, name: str) -> SandboxProvider:
        provider = self.providers.get(name)
        if provider is None:
            raise RequestRefused(
                harness=self.harness.name,
                field=_ACCESS_FIELD,
                reason=f"no provider {name!r} is configured"
                f" (there are: {', '.join(sorted(self.providers))})",
            )
        return provider

    def _check(self, provider: SandboxProvider) -> None:
        for capability in sorted(self.harness.needs - provider.capabilities):
            detail = f"harness {self.harness.name} needs it"
            raise Unsupported(provider.name, capability.value, detail)


async def needs_its_place(journal: Journal, session: AgentSessionId) -> bool:
    """Tell whether a session whose process died still counts among the open ones.

    It does while it has a sandbox of its own, or is ready to be gone on with in one
    that it was lent: another process has it in its care then, and closes it.
    """
    stream = agent_session_stream(session)
    state = (await read_state(journal, stream, agent_sessions.DECIDER)).state
    if state.claim is None:
        return state.phase is agent_sessions.SessionPhase.READY
    if state.closed is not None:
        return False
    claim = (await read_state(journal, claim_stream(state.claim), DECIDER)).state
    return claim.open


def claim_of(seeded: SeedStarted) -> ClaimId:
    """Return the name of the claim of a session's own sandbox.

    A seed that is made anew, under an id that is free again, has a claim of its own.
    """
    which = hashlib.sha256(f"{seeded.request} {seeded.at!r}".encode()).hexdigest()
    return ClaimId(f"agent-{seeded.session}-{which[:WHICH_CHARACTERS]}")
