# SPDX-License-Identifier: Apache-2.0
"""Tool servers on loopback that answer as they are told, and note what they were asked."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import attrs

from livery.ports.required.harness import ToolAccess, ToolTransport

TOKEN = "token-of-the-tools"
JOIN_SECONDS = 10.0


@attrs.define
class ToolServer:
    """One server, and what it was asked."""

    status: int = 200
    session: str | None = None
    location: str | None = None
    described: bytes | None = None
    """Its OpenAPI document, where it has one."""
    port: int = 0
    asked: list[tuple[str, str, dict[str, str], bytes]] = attrs.field(
        factory=list[tuple[str, str, dict[str, str], bytes]]
    )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


def access(
    url: str,
    name: str = "tools",
    *,
    required: bool = True,
    transport: ToolTransport = ToolTransport.MCP,
) -> ToolAccess:
    return ToolAccess(
        transport=transport,
        name=name,
        url=url,
        headers={"X-Token": TOKEN},
        required=required,
    )


def nowhere() -> str:
    """Return a URL at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}/mcp"


@contextmanager
def tool_server(
    status: int = 200, *, session: str | None = None, location: str | None = None
) -> Generator[ToolServer]:
    """Serve until the block is left."""
    told = ToolServer(status=status, session=session, location=location)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(size)
            told.asked.append((self.command, self.path, dict(self.headers), body))
            answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()
            self.send_response(told.status)
            self.send_header("content-length", str(len(answer)))
            if told.session:
                self.send_header("mcp-session-id", told.session)
            if told.location:
                self.send_header("location", told.location)
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            if self.path != "/openapi.json":
                self.do_POST()
                return
            told.asked.append((self.command, self.path, dict(self.headers), b""))
            self.send_response(200 if told.described is not None else 404)
            self.send_header("content-length", str(len(told.described or b"")))
            self.end_headers()
            self.wfile.write(told.described or b"")

        def do_DELETE(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        told.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield told
        finally:
            server.shutdown()
            thread.join(JOIN_SECONDS)
