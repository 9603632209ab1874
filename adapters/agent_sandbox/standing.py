# SPDX-License-Identifier: Apache-2.0
"""How a sandbox stands, as the cluster tells: the one that was bound, or lost.

A claim is bound to one Sandbox, known by its name and UID from then on. When either
is another later, what was in the first one is gone, whatever the claim says.
"""

import time

import attrs

from ...ports.required.sandbox import Liveness, Status
from .claim_facts import ClaimFacts, SandboxFacts, to_claim, to_sandbox
from .cluster import CLAIM, SANDBOX, Cluster
from .connections import Place

EXPIRY_MARGIN_SECONDS = 2.0


@attrs.frozen(kw_only=True)
class Bound:
    """A claim and the Sandbox that it was bound to."""

    claim: ClaimFacts
    sandbox: SandboxFacts

    @property
    def place(self) -> Place:
        """Which sandbox is meant."""
        return Place(
            namespace=self.claim.namespace,
            sandbox_name=self.sandbox.name,
            sandbox_uid=self.sandbox.uid,
            pod_ips=self.claim.pod_ips,
        )

    def end_of(self, facts: ClaimFacts | None) -> str | None:
        """Return why the sandbox is lost by what a claim tells, None when it is not."""
        if facts is None or facts.uid != self.claim.uid:
            at = self.claim.shutdown_at
            if at is not None and time.time() > at - EXPIRY_MARGIN_SECONDS:
                return "its lifetime is over"
            return "its claim is gone"
        if facts.is_ending:
            return "its claim is being deleted"
        if (failure := facts.failure) is not None:
            return f"its claim tells {failure.told}"
        if facts.sandbox_name not in {None, self.sandbox.name}:
            return f"sandbox replaced: the claim is bound to {facts.sandbox_name} now"
        return None

    def replaced_by(self, found: SandboxFacts | None) -> str | None:
        """Return why the sandbox is lost by what has its name."""
        if found is None:
            return "its Sandbox is gone"
        if found.uid != self.sandbox.uid:
            return "sandbox replaced: another one has its name"
        return "its Sandbox is being deleted" if found.is_ending else None


@attrs.frozen
class Standing:
    """Asks the cluster."""

    _cluster: Cluster

    async def claim(self, bound: Bound) -> ClaimFacts | None:
        """Return what has the claim's name now.

        Raises:
            ClusterRefused, ClusterSilent: It cannot be known.
        """
        found = await self._cluster.get(CLAIM, bound.claim.namespace, bound.claim.name)
        return None if found is None else to_claim(found)

    async def sandbox(self, namespace: str, name: str) -> SandboxFacts | None:
        """Return the Sandbox of a name.

        Raises:
            ClusterRefused, ClusterSilent: It cannot be known.
        """
        found = await self._cluster.get(SANDBOX, namespace, name)
        return None if found is None else to_sandbox(found)

    async def now(self, bound: Bound) -> tuple[Bound, str | None]:
        """Return the sandbox as it is now, and why it is lost, if it is.

        Raises:
            ClusterRefused, ClusterSilent: It cannot be known.
        """
        facts = await self.claim(bound)
        if (reason := bound.end_of(facts)) is not None or facts is None:
            return bound, reason
        found = await self.sandbox(facts.namespace, bound.sandbox.name)
        return attrs.evolve(bound, claim=facts), bound.replaced_by(found)

    async def status(self, bound: Bound) -> Status:
        """Tell it in the words of the port.

        Raises:
            ClusterRefused, ClusterSilent: It cannot be known.
        """
        now, reason = await self.now(bound)
        if reason is not None:
            return Status(liveness=Liveness.ENDED, reason=reason)
        if not now.claim.is_ready:
            return Status(liveness=Liveness.UNKNOWN, reason=now.claim.told)
        return Status(liveness=Liveness.RUNNING)
