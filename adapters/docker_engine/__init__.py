# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are containers of a Docker Engine."""

from .making import Pull
from .sandbox_provider import (
    DockerEngineConfig,
    DockerSandboxProvider,
    open_docker_engine,
)

__all__ = [
    "DockerEngineConfig",
    "DockerSandboxProvider",
    "Pull",
    "open_docker_engine",
]
