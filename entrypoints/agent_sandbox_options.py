# SPDX-License-Identifier: Apache-2.0
"""The options of the provider `agent_sandbox`, and what they make of it."""

from collections.abc import Mapping
from typing import Annotated, Literal

import attrs

from ..adapters.agent_sandbox import (
    AgentSandboxConfig,
    ClusterAddress,
    ConnectionConfig,
    HandsConfig,
    Mode,
)
from .plug_ins import Surroundings
from .secret_references import Secret
from .setting_words import Name, Range, Seconds, doc

Modes = Literal["in_cluster", "gateway", "direct"]
Port = Annotated[int, Range(least=1, most=65535)]
Probes = Annotated[int, Range(least=1, most=100)]


@attrs.frozen(kw_only=True)
class AgentSandboxOptions:
    """Options of the provider `agent_sandbox`."""

    namespace: Name = attrs.field(
        default="default", metadata=doc("Where claims are made.")
    )
    namespaces: tuple[Name, ...] = attrs.field(
        default=(),
        metadata=doc(
            "Other namespaces that sandbox_options.namespace may name; claims are"
            " looked for in these too."
        ),
    )
    warmpool: Name | None = attrs.field(
        default=None,
        metadata=doc("The SandboxWarmPool for what no other word sends elsewhere."),
    )
    image_warmpools: Mapping[str, str] = attrs.field(
        factory=dict[str, str], metadata=doc("Pools by the image that they serve.")
    )
    kubeconfig: Name | None = attrs.field(
        default=None,
        metadata=doc("The file with the cluster. none: $KUBECONFIG, else the usual."),
    )
    context: Name | None = attrs.field(
        default=None, metadata=doc("Its context. none: the current one.")
    )
    in_cluster: bool = attrs.field(
        default=False,
        metadata=doc("Whether the service account of this pod is used instead."),
    )
    mode: Modes = attrs.field(
        default="in_cluster",
        metadata=doc(
            "How sandboxes are reached: in_cluster by the pod's address, gateway"
            " through a Gateway's, direct through the router at api_url."
        ),
    )
    server_port: Port = attrs.field(
        default=8888, metadata=doc("The port of the sandbox's runtime server.")
    )
    api_url: Name | None = attrs.field(
        default=None, metadata=doc("The router, for direct.")
    )
    gateway_name: Name | None = attrs.field(
        default=None, metadata=doc("The Gateway, for gateway.")
    )
    gateway_namespace: Name = attrs.field(
        default="default", metadata=doc("Where the Gateway is.")
    )
    gateway_ready_timeout_seconds: Seconds = attrs.field(
        default=60.0, metadata=doc("How long the Gateway may be without an address.")
    )
    token: Secret | None = attrs.field(
        default=None,
        metadata=doc("A bearer token for the router, which does not pass it on."),
    )
    ca_file: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "Certificates of who signs the router's. none: the well-known ones."
        ),
    )
    python: Name = attrs.field(
        default="python3",
        metadata=doc("The Python that is looked for in a sandbox."),
    )
    probes_count: Probes = attrs.field(
        default=1,
        metadata=doc("How many commands must answer in a row before one is used."),
    )
    probes_pause_seconds: Seconds = attrs.field(
        default=1.0, metadata=doc("The time between two of them.")
    )
    close_timeout_seconds: Seconds = attrs.field(
        default=60.0,
        metadata=doc("How long a sandbox may take to be gone; then it is left open."),
    )

    def config(self, surroundings: Surroundings) -> AgentSandboxConfig:
        """Return the provider's configuration.

        Raises:
            SecretMissing: The token cannot be had.
        """
        token = (
            None if self.token is None else self.token.revealed(surroundings.secrets)
        )
        return AgentSandboxConfig(
            name=surroundings.name,
            cluster=ClusterAddress(
                kubeconfig=self.kubeconfig,
                context=self.context,
                in_cluster=self.in_cluster,
            ),
            connection=ConnectionConfig(
                mode=Mode(self.mode),
                server_port=self.server_port,
                api_url=self.api_url,
                gateway_name=self.gateway_name,
                gateway_namespace=self.gateway_namespace,
                gateway_ready_seconds=self.gateway_ready_timeout_seconds,
                token=token,
                ca_file=self.ca_file,
            ),
            namespace=self.namespace,
            namespaces=self.namespaces,
            warmpool=self.warmpool,
            image_warmpools=self.image_warmpools,
            hands=HandsConfig(python=self.python),
            probes_count=self.probes_count,
            probes_pause_seconds=self.probes_pause_seconds,
            close_seconds=self.close_timeout_seconds,
        )
