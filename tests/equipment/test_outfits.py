# SPDX-License-Identifier: Apache-2.0
"""What a harness's sessions are equipped with follows from harness, model and provider."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.harnesses.claude_code import ClaudeCodeConfig, ClaudeCodeHarness
from livery.adapters.harnesses.nop import NopHarness
from livery.adapters.system_clock import SystemClock
from livery.domain.agent_sessions import AgentSessionId
from livery.entrypoints.model_settings import ModelSettings
from livery.entrypoints.outfits import ModelMissing, Tailor, open_tailor
from livery.ports.provided.equip_sessions import Site
from livery.ports.provided.secret_values import SecretValues
from livery.ports.required.harness import Harness, RuntimeNeed
from livery.ports.required.sandbox_provider import Capability, Network, SandboxSpec

from ..runtimes.registry import NAME, VERSION
from ..runtimes.sandboxes import host_in
from ..use_cases.outside import BreakableProvider

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1:9"
ISOLATED = BreakableProvider(capabilities=frozenset(Capability))
HOST = BreakableProvider(capabilities=frozenset({Capability.LENDING}))


@asynccontextmanager
async def tailor(harness: Harness, settings: ModelSettings) -> AsyncGenerator[Tailor]:
    async with open_tailor(
        harness,
        settings,
        secrets=SecretValues(),
        installation_secret="installation",
        clock=SystemClock(),
        artifacts=MemoryArtifactStore(),
    ) as opened:
        yield opened


async def test_a_harness_without_a_program_or_a_model_needs_no_outfit() -> None:
    async with tailor(NopHarness(), ModelSettings(url=URL)) as opened:
        spec, site = await opened.fitted(ISOLATED, SandboxSpec(), lends_own=True)

        assert opened.outfit({"docker": site}, MemoryArtifactStore()) is None
        assert spec == SandboxSpec()
        assert site == Site(lends_own=True)


async def test_a_harness_that_has_no_model_is_refused_before_anything() -> None:
    own = ClaudeCodeHarness(config=ClaudeCodeConfig(base_url=URL))

    with pytest.raises(ModelMissing, match="--model-url"):
        async with tailor(ClaudeCodeHarness(), ModelSettings()):
            pass
    async with tailor(own, ModelSettings()) as opened:
        assert opened.gateway is None


async def test_a_session_of_a_harness_with_a_model_reaches_the_gateway() -> None:
    settings = ModelSettings(url=URL, nemo_gym=True)
    async with tailor(ClaudeCodeHarness(), settings) as opened:
        outfit = opened.outfit({}, MemoryArtifactStore())

        assert outfit is not None
        assert outfit.keeps_prefix
        assert outfit.model is not None
        grant = await outfit.model.access.grant(AgentSessionId("s"))
        assert grant.base_url.startswith("http://127.0.0.1:")


async def test_a_sandbox_without_a_way_to_this_host_has_the_relay() -> None:
    advertised = ModelSettings(url=URL, advertised_url="http://10.0.0.1:8000")
    async with tailor(ClaudeCodeHarness(), advertised) as opened:
        ways = [
            opened.site(provider, network).relays
            for provider in (ISOLATED, HOST)
            for network in Network
        ]

        assert ways[:3] == [network is not Network.DEFAULT for network in Network]
        assert ways[3:] == [False] * 3
        assert opened.site(HOST, Network.DEFAULT).sees_host
        assert not opened.site(ISOLATED, Network.DEFAULT).sees_host


async def test_a_new_sandbox_sees_the_program_of_this_host(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        path = str(host.source.path)
        need = RuntimeNeed(
            name=NAME, version=VERSION, host_path=path, sha256=host.source.sha256
        )
        config = ClaudeCodeConfig(base_url=URL, runtime=need)
        async with tailor(ClaudeCodeHarness(config=config), ModelSettings()) as opened:
            spec, site = await opened.fitted(ISOLATED, SandboxSpec(), lends_own=False)
            (mount,) = spec.mounts

            assert (mount.source, mount.read_only) == (path, True)
            assert list(site.mounted.values()) == [mount.target]
            assert opened.outfit({"docker": site}, MemoryArtifactStore()) is not None


async def test_a_version_is_asked_of_the_registry_when_it_is_needed() -> None:
    need = RuntimeNeed(name=NAME, version=VERSION)
    config = ClaudeCodeConfig(base_url=URL, runtime=need)
    async with tailor(ClaudeCodeHarness(config=config), ModelSettings()) as opened:
        spec, site = await opened.fitted(HOST, SandboxSpec(), lends_own=False)

        assert opened.program is not None
        assert opened.program.need == need
        assert spec.mounts == ()
        assert attrs.evolve(site, sees_host=False) == Site()
