# SPDX-License-Identifier: Apache-2.0
"""How an engine is used: what the provider is opened with."""

import attrs

from .making import Pull


@attrs.frozen(kw_only=True)
class DockerEngineConfig:
    """How the engine is used."""

    name: str = "docker"
    """The provider's name in configuration and messages."""
    address: str | None = None
    """`unix:///path` or `tcp://host:port`; `DOCKER_HOST`, else the usual socket."""
    image: str | None = None
    """For specs that name none."""
    pull: Pull = Pull.NEVER
    network: str = "bridge"
    """The engine's network for sandboxes that have one; it is not made here."""
    no_new_privileges: bool = True
    """Whether set-user-id programs (`sudo`) are without effect."""
    python: str = "python3"
    """What is looked for in an image to run the worker."""
