# SPDX-License-Identifier: Apache-2.0
"""The provider `local`: folders and processes of this host, without isolation."""

from .host_settings import LocalHostConfig
from .sandbox import LocalHostSandbox
from .sandbox_provider import LocalHostSandboxProvider, open_local_host
from .spec_terms import CAPABILITIES, terms_of

__all__ = [
    "CAPABILITIES",
    "LocalHostConfig",
    "LocalHostSandbox",
    "LocalHostSandboxProvider",
    "open_local_host",
    "terms_of",
]
