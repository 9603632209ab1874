# SPDX-License-Identifier: Apache-2.0
"""How a server is used: what the provider is opened with."""

import ssl

import attrs

from ..http_client import Patience
from .network_policy import ADDRESSES, NAMES


@attrs.frozen(kw_only=True)
class OpenSandboxConfig:
    """How the server is used."""

    name: str = "opensandbox"
    """The provider's name in configuration and messages."""
    address: str = "http://127.0.0.1:8080"
    api_key: str = attrs.field(default="", repr=False)
    image: str | None = None
    """For specs that name none."""
    through_server: bool = False
    """Whether sandboxes are reached by the server's own proxy."""
    endpoint_scheme: str = "http"
    """Of the addresses of sandboxes, which the server gives without one."""
    host_mounts: bool = False
    """Whether the server allow-lists folders of its host."""
    egress: bool = False
    """Whether the server has its egress sidecar, in the mode that filters addresses."""
    probe_addresses: tuple[str, ...] = ADDRESSES
    """`host:port` each: what must not be reached where nobody allowed it."""
    probe_names: tuple[str, ...] = NAMES
    """What must not resolve where nobody allowed it."""
    lease_seconds: float = 3600.0
    """How far ahead of now a sandbox in use is to end."""
    python: str = "python3"
    """What is looked for in an image to run the worker."""
    patience: Patience = attrs.field(
        factory=lambda: Patience(attempts_max=12, pause_seconds_max=5.0)
    )
    """About 36 s in all: a server that is started again is waited for."""
    trust: ssl.SSLContext | None = None
