# SPDX-License-Identifier: Apache-2.0
"""Options of the provider `opensandbox`, and the configuration that they make."""

from typing import Annotated, Literal

import attrs

from ..adapters.opensandbox import OpenSandboxConfig
from .plug_ins import Surroundings
from .secret_references import Secret
from .server_urls import to_url
from .setting_words import Name, Range, doc


@attrs.frozen(kw_only=True)
class OpenSandboxOptions:
    """Options of the provider `opensandbox`."""

    address: Name = attrs.field(
        default="http://127.0.0.1:8080",
        metadata=doc("Where the server is."),
    )
    api_key: Secret | None = attrs.field(
        default=None,
        metadata=doc("The server's key. none: it asks for none."),
    )
    through_server: bool = attrs.field(
        default=False,
        metadata=doc(
            "Whether sandboxes are reached by the server's own proxy, where this host"
            " does not reach their addresses."
        ),
    )
    endpoint_scheme: Literal["http", "https"] = attrs.field(
        default="http",
        metadata=doc("Of the sandboxes' addresses, where the server leaves it out."),
    )
    egress: bool = attrs.field(
        default=False,
        metadata=doc(
            "Whether the server has its egress sidecar, in the mode dns+nft: the networks"
            " none and listed can be asked for. Each sandbox is probed from inside."
        ),
    )
    probe_addresses: tuple[Name, ...] = attrs.field(
        default=("1.1.1.1:443", "8.8.8.8:53"),
        metadata=doc("What a closed sandbox must not reach, HOST:PORT each."),
    )
    probe_names: tuple[Name, ...] = attrs.field(
        default=("example.com", "example.org"),
        metadata=doc("What must not resolve in a closed sandbox."),
    )
    host_mounts: bool = attrs.field(
        default=False,
        metadata=doc("Whether the server allow-lists folders of its host for mounts."),
    )
    lease_seconds: Annotated[float, Range(above=0)] = attrs.field(
        default=3600.0,
        metadata=doc(
            "How far ahead of now a sandbox in use is to end. It is renewed, up to its"
            " lifetime; when Livery is gone, it ends that much later at the latest."
        ),
    )
    python: Name = attrs.field(
        default="python3",
        metadata=doc("The Python that is looked for in an image."),
    )

    def config(self, surroundings: Surroundings) -> OpenSandboxConfig:
        """Return what the provider is opened with.

        Raises:
            SecretMissing: The key is not where the settings say.
            UrlRefused: The address is none.
        """
        key = self.api_key
        return OpenSandboxConfig(
            name=surroundings.name,
            address=to_url(f"sandbox.{surroundings.name}: address", self.address),
            api_key="" if key is None else key.revealed(surroundings.secrets),
            through_server=self.through_server,
            endpoint_scheme=self.endpoint_scheme,
            egress=self.egress,
            probe_addresses=self.probe_addresses,
            probe_names=self.probe_names,
            host_mounts=self.host_mounts,
            lease_seconds=self.lease_seconds,
            python=self.python,
        )
