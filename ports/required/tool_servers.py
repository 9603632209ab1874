# SPDX-License-Identifier: Apache-2.0
"""Tool servers: whether what a session is granted can be reached."""

from typing import ClassVar, Final, Protocol

import attrs

from .faults import Fault
from .harness import ToolAccess

ABOUT: Final = "x-livery"
"""Where the OpenAPI document of a server of ours tells what it can do, in `info`."""
SANDBOX_URL: Final = "sandbox_url"
"""What a server that drives sessions calls, in there, its address for sandboxes."""


@attrs.frozen
class ToolsUnreachable(Fault):
    """A tool server that a session needs cannot be reached."""

    kind: ClassVar[str] = "tools_unreachable"
    message: ClassVar[str] = (
        "Tool server {name} cannot be reached from {where}: {reason}. Start it, or grant"
        " it as one that is not required."
    )
    can_retry: ClassVar[bool] = True

    name: str
    where: str
    reason: str


class ToolServers(Protocol):
    """The tool servers, as this host reaches them."""

    async def unreachable(
        self, tools: tuple[ToolAccess, ...], *, seconds: float
    ) -> tuple[tuple[str, str], ...]:
        """Return the names of those that do not answer in time, each with the reason."""
        ...

    async def for_sandboxes(self, url: str) -> str:
        """Return where a relay is to lead a sandbox that is granted the tools at `url`.

        It is another address where the server there does more than give tools.

        Raises:
            OSError: The server does not tell, or keeps none that can be reached.
        """
        ...
