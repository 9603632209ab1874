# SPDX-License-Identifier: Apache-2.0
"""What an engine can do and what it is asked for in vain, without asking it."""

import attrs

from ...ports.required.sandbox_provider import (
    Capability,
    Network,
    ProviderTerms,
    SandboxSpec,
    Unsupported,
)
from .config import DockerEngineConfig
from .container_config import check_spec
from .engine_address import EngineAddress, to_address


def terms_of(config: DockerEngineConfig) -> ProviderTerms:
    """Return what is known of a provider that is configured like that.

    Raises:
        SpecRefused: The address is of a kind that is not spoken here.
    """
    return terms_at(to_address(config.address, provider=config.name), config)


def terms_at(address: EngineAddress, config: DockerEngineConfig) -> ProviderTerms:
    """Return what is known of a provider whose engine is there."""
    able = {*Capability}
    able.discard(Capability.NETWORK_LISTED)
    if not address.is_here:
        able.discard(Capability.PORTS)
    if address.path is None:
        able.discard(Capability.HOST_FILES)

    def check(spec: SandboxSpec) -> None:
        check_spec(with_image(spec, config), provider=config.name)
        if spec.ports and Capability.PORTS not in able:
            raise Unsupported(
                provider=config.name,
                capability=Capability.PORTS.value,
                detail="the engine is on another host, and ports are for its loopback",
            )
        if spec.network is Network.LISTED:
            raise Unsupported(
                provider=config.name,
                capability=Capability.NETWORK_LISTED.value,
                detail="its networks are open or closed as a whole",
            )

    return ProviderTerms(capabilities=frozenset(able), check=check)


def with_image(spec: SandboxSpec, config: DockerEngineConfig) -> SandboxSpec:
    """Return the spec with the configured image, where it names none."""
    return attrs.evolve(spec, image=config.image) if spec.image is None else spec
