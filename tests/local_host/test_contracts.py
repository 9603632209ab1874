# SPDX-License-Identifier: Apache-2.0
"""The local provider keeps the promises of the sandbox ports."""

from pathlib import Path

import pytest

from livery.adapters.local_host import CAPABILITIES, LocalHostSandboxProvider
from livery.ports.contracts import sandbox, sandbox_provider
from livery.ports.contracts.cases import Case
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import SandboxSpec

from ..contracts.parameters import parameters
from . import places

pytestmark = pytest.mark.anyio

PROVIDER_HOOKS = frozenset({"end_outside", "failing_spec"})
SANDBOX_HOOKS = places.sandbox_hooks()


@pytest.mark.parametrize(
    "case",
    parameters(sandbox.CASES, capabilities=CAPABILITIES, hooks=SANDBOX_HOOKS),
)
async def test_sandbox(
    case: Case[SandboxContext], provider: LocalHostSandboxProvider
) -> None:
    label = places.new_label()
    made = await provider.create(label, SandboxSpec())
    with places.odd_folders(Path(made.workdir), case.hooks) as folders:
        context = SandboxContext(
            sandbox=made,
            capabilities=CAPABILITIES,
            full_folder=folders.get("full_folder"),
            forbidden_folder=folders.get("forbidden_folder"),
        )
        await case.run(context)
    await provider.destroy(label)


@pytest.mark.parametrize(
    "case",
    parameters(sandbox_provider.CASES, capabilities=CAPABILITIES, hooks=PROVIDER_HOOKS),
)
async def test_provider(
    case: Case[ProviderContext], provider: LocalHostSandboxProvider, root: Path
) -> None:
    await case.run(places.provider_context(provider, root))
