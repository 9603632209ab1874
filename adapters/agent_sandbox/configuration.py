# SPDX-License-Identifier: Apache-2.0
"""How the provider is configured, and what it can do as configured."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs

from ...ports.required.sandbox_provider import Capability, SpecRefused
from ..http_client import Patience, names_a_place
from .connections import ConnectionConfig, Mode
from .hands import HandsConfig
from .kubernetes_package import ClusterAddress

CLOSE_SECONDS = 60.0
CONNECT_SECONDS = 60.0
CAPABILITIES = frozenset(
    {
        Capability.ISOLATION,
        Capability.IMAGES,
        Capability.RESOURCE_LIMITS,
        Capability.PORTS,
        Capability.USERS,
        Capability.EXPIRY,
        Capability.LENDING,
    }
)
"""Resource limits and users may be asked for, and are the template's to give."""


@attrs.frozen(kw_only=True)
class AgentSandboxConfig:
    """How the cluster is used."""

    name: str = "agent_sandbox"
    """The provider's name in configuration and messages."""
    cluster: ClusterAddress = attrs.field(factory=ClusterAddress)
    connection: ConnectionConfig = attrs.field(factory=ConnectionConfig)
    namespace: str = "default"
    namespaces: tuple[str, ...] = ()
    """Others that `provider_options.namespace` may name."""
    warmpool: str | None = None
    image_warmpools: Mapping[str, str] = attrs.field(factory=dict[str, str])
    managed_by: str = "livery"
    hands: HandsConfig = attrs.field(factory=HandsConfig)
    """How work is done in a sandbox."""
    probes_count: int = 1
    """How many commands in a row must answer before a sandbox is given out."""
    probes_pause_seconds: float = 1.0
    connect_seconds: float = CONNECT_SECONDS
    """How long a sandbox that is found or lent may take to answer."""
    close_seconds: float = CLOSE_SECONDS
    """How long a sandbox may take to be seen gone."""
    patience: Patience = attrs.field(factory=Patience)
    """For calls of the API server."""


def check_config(config: AgentSandboxConfig) -> None:
    """Say no to a way of connection that lacks what it needs.

    Raises:
        SpecRefused: The field that is missing.
    """
    connection = config.connection
    needed = {
        Mode.DIRECT: ("connection.api_url", connection.api_url),
        Mode.GATEWAY: ("connection.gateway_name", connection.gateway_name),
    }
    field, value = needed.get(connection.mode, ("", "-"))
    if not value:
        raise SpecRefused(
            provider=config.name,
            field=field,
            reason=f"the connection mode {connection.mode.value} needs it",
        )
    if connection.mode is Mode.DIRECT and not _is_url(connection.api_url or ""):
        raise SpecRefused(
            provider=config.name,
            field="connection.api_url",
            reason="it is no http:// or https:// address",
        )


def _is_url(text: str) -> bool:
    return names_a_place(text) and urlsplit(text).scheme in {"http", "https"}
