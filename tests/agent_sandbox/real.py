# SPDX-License-Identifier: Apache-2.0
"""What the tests over the real API server share: providers, labels, a look."""

import itertools
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
from anyio import to_thread

from livery.adapters.agent_sandbox import (
    CAPABILITIES,
    AgentSandboxConfig,
    AgentSandboxProvider,
    ClusterAddress,
    ConnectionConfig,
    open_agent_sandbox,
)
from livery.domain.claims import ClaimId, OwnerId
from livery.domain.names import to_name
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import (
    Capability,
    ClaimLabel,
    SandboxSpec,
)

from ..cluster.cluster import Cluster

CAN = CAPABILITIES - {Capability.USERS}
"""Users may be asked for, and are the pool's template's to give."""
PROVIDER_HOOKS = frozenset({"end_outside", "failing_spec"})

_numbers = itertools.count(1)


def name_of(label: ClaimLabel) -> str:
    return to_name("livery", label.claim)


@attrs.define
class Real:
    """A cluster, and a provider over it."""

    cluster: Cluster
    pool: str
    owner: OwnerId
    provider: AgentSandboxProvider
    config: AgentSandboxConfig

    def label(self, owner: OwnerId | None = None) -> ClaimLabel:
        word = f"{self.owner}-{next(_numbers)}"
        return ClaimLabel(claim=ClaimId(word), owner=owner or self.owner)

    async def left(self, label: ClaimLabel) -> tuple[str, ...]:
        """Look at the claims and pods of the cluster itself."""
        name = name_of(label)
        claims = await to_thread.run_sync(self.cluster.do, "claims")
        pods = await to_thread.run_sync(self.cluster.do, "sandboxes")
        found = [f"claim {name}" for one in claims if one["metadata"]["name"] == name]
        found += [f"pod {one['container']}" for one in pods if one["claim"] == name]
        return tuple(found)

    @asynccontextmanager
    async def open_again(self) -> AsyncGenerator[AgentSandboxProvider]:
        async with open_agent_sandbox(self.config) as provider:
            yield provider

    def provider_context(self) -> ProviderContext:
        async def end_outside(label: ClaimLabel) -> None:
            sandbox = self.cluster.sandbox_of(name_of(label))["name"]
            await to_thread.run_sync(
                lambda: self.cluster.do("kill_pod", sandbox=sandbox)
            )

        spec = SandboxSpec()
        return ProviderContext(
            provider=self.provider,
            open_again=self.open_again,
            spec=spec,
            new_label=self.label,
            other_owner=OwnerId(f"{self.owner}-other"),
            observe=self,
            creates_at_once=9,
            end_outside=end_outside,
            failing_spec=attrs.evolve(
                spec, provider_options={"warmpool": "no-such-pool"}
            ),
        )


def config_for(
    cluster: Cluster,
    pool: str,
    *,
    connection: ConnectionConfig | None = None,
    proxied: bool = False,
) -> AgentSandboxConfig:
    where = cluster.where
    path = where.proxied_kubeconfig if proxied else where.kubeconfig
    return AgentSandboxConfig(
        cluster=ClusterAddress(kubeconfig=path),
        connection=connection or ConnectionConfig(),
        namespace=where.namespace,
        warmpool=pool,
    )


@asynccontextmanager
async def real(
    cluster: Cluster,
    pool: str,
    *,
    connection: ConnectionConfig | None = None,
    proxied: bool = False,
) -> AsyncGenerator[Real]:
    config = config_for(cluster, pool, connection=connection, proxied=proxied)
    owner = OwnerId(f"test-{secrets.token_hex(4)}")
    async with open_agent_sandbox(config) as provider:
        yield Real(cluster, pool, owner, provider, config)
