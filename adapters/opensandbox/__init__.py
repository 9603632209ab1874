# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of an OpenSandbox server, over its lifecycle and execd APIs."""

from .config import OpenSandboxConfig
from .sandbox import OpenSandbox
from .sandbox_provider import (
    CAPABILITIES,
    OpenSandboxProvider,
    open_opensandbox,
)

__all__ = [
    "CAPABILITIES",
    "OpenSandbox",
    "OpenSandboxConfig",
    "OpenSandboxProvider",
    "open_opensandbox",
]
