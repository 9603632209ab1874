# SPDX-License-Identifier: Apache-2.0
"""What a cluster's pools can do and what they are asked for in vain, without asking."""

from ...ports.required.sandbox_provider import ProviderTerms, SandboxSpec
from .configuration import CAPABILITIES, AgentSandboxConfig, check_config
from .manifests import Pools, check_spec, to_route


def terms_of(config: AgentSandboxConfig) -> ProviderTerms:
    """Return what is known of a provider that is configured like that.

    Raises:
        SpecRefused: The configuration lacks what its way of connection needs.
    """
    check_config(config)
    pools = pools_of(config)

    def check(spec: SandboxSpec) -> None:
        check_spec(spec, provider=config.name)
        to_route(spec, pools=pools)

    return ProviderTerms(capabilities=CAPABILITIES, check=check)


def pools_of(config: AgentSandboxConfig) -> Pools:
    """Return which warm pools serve what, as configured."""
    return Pools(
        provider=config.name,
        namespace=config.namespace,
        namespaces=config.namespaces,
        warmpool=config.warmpool,
        image_warmpools=config.image_warmpools,
    )
