# SPDX-License-Identifier: Apache-2.0
"""Both contract suites over the in-process stand-in, less what it cannot show."""

from pathlib import Path

import pytest

from livery.ports.contracts import sandbox, sandbox_provider
from livery.ports.contracts.cases import Case
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.contracts.sandbox_provider import ProviderContext

from ..contracts.parameters import parameters
from .stand_in import HERE, PROVIDER_HOOKS, new_label, provider_context, stable

pytestmark = pytest.mark.anyio

EXECS_MANY = 60


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
