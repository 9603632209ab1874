# SPDX-License-Identifier: Apache-2.0
"""What the tests over the in-process stand-in share: providers, labels, a look."""

import itertools
import secrets
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from livery.adapters.agent_sandbox import (
    CAPABILITIES,
    AgentSandboxConfig,
    AgentSandboxProvider,
    ClusterAddress,
    ConnectionConfig,
    HandsConfig,
    open_agent_sandbox,
)
from livery.adapters.http_client import Patience
from livery.domain.claims import ClaimId, OwnerId
from livery.domain.names import to_name
from livery.ports.contracts.sandbox_context import comes_true
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import (
    Capability,
    ClaimLabel,
    SandboxSpec,
)

from .fake_cluster import NAMESPACE, POOL, FakeCluster, fake_cluster
from .fake_pods import PORT

OWNER, OTHER_OWNER = OwnerId("owner"), OwnerId("owner-other")
HERE = CAPABILITIES - {Capability.ISOLATION, Capability.USERS}
"""Without what only a real cluster can show; users are the template's to give."""
PATIENCE = Patience(attempts_max=4, seconds_max=20.0, pause_seconds=0.05)
PROVIDER_HOOKS = frozenset({"end_outside", "failing_spec"})

SOON_SECONDS = 60.0
"""Much less than the time that a create may take here."""

_numbers = itertools.count(1)


def new_label(owner: OwnerId = OWNER) -> ClaimLabel:
    word = f"{secrets.token_hex(4)}-{next(_numbers)}"
    return ClaimLabel(claim=ClaimId(f"c-{word}"), owner=owner)


def name_of(label: ClaimLabel) -> str:
    return to_name("livery", label.claim)


def config_for(cluster: FakeCluster) -> AgentSandboxConfig:
    return AgentSandboxConfig(
        cluster=ClusterAddress(kubeconfig=cluster.kubeconfig()),
        connection=ConnectionConfig(server_port=PORT),
        namespace=NAMESPACE,
        warmpool=POOL,
        hands=HandsConfig(python=sys.executable),
        patience=PATIENCE,
        close_seconds=20.0,
    )


async def until(is_so: Callable[[], object]) -> None:
    """Wait, within `SOON_SECONDS`, until something is so."""

    async def look() -> bool:
        return bool(is_so())

    assert await comes_true(look, seconds=SOON_SECONDS)


@attrs.define
class Stable:
    """A stand-in, a provider over it, and where work is done."""

    cluster: FakeCluster
    provider: AgentSandboxProvider
    folder: Path

    def spec(self, **changes: object) -> SandboxSpec:
        return attrs.evolve(
            SandboxSpec(workdir=str(self.folder / "work")),
            **changes,  # type: ignore[arg-type]
        )

    @asynccontextmanager
    async def open_again(
        self, **changes: object
    ) -> AsyncGenerator[AgentSandboxProvider]:
        config = attrs.evolve(config_for(self.cluster), **changes)  # type: ignore[arg-type]
        async with open_agent_sandbox(config) as provider:
            yield provider


@asynccontextmanager
async def stable(folder: Path) -> AsyncGenerator[Stable]:
    async with (
        fake_cluster(folder) as cluster,
        open_agent_sandbox(config_for(cluster)) as provider,
    ):
        yield Stable(cluster, provider, folder)


@attrs.frozen
class Onlooker:
    """Looks at the stand-in itself."""

    cluster: FakeCluster

    async def left(self, label: ClaimLabel) -> tuple[str, ...]:
        found = self.cluster.get("sandboxclaims", name_of(label))
        return () if found is None else (f"claim {name_of(label)}",)


def provider_context(at: Stable) -> ProviderContext:
    async def end_outside(label: ClaimLabel) -> None:
        at.cluster.drop("sandboxclaims", name_of(label))

    spec = at.spec()
    return ProviderContext(
        provider=at.provider,
        open_again=at.open_again,
        spec=spec,
        new_label=new_label,
        other_owner=OTHER_OWNER,
        observe=Onlooker(at.cluster),
        creates_at_once=9,
        end_outside=end_outside,
        failing_spec=attrs.evolve(spec, provider_options={"warmpool": "no-such-pool"}),
    )
