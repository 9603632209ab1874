# SPDX-License-Identifier: Apache-2.0
"""Outfits put together: the program's source, the gateway, and each provider's ways.

There is one of it in a process, so that a program is fetched, hashed and packed once,
and its way into all sandboxes together is bounded.
"""

import platform
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import attrs

from ..adapters.host_ports import dial_url
from ..adapters.local_runtimes import LocalRuntimeSource
from ..adapters.npm_registry import open_npm_registry
from ..adapters.runtime_cache import RuntimeCache, cache_path
from ..adapters.tool_servers import HostToolServers
from ..adapters.worker_scripts import program
from ..ports.provided.bring_program import BringProgram
from ..ports.provided.check_tools import PROGRAM as TOOL_SERVERS
from ..ports.provided.check_tools import CheckTools
from ..ports.provided.equip_sessions import EquipSessions, Site
from ..ports.provided.install_runtime import InstallRuntime
from ..ports.provided.mount_runtime import MountedRuntime
from ..ports.provided.secret_values import SecretValues
from ..ports.provided.send_parts import PartLanes
from ..ports.required.artifact_store import ArtifactStore
from ..ports.required.clock import Clock
from ..ports.required.faults import Fault
from ..ports.required.harness import Harness, RuntimeNeed
from ..ports.required.runtime_source import RuntimeSource
from ..ports.required.sandbox import Sandbox
from ..ports.required.sandbox_provider import (
    Capability,
    Network,
    SandboxProvider,
    SandboxSpec,
)
from ..ports.required.sandbox_streams import Dial, DuplexStream
from ..ports.required.tool_servers import ToolServers
from .model_settings import ModelSettings, check_model_url
from .plug_ins import ExtraMissing

if TYPE_CHECKING:
    from .model_gateway import OpenGateway

_CANONICAL = {"amd64": "x86_64", "arm64": "aarch64"}


@attrs.frozen
class ModelMissing(Fault):
    """A harness has no model to ask."""

    kind: ClassVar[str] = "model_missing"
    message: ClassVar[str] = (
        "Harness {harness} has no model: give --model-url, or url in [model], or name a"
        " server that needs no credential in the harness's options."
    )

    harness: str


@attrs.frozen(kw_only=True)
class Tailor:
    """What outfits are made of; open."""

    program: BringProgram | None
    gateway: "OpenGateway | None"
    keeps_prefix: bool

    def site(self, provider: SandboxProvider, network: Network) -> Site:
        """Return what is known of a provider's sandboxes that others have made."""
        gateway, able = self.gateway, provider.capabilities
        return Site(
            network=network,
            relays=gateway is not None and gateway.relays(network, able),
            sees_host=Capability.ISOLATION not in able,
        )

    async def fitted(
        self, provider: SandboxProvider, spec: SandboxSpec, *, lends_own: bool
    ) -> tuple[SandboxSpec, Site]:
        """Return the sandbox to ask a provider for, and what is then known of it.

        Raises:
            RuntimeUnavailable: What is to be mounted is not to be had.
        """
        mounts: tuple[MountedRuntime, ...] = ()
        if self.program is not None:
            mounts = await self.program.mounts(provider.capabilities)
        site = attrs.evolve(
            self.site(provider, spec.network),
            mounted={one.platform: one.mount.target for one in mounts},
            lends_own=lends_own,
        )
        more = tuple(one.mount for one in mounts)
        return attrs.evolve(spec, mounts=(*spec.mounts, *more)), site

    def outfit(
        self, sites: Mapping[str, Site], artifacts: ArtifactStore
    ) -> EquipSessions | None:
        """Return the outfit of a harness's sessions; None when it needs nothing."""
        if self.program is None and self.gateway is None:
            return None
        return EquipSessions(
            sites=sites,
            artifacts=artifacts,
            program=self.program,
            model=None if self.gateway is None else self.gateway.reach,
            keeps_prefix=self.keeps_prefix,
            dial=_dialling(HostToolServers()),
        )


def _dialling(servers: ToolServers) -> Callable[[str], Dial]:
    """Return what gives the connection to where a sandbox may have the tools at a URL."""

    def dial_of(url: str) -> Dial:
        dial_url(url)  # It raises `BadTarget` for what no relay can carry.

        async def dial() -> DuplexStream:
            return await dial_url(await servers.for_sandboxes(url))()

        return dial

    return dial_of


def tools_check(sites: Mapping[str, Site]) -> CheckTools:
    """Return the look at granted tools, from where each provider's sandboxes see them."""

    def is_relayed(sandbox: Sandbox) -> bool:
        return sites.get(sandbox.access().provider, Site()).relays

    return CheckTools(
        servers=HostToolServers(),
        program=program(TOOL_SERVERS),
        is_relayed=is_relayed,
    )


def uses_gateway(harness: Harness, settings: ModelSettings) -> bool:
    """Tell whether the harness's model is reached through the gateway.

    Raises:
        ModelMissing: It needs a model, and the settings name none.
        ModelUrlRefused: What they name is no address.
    """
    # None: it asks no model over its place. (`ModelHarness`)
    has_own_model: bool | None = getattr(harness, "has_own_model", None)
    if has_own_model is None or settings.url is None:
        if has_own_model is False:
            raise ModelMissing(harness.name)
        return False
    check_model_url(settings)
    return True


@asynccontextmanager
async def open_tailor(
    harness: Harness,
    settings: ModelSettings,
    *,
    secrets: SecretValues,
    installation_secret: str,
    clock: Clock,
    artifacts: ArtifactStore,
) -> AsyncGenerator[Tailor]:
    """Open what the harness's sessions are equipped with, until the block is left.

    Raises:
        ModelMissing: It needs a model, and the settings name none.
        ExtraMissing: The libraries of the gateway are not installed.
        Fault: As `open_model_gateway` and `RuntimeCache` say.
    """
    need: RuntimeNeed | None = getattr(harness, "runtime", None)
    found = None if need is None else _program(need, clock)
    if not uses_gateway(harness, settings):
        yield Tailor(program=found, gateway=None, keeps_prefix=False)
        return
    try:
        from .model_gateway import open_model_gateway
    except ModuleNotFoundError as error:
        missing = str(error.name)
        raise ExtraMissing("gateway to", "model", missing, "server") from error
    async with open_model_gateway(
        settings,
        secrets=secrets,
        installation_secret=installation_secret,
        clock=clock,
        artifacts=artifacts,
    ) as gateway:
        yield Tailor(program=found, gateway=gateway, keeps_prefix=settings.nemo_gym)


def _program(need: RuntimeNeed, clock: Clock) -> BringProgram:
    machine = platform.machine()
    return BringProgram(
        need=need,
        install=InstallRuntime(
            source=_source(need),
            program=program("runtimes"),
            lanes=PartLanes(),
            clock=clock,
        ),
        machine=_CANONICAL.get(machine, machine),
    )


def _source(need: RuntimeNeed) -> RuntimeSource:
    cache = RuntimeCache(cache_path())
    if need.host_path is None:
        return open_npm_registry(cache)
    assert need.sha256 is not None, "a path comes with its digest"
    return LocalRuntimeSource(
        path=Path(need.host_path), sha256=need.sha256, cache=cache
    )
