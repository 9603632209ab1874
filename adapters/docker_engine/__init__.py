# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are containers of a Docker Engine."""

from .config import DockerEngineConfig
from .making import Pull
from .sandbox_provider import DockerSandboxProvider, open_docker_engine
from .terms import terms_of

__all__ = [
    "DockerEngineConfig",
    "DockerSandboxProvider",
    "Pull",
    "open_docker_engine",
    "terms_of",
]
