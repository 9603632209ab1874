# SPDX-License-Identifier: Apache-2.0
"""A run over a world with apps: they are served on loopback while the run goes on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..ports.provided.in_process_resources import InProcessResources
from ..ports.required.apps import has_apps
from ..ports.required.participants import Resources
from ..ports.required.sandbox_provider import SandboxProvider, SandboxSpec
from .composition import Foundation, Parts
from .extras import apps_part
from .settings_reading import SettingsFile


@asynccontextmanager
async def open_apps(
    parts: Parts, foundation: Foundation, provider: SandboxProvider, spec: SandboxSpec
) -> AsyncGenerator[Resources | None]:
    """Open the resources of a world with apps; None for a world without.

    The agent calls them over MCP, with its session's token.

    Raises:
        ExtraMissing: The libraries that serve them are not installed.
    """
    if not has_apps(parts.world):
        yield None
        return
    apps_part(parts.world.name).check()
    from .resources_server.composition import open_resources

    async with open_resources(
        SettingsFile(),
        foundation.state,
        foundation.surroundings("run"),
        parts.world,
        provider,
        spec,
        foundation,
        restores=False,
    ) as application:
        yield InProcessResources(
            sessions=application.served,
            tools=lambda session: (application.over_mcp(session),),
        )
