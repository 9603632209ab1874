# SPDX-License-Identifier: Apache-2.0
"""A provider of somebody else's keeps the promises of the sandbox ports."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from livery.adapters.local_host import CAPABILITIES
from livery.entrypoints.plug_ins import ProviderPlugIn, Surroundings, find
from livery.entrypoints.settings_reading import structured
from livery.ports.contracts import sandbox, sandbox_provider
from livery.ports.contracts.cases import Case
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import (
    CapacityExhausted,
    SandboxProvider,
    SandboxSpec,
)

from ..contracts.parameters import parameters
from ..local_host import places
from .conftest import Install

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(root: Path, **options: object) -> AsyncGenerator[SandboxProvider]:
    plug_in = find(ProviderPlugIn, "shed", {})
    read = structured(plug_in.options, {"folder": str(root), **options})
    surroundings = Surroundings(name="shed", state=root.parent)
    async with plug_in.open(surroundings, read) as provider:
        yield provider


@pytest.mark.parametrize(
    "case",
    parameters(sandbox.CASES, capabilities=CAPABILITIES, hooks=frozenset()),
)
async def test_sandbox(
    case: Case[SandboxContext], installed: Install, tmp_path: Path
) -> None:
    installed()
    async with opened(tmp_path / "shed") as provider:
        label = places.new_label()
        made = await provider.create(label, SandboxSpec())
        await case.run(SandboxContext(sandbox=made, capabilities=provider.capabilities))
        await provider.destroy(label)


@pytest.mark.parametrize(
    "case",
    parameters(
        sandbox_provider.CASES,
        capabilities=CAPABILITIES,
        hooks=frozenset({"end_outside", "failing_spec"}),
    ),
)
async def test_provider(
    case: Case[ProviderContext], installed: Install, tmp_path: Path
) -> None:
    installed()
    root = tmp_path / "shed"
    async with opened(root) as provider:
        context = attrs.evolve(
            places.provider_context(provider, root),  # type: ignore[arg-type]
            open_again=lambda: opened(root),
        )
        await case.run(context)


async def test_a_full_shed_says_so(installed: Install, tmp_path: Path) -> None:
    installed()
    async with opened(tmp_path / "shed", sandboxes_max=1) as provider:
        first, second = places.new_label(), places.new_label()
        await provider.create(first, SandboxSpec())

        with pytest.raises(CapacityExhausted, match="sandboxes_max is 1"):
            await provider.create(second, SandboxSpec())

        await provider.destroy(first)
        await provider.create(second, SandboxSpec())
        await provider.destroy(second)
