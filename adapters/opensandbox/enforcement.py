# SPDX-License-Identifier: Apache-2.0
"""Whether a network policy is in force: by the server's word, and by trying."""

import anyio
import attrs

from ...ports.required.sandbox_provider import SandboxSpec, Unsupported
from .execd import GATEWAY_STATUSES
from .lifecycle import Lifecycle
from .lifecycle_facts import ApiRefused
from .network_policy import leaks, policy_of
from .sandbox import OpenSandbox

LOOK_SECONDS = 0.2


@attrs.frozen(kw_only=True)
class Enforcement:
    """Looks at policies of sandboxes of one server."""

    lifecycle: Lifecycle
    python: str
    addresses: tuple[str, ...]
    names: tuple[str, ...]

    async def demand(self, spec: SandboxSpec, sandbox: OpenSandbox) -> None:
        """See that the policy of a spec is in force; the caller bounds the wait.

        Raises:
            Unsupported: The server took the policy, and it is not in force.
        """
        policy = policy_of(spec)
        if policy is None:
            return
        while True:
            try:
                told = await self.lifecycle.network_policy(sandbox.sandbox_id)
                break
            except ApiRefused as refused:
                if refused.status not in GATEWAY_STATUSES:
                    raise self._not_in_force(
                        spec, f"it tells none: {refused}"
                    ) from None
            # Its sidecar is not up yet, or comes back.
            await anyio.sleep(LOOK_SECONDS)
        if not policy.is_told_by(told):
            raise self._not_in_force(spec, f"it says that {dict(told)} is in force")
        found = await leaks(
            sandbox,
            policy,
            python=self.python,
            addresses=self.addresses,
            names=self.names,
        )
        if found is None:
            raise self._not_in_force(spec, "the probe in the sandbox told nothing")
        if found:
            raise self._not_in_force(spec, f"from inside, {'; '.join(found)}")

    def _not_in_force(self, spec: SandboxSpec, found: str) -> Unsupported:
        return Unsupported(
            provider=self.lifecycle.provider,
            capability=f"network {spec.network.value}",
            detail=f"the server took the policy and does not enforce it: {found}",
        )
