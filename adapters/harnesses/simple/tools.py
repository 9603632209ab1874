# SPDX-License-Identifier: Apache-2.0
"""The tools of one activation: described to the model, and called for it.

Over direct HTTP a tool is a path of its server, and the request describes it. Over MCP
its server does. What a tool answers is told to the model, also when it is a refusal.
"""

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import aiohttp
import attrs

from ....domain.digests import Json
from ....ports.provided.cookies import cookie_header
from ....ports.required.harness import ToolAccess, ToolTransport
from .conversation import Item, ToolsFailed
from .mcp import McpServer

RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
NAME_BETWEEN: Final = "__"
"""Between a server's name and a tool's, where two servers have a tool of one name."""
CONTROL: Final = frozenset(
    {
        "",
        "aggregate_metrics",
        "close_session",
        "mcp",
        "run",
        "seed_session",
        "verify",
    }
)
"""Paths that drive sessions, on a server that has tools beside them: a model that made
up such a name would grade or close its own session."""


@attrs.frozen
class Called:
    """What came of one call."""

    text: str
    refused: bool = False
    """Whether the tool or its server said no."""


@attrs.define
class GrantedTools:
    """The tools of one activation."""

    accesses: tuple[ToolAccess, ...]
    http: aiohttp.ClientSession
    call_seconds: float
    described: tuple[Item, ...] = ()
    """What the request itself says of tools."""
    missing: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    """Servers that need not be there and are not, each with the reason."""
    tools: list[Item] = attrs.field(factory=list[Item], init=False)
    """All tools, as the model is told of them."""
    _mcp: dict[str, tuple[McpServer, str]] = attrs.field(
        factory=dict[str, tuple[McpServer, str]], init=False
    )
    _cookies: dict[str, dict[str, str]] = attrs.field(
        factory=dict[str, dict[str, str]], init=False
    )

    async def open(self) -> None:
        """Ask every server what it has.

        Raises:
            ToolsFailed: One that is required cannot be asked.
        """
        self.tools = list(self.described)
        for access in self.accesses:
            self._cookies[access.name] = dict(access.cookies)
            if access.transport is not ToolTransport.MCP:
                continue
            server = McpServer(access, self.http, self.call_seconds)
            try:
                listed = await server.open()
            except ToolsFailed as fault:
                if access.required:
                    raise
                self.missing[access.name] = fault.reason
                continue
            for tool in listed:
                self._add(server, tool)

    async def call(self, name: str, arguments: Mapping[str, Json]) -> Called:
        """Call a tool by the name that the model knows.

        Raises:
            ToolsFailed: Its server cannot be asked.
        """
        if name in self._mcp:
            server, own_name = self._mcp[name]
            text, refused = await server.call(own_name, arguments)
            return Called(text, refused)
        made_up = name in CONTROL and all(t.get("name") != name for t in self.tools)
        for access in self.accesses:
            if access.transport is ToolTransport.DIRECT_HTTP and not made_up:
                return await self._post(access, name, arguments)
        return Called(f"There is no tool {name!r}.", refused=True)

    def _add(self, server: McpServer, tool: Mapping[str, Json]) -> None:
        own_name = str(tool.get("name"))
        name = own_name
        if self._is_described(name) and name not in self._mcp:
            self._mcp[name] = server, own_name  # The request's words for it stand.
            return
        if any(known.get("name") == name for known in self.tools):
            name = f"{server.access.name}{NAME_BETWEEN}{own_name}"
        self._mcp[name] = server, own_name
        self.tools.append(
            {
                "type": "function",
                "name": name,
                "description": tool.get("description") or "",
                "parameters": tool.get("inputSchema") or {"type": "object"},
                "strict": False,
            }
        )

    def _is_described(self, name: str) -> bool:
        """Whether the request describes a tool that no server of its own is granted for."""
        direct = any(a.transport is ToolTransport.DIRECT_HTTP for a in self.accesses)
        return not direct and any(tool.get("name") == name for tool in self.described)

    async def _post(
        self, access: ToolAccess, name: str, arguments: Mapping[str, Json]
    ) -> Called:
        jar = self._cookies[access.name]
        headers = {"content-type": "application/json", **access.headers}
        if jar:
            headers["cookie"] = cookie_header(jar)
        try:
            async with self.http.post(
                f"{access.url.rstrip('/')}/{quote(name, safe='')}",
                data=json.dumps(arguments, ensure_ascii=False).encode(),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self.call_seconds),
            ) as answer:
                found = bytearray()
                async for chunk in answer.content.iter_any():
                    found += chunk
                    if len(found) > RESULT_BYTES_MAX:
                        reason = f"a result is over {RESULT_BYTES_MAX} bytes"
                        raise ToolsFailed(access.name, reason)
                jar.update({k: m.value for k, m in answer.cookies.items()})
                text = found.decode(errors="replace")
                return Called(text, refused=answer.status >= 400)
        except (aiohttp.ClientError, TimeoutError) as fault:
            reason = f"{type(fault).__name__}: {fault}".rstrip(": ")
            raise ToolsFailed(access.name, reason) from fault
