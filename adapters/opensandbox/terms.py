# SPDX-License-Identifier: Apache-2.0
"""What a server can do and what it is asked for in vain, without asking it."""

import attrs

from ...ports.required.sandbox_provider import (
    Capabilities,
    Capability,
    ProviderTerms,
    SandboxSpec,
)
from .config import OpenSandboxConfig
from .spec_terms import check_spec

EGRESS = frozenset({Capability.NETWORK_NONE, Capability.NETWORK_LISTED})
"""Where the server enforces policies; nothing goes out, but an interface stays."""
MOUNTING = frozenset({Capability.MOUNTS})
CAPABILITIES = frozenset(Capability) - EGRESS - MOUNTING - {Capability.HOST_FILES}


def terms_of(config: OpenSandboxConfig) -> ProviderTerms:
    """Return what is known of a provider that is configured like that."""
    able: Capabilities = CAPABILITIES
    if config.egress:
        able |= EGRESS
    if config.host_mounts:
        able |= MOUNTING

    def check(spec: SandboxSpec) -> None:
        asked = with_image(spec, config)
        check_spec(asked, provider=config.name, capabilities=able)

    return ProviderTerms(capabilities=able, check=check)


def with_image(spec: SandboxSpec, config: OpenSandboxConfig) -> SandboxSpec:
    """Return the spec with the configured image, where it names neither of the two."""
    if spec.image is None and "snapshot" not in spec.provider_options:
        return attrs.evolve(spec, image=config.image)
    return spec
