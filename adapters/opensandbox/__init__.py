# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of an OpenSandbox server, over its lifecycle and execd APIs."""

from .config import OpenSandboxConfig
from .sandbox import OpenSandbox
from .sandbox_provider import OpenSandboxProvider, open_opensandbox
from .terms import CAPABILITIES, terms_of

__all__ = [
    "CAPABILITIES",
    "OpenSandbox",
    "OpenSandboxConfig",
    "OpenSandboxProvider",
    "open_opensandbox",
    "terms_of",
]
