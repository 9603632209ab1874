# SPDX-License-Identifier: Apache-2.0
"""The local provider keeps the promises of the sandbox ports."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from livery.adapters.local_host import CAPABILITIES, LocalHostSandboxProvider
from livery.ports.contracts import sandbox, sandbox_provider
from livery.ports.contracts.cases import Case
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import SandboxSpec

from ..contracts.parameters import parameters
from .places import new_label, provider_context

pytestmark = pytest.mark.anyio

SANDBOX_HOOKS = frozenset({"full_folder"})
PROVIDER_HOOKS = frozenset({"end_outside", "failing_spec"})
FULL_BYTES = "1m"


@pytest.fixture
def full_folder(tmp_path: Path) -> Iterator[str]:
    """Give a place for a small file system, which is unmounted in the end."""
    yield str(tmp_path)


@pytest.mark.parametrize(
    "case",
    parameters(sandbox.CASES, capabilities=CAPABILITIES, hooks=frozenset()),
)
async def test_sandbox(
    case: Case[SandboxContext], provider: LocalHostSandboxProvider
) -> None:
    label = new_label()
    made = await provider.create(label, SandboxSpec())
    context = SandboxContext(sandbox=made, capabilities=CAPABILITIES)
    try:
        await case.run(context)
    finally:
        await provider.destroy(label)


@pytest.mark.parametrize(
    "case",
    parameters(
        sandbox_provider.CASES, capabilities=CAPABILITIES, hooks=PROVIDER_HOOKS
    ),
)
async def test_provider(
    case: Case[ProviderContext], provider: LocalHostSandboxProvider, root: Path
) -> None:
    await case.run(provider_context(provider, root))
