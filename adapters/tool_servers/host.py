# SPDX-License-Identifier: Apache-2.0
"""The look at tool servers that the worker script takes in a sandbox, taken here."""

from functools import partial

import anyio.to_thread
import attrs

from ...ports.required.harness import ToolAccess
from ..worker_scripts import tool_servers
from .sandbox_side import sandbox_side

LOOKS_MAX = 8
"""How many threads look at once."""


@attrs.frozen
class HostToolServers:
    """The `ToolServers` of this host."""

    _looks: anyio.CapacityLimiter = attrs.field(
        factory=lambda: anyio.CapacityLimiter(LOOKS_MAX)
    )

    async def unreachable(
        self, tools: tuple[ToolAccess, ...], *, seconds: float
    ) -> tuple[tuple[str, str], ...]:
        """Return the names of those that do not answer in time, each with the reason."""
        servers = [
            {
                "name": tool.name,
                "kind": tool.transport.value,
                "url": tool.url,
                "headers": dict(tool.headers),
            }
            for tool in tools
        ]
        found = await anyio.to_thread.run_sync(
            # Straight, as harnesses on this host and relays go there.
            partial(tool_servers.unreachable, servers, seconds, proxies={}),
            limiter=self._looks,
        )
        return tuple((one["name"], one["reason"]) for one in found)

    async def for_sandboxes(self, url: str) -> str:
        """Return where a relay is to lead; raises as `sandbox_side` does."""
        return await anyio.to_thread.run_sync(sandbox_side, url, limiter=self._looks)
