# SPDX-License-Identifier: Apache-2.0
"""Check granted tools: a session that needs one which is not there is not seeded.

A harness in the sandbox reaches tool servers from inside, unless a relay carries its
connections; then this host reaches them for it. Tools that are not required are left
to the run, which tells of those that were missing.
"""

import json
from collections.abc import Callable
from typing import Final, cast

import attrs

from ..required.harness import Harness, RequestRefused, ToolAccess, ToolTransport
from ..required.sandbox import Sandbox
from ..required.tool_servers import ToolServers, ToolsUnreachable
from .sandbox_programs import SandboxProgram, Unreadable, Words

REACH_SECONDS: Final = 15.0
"""How long all tool servers of a session together may take to answer."""
ASK_MARGIN_SECONDS: Final = 30.0
PROGRAM: Final = "tool_servers"
HOST: Final = "this host"
SANDBOX: Final = "the sandbox"


def _nothing_relayed(_: Sandbox) -> bool:
    return False


@attrs.frozen(kw_only=True)
class CheckTools:
    """The use case."""

    servers: ToolServers
    program: bytes
    """The worker script that looks from inside."""
    is_relayed: Callable[[Sandbox], bool] = _nothing_relayed
    """Whether this host carries the sandbox's connections."""

    async def __call__(
        self, harness: Harness, tools: tuple[ToolAccess, ...], sandbox: Sandbox | None
    ) -> None:
        """Look whether the harness reaches the tools that it must have.

        Raises:
            ToolsUnreachable: It does not reach one.
            Fault: The sandbox could not be asked.
        """
        inside: bool | None = getattr(harness, "calls_tools_inside", None)
        needed = tuple(tool for tool in tools if tool.required)
        if inside is None or not needed:
            return
        if sandbox is None or not inside or self.is_relayed(sandbox):
            where = HOST
            if sandbox is not None and inside:
                needed = await self._as_relayed(needed)
            else:
                needed = tuple(tool for tool in needed if not tool.served_here)
            found = await self.servers.unreachable(needed, seconds=REACH_SECONDS)
        else:
            where = SANDBOX
            found = await self._from_inside(sandbox, needed)
        for name, reason in found:
            raise ToolsUnreachable(name, where, reason)

    async def _as_relayed(
        self, tools: tuple[ToolAccess, ...]
    ) -> tuple[ToolAccess, ...]:
        """Return the tools where a relay leads to them."""
        found: list[ToolAccess] = []
        for tool in tools:
            try:
                url = await self.servers.for_sandboxes(tool.url)
            except OSError as fault:
                raise ToolsUnreachable(tool.name, HOST, str(fault)) from fault
            found.append(attrs.evolve(tool, url=url))
        return tuple(found)

    async def _from_inside(
        self, sandbox: Sandbox, tools: tuple[ToolAccess, ...]
    ) -> tuple[tuple[str, str], ...]:
        program = SandboxProgram(sandbox=sandbox, name=PROGRAM, text=self.program)
        # On standard input: headers hold tokens, and a command line is everybody's.
        words = {"servers": [_words(tool) for tool in tools], "seconds": REACH_SECONDS}
        try:
            told = await program.ask(
                timeout_seconds=REACH_SECONDS + ASK_MARGIN_SECONDS,
                stdin=json.dumps(words).encode(),
            )
            found = cast("list[Words]", told["unreachable"])
            return tuple((str(one["name"]), str(one["reason"])) for one in found)
        except (Unreadable, KeyError) as fault:
            raise program.failed("look at tool servers", str(fault)) from fault


def check_honoured(harness: Harness, tools: tuple[ToolAccess, ...]) -> None:
    """Refuse a required access of a kind that the harness cannot use.

    Raises:
        RequestRefused: With the access's field.
    """
    transports: frozenset[ToolTransport] | None = getattr(
        harness, "tool_transports", None
    )
    if transports is None:
        return
    for index, access in enumerate(tools):
        if access.required and access.transport not in transports:
            known = ", ".join(sorted(transports)) or "none"
            raise RequestRefused(
                harness=harness.name,
                field=f"tool_accesses[{index}].kind",
                reason=f"it is required, and of kinds of tools it calls {known}",
            )


def _words(tool: ToolAccess) -> Words:
    return {
        "name": tool.name,
        "kind": tool.transport.value,
        "url": tool.url,
        "headers": dict(tool.headers),
    }
