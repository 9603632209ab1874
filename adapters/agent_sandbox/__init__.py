# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that SandboxClaims take from the warm pools of a Kubernetes cluster."""

from .configuration import CAPABILITIES, AgentSandboxConfig
from .connections import ConnectionConfig, Mode
from .hands import HandsConfig
from .kubernetes_package import ClusterAddress
from .sandbox_provider import AgentSandboxProvider, open_agent_sandbox
from .terms import terms_of

__all__ = [
    "AgentSandboxConfig",
    "AgentSandboxProvider",
    "CAPABILITIES",
    "ClusterAddress",
    "ConnectionConfig",
    "HandsConfig",
    "Mode",
    "open_agent_sandbox",
    "terms_of",
]
