# SPDX-License-Identifier: Apache-2.0
"""The provider keeps the promises of the sandbox ports.

Both suites run over a stand-in in this process, less what that cannot show, and over
a real API server with Docker containers for pods.
"""

from pathlib import Path

import pytest

from livery.ports.contracts import sandbox, sandbox_provider
from livery.ports.contracts.cases import Case
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import SandboxSpec

from ..cluster.cluster import Cluster
from ..contracts.parameters import parameters
from . import real
from .stand_in import HERE, PROVIDER_HOOKS, new_label, provider_context, stable

pytestmark = pytest.mark.anyio

EXECS_MANY = 60


on_the_cluster = pytest.mark.peer("docker", "kubernetes")


@pytest.mark.parametrize(
    "case", parameters(sandbox.CASES, capabilities=HERE, hooks=frozenset())
)
async def test_sandbox(case: Case[SandboxContext], tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        made = await at.provider.create(new_label(), at.spec())
        await case.run(
            SandboxContext(
                sandbox=made,
                capabilities=HERE,
                long_command_seconds=2.0,
                execs_many=EXECS_MANY,
            )
        )


@pytest.mark.parametrize(
    "case",
    parameters(sandbox_provider.CASES, capabilities=HERE, hooks=PROVIDER_HOOKS),
)
async def test_provider(case: Case[ProviderContext], tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        await case.run(provider_context(at))


@on_the_cluster
@pytest.mark.parametrize(
    "case",
    parameters(sandbox.CASES, capabilities=real.CAN, hooks=frozenset()),
)
async def test_sandbox_of_a_cluster(
    case: Case[SandboxContext], cluster: Cluster, python_pool: str
) -> None:
    async with real.real(cluster, python_pool) as at:
        label = at.label()
        made = await at.provider.create(label, SandboxSpec())
        try:
            await case.run(
                SandboxContext(
                    sandbox=made,
                    capabilities=real.CAN,
                    execs_many=EXECS_MANY,
                )
            )
        finally:
            await at.provider.destroy(label)


@on_the_cluster
@pytest.mark.parametrize(
    "case",
    parameters(
        sandbox_provider.CASES, capabilities=real.CAN, hooks=real.PROVIDER_HOOKS
    ),
)
async def test_provider_on_a_cluster(
    case: Case[ProviderContext], cluster: Cluster, python_pool: str
) -> None:
    async with real.real(cluster, python_pool) as at:
        await case.run(at.provider_context())
