# SPDX-License-Identifier: Apache-2.0
"""A client of the Model Context Protocol over streamable HTTP, as far as tools go.

A reply may be JSON or a stream of events; a server may give a session, or none.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp
import attrs

from ....domain.digests import Json
from ....ports.provided.json_texts import from_json
from ....ports.required.harness import ToolAccess
from .conversation import ToolsFailed

VERSION: Final = "2025-06-18"
SESSION_HEADER: Final = "mcp-session-id"
PAGES_MAX: Final = 100
INVALID_PARAMS: Final = -32602
"""The error that some servers answer instead of a result that is one."""
REPLY_BYTES_MAX: Final = 64 * 1024 * 1024


@attrs.define
class McpServer:
    """One server, asked in the course of one activation."""

    access: ToolAccess
    http: aiohttp.ClientSession
    call_seconds: float
    _number: int = attrs.field(default=0, init=False)
    _session: str | None = attrs.field(default=None, init=False)

    async def open(self) -> tuple[Mapping[str, Json], ...]:
        """Greet the server, and return its tools as it describes them.

        Raises:
            ToolsFailed: It cannot be asked.
        """
        await self._ask(
            "initialize",
            {
                "protocolVersion": VERSION,
                "capabilities": {},
                "clientInfo": {"name": "client", "version": "1"},
            },
        )
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools: list[Mapping[str, Json]] = []
        cursor: Json = None
        for _ in range(PAGES_MAX):
            page = await self._ask("tools/list", {"cursor": cursor} if cursor else {})
            listed = page.get("tools")
            if isinstance(listed, list):
                tools += [tool for tool in listed if isinstance(tool, Mapping)]
            cursor = page.get("nextCursor")
            if not cursor:
                return tuple(tools)
        raise self._failed(f"its list of tools has over {PAGES_MAX} pages")

    async def call(self, name: str, arguments: Mapping[str, Json]) -> tuple[str, bool]:
        """Call a tool; return what it told, and whether that is an error of its own.

        Raises:
            ToolsFailed: The server cannot be asked.
        """
        method = "tools/call"
        reply = await self._reply(method, {"name": name, "arguments": arguments})
        error = reply.get("error")
        if isinstance(error, Mapping) and error.get("code") == INVALID_PARAMS:
            # No such tool, or not with these arguments: the model's to mend.
            return str(error.get("message") or "These parameters are refused."), True
        told = self._result(method, reply)
        content = told.get("content")
        texts = [
            str(part.get("text", ""))
            if part.get("type") == "text"
            else json.dumps(part)
            for part in (content if isinstance(content, list) else ())
            if isinstance(part, Mapping)
        ]
        return "\n".join(texts), told.get("isError") is True

    async def _ask(
        self, method: str, parameters: Mapping[str, Json]
    ) -> Mapping[str, Json]:
        return self._result(method, await self._reply(method, parameters))

    async def _reply(
        self, method: str, parameters: Mapping[str, Json]
    ) -> Mapping[str, Json]:
        self._number += 1
        number = self._number
        replies = await self._post(
            {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
        )
        for reply in replies:
            if reply.get("id") == number:
                return reply
        raise self._failed(f"{method} has no answer")

    def _result(self, method: str, reply: Mapping[str, Json]) -> Mapping[str, Json]:
        result = reply.get("result")
        if isinstance(result, Mapping):
            return result
        raise self._failed(f"{method}: {json.dumps(reply.get('error'))}")

    async def _post(self, body: Mapping[str, Json]) -> Sequence[Mapping[str, Json]]:
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": VERSION,
            **self.access.headers,
        }
        if self._session is not None:
            headers[SESSION_HEADER] = self._session
        try:
            async with self.http.post(
                self.access.url,
                data=json.dumps(body, ensure_ascii=False).encode(),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self.call_seconds),
            ) as answer:
                text = await self._read(answer)
                self._session = answer.headers.get(SESSION_HEADER, self._session)
                if answer.status not in (200, 202):
                    raise self._failed(f"status {answer.status}")
                return _messages(text, answer.content_type)
        except (aiohttp.ClientError, TimeoutError, ValueError) as fault:
            reason = f"{type(fault).__name__}: {fault}".rstrip(": ")
            raise self._failed(reason) from fault

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        found = bytearray()
        async for chunk in answer.content.iter_any():
            found += chunk
            if len(found) > REPLY_BYTES_MAX:
                raise self._failed(f"a reply is over {REPLY_BYTES_MAX} bytes")
        return bytes(found)

    def _failed(self, reason: str) -> ToolsFailed:
        return ToolsFailed(self.access.name, reason)


def _messages(text: bytes, kind: str) -> Sequence[Mapping[str, Json]]:
    """Return the messages of a reply; `ValueError` for what holds none that is JSON."""
    if kind != "text/event-stream":
        return _objects(from_json(text)) if text.strip() else ()
    found: list[Mapping[str, Json]] = []
    for event in text.decode().replace("\r\n", "\n").split("\n\n"):
        lines = [
            line.removeprefix("data:").removeprefix(" ")
            for line in event.split("\n")
            if line.startswith("data:")
        ]
        if lines:
            found += _objects(from_json("\n".join(lines)))
    return found


def _objects(value: Json) -> list[Mapping[str, Json]]:
    listed = value if isinstance(value, list) else [value]
    return [one for one in listed if isinstance(one, Mapping)]
