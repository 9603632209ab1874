# SPDX-License-Identifier: Apache-2.0
"""The blocks of the provider `agent_sandbox`, with the upstream provider's names.

A configuration of that one is read as it is; what is ours alone stands last in each
block.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from ..agent_sandbox_options import AgentSandboxOptions, Modes, Port
from ..secret_references import Secret
from ..setting_words import Name, Seconds, doc
from .blocks import DAY_SECONDS, ExecBlock, OperationsBlock, ProbeBlock

SHELL: Final = "/bin/sh"
"""What reads commands when `exec` says nothing of a shell."""


@attrs.frozen(kw_only=True)
class AgentConnectionBlock:
    """`connection`: how the cluster and its sandboxes are reached."""

    mode: Modes = attrs.field(
        default="in_cluster",
        metadata=doc("in_cluster by the pod's address, gateway, or direct: api_url."),
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
    gateway_ready_timeout_s: Seconds = attrs.field(
        default=60.0, metadata=doc("How long the Gateway may be without an address.")
    )
    kubeconfig: Name | None = attrs.field(
        default=None,
        metadata=doc("The file with the cluster. null: $KUBECONFIG, else the usual."),
    )
    context: Name | None = attrs.field(
        default=None, metadata=doc("Its context. null: the current one.")
    )
    in_cluster: bool = attrs.field(
        default=False,
        metadata=doc("Whether the service account of this pod is used instead."),
    )
    token: Secret | None = attrs.field(
        default=None, metadata=doc("For the router: {env: NAME} or {file: PATH}.")
    )
    ca_file: Name | None = attrs.field(
        default=None, metadata=doc("Certificates of who signs the router's.")
    )
    python: Name = attrs.field(
        default="python3", metadata=doc("What is looked for in a sandbox.")
    )


@attrs.frozen(kw_only=True)
class AgentCreateBlock:
    """`create`: which warm pool serves which spec."""

    warmpool: Name | None = attrs.field(
        default=None, metadata=doc("For what no other word sends elsewhere.")
    )
    namespace: Name = attrs.field(
        default="default", metadata=doc("Where claims are made.")
    )
    image_warmpools: Mapping[str, str] = attrs.field(
        factory=dict[str, str], metadata=doc("Pools by the image that they serve.")
    )
    ready_timeout_s: Seconds = attrs.field(
        default=180.0, metadata=doc("For specs without ready_timeout_s.")
    )
    namespaces: tuple[Name, ...] = attrs.field(
        default=(), metadata=doc("Others that provider_options.namespace may name.")
    )
    ttl_s: Seconds = attrs.field(
        default=DAY_SECONDS, metadata=doc("For specs without ttl_s.")
    )
    workdir: Name = attrs.field(
        default="/app", metadata=doc("For specs that name none; it is made.")
    )


@attrs.frozen(kw_only=True)
class AgentBlocks:
    """What the provider has beside its `connection`."""

    create: AgentCreateBlock = attrs.field(factory=AgentCreateBlock)
    exec: ExecBlock = attrs.field(factory=ExecBlock)
    probe: ProbeBlock = attrs.field(factory=ProbeBlock)
    operations: OperationsBlock = attrs.field(factory=OperationsBlock)


def to_options(
    connection: AgentConnectionBlock, blocks: AgentBlocks
) -> AgentSandboxOptions:
    """Return what the blocks say as the options of Livery's own provider."""
    return AgentSandboxOptions(
        namespace=blocks.create.namespace,
        namespaces=blocks.create.namespaces,
        warmpool=blocks.create.warmpool,
        image_warmpools=blocks.create.image_warmpools,
        kubeconfig=connection.kubeconfig,
        context=connection.context,
        in_cluster=connection.in_cluster,
        mode=connection.mode,
        server_port=connection.server_port,
        api_url=connection.api_url,
        gateway_name=connection.gateway_name,
        gateway_namespace=connection.gateway_namespace,
        gateway_ready_timeout_seconds=connection.gateway_ready_timeout_s,
        token=connection.token,
        ca_file=connection.ca_file,
        python=connection.python,
        probes_count=blocks.probe.stable_count,
        probes_pause_seconds=blocks.probe.stable_delay_s,
        close_timeout_seconds=blocks.operations.close_timeout_s,
    )
