# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that answers each request as its script says."""

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import attrs

CUT = b""
"""An answer that is no answer: the connection is closed."""


def answer(status: int, *headers: str, body: bytes = b"{}") -> bytes:
    """Return the bytes of an answer."""
    lines = [f"HTTP/1.1 {status} Some", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@attrs.define
class ScriptedServer:
    """What the server was asked, and what it answers next."""

    script: Callable[[int, bytes], bytes]
    """Gives the answer to a request, by its number from 0 and its bytes."""
    port: int = 0
    asked: list[bytes] = attrs.field(factory=list[bytes])
    connections: int = 0

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        self.connections += 1
        async with stream:
            while True:
                request = await self._request(stream)
                if request is None:
                    return
                self.asked.append(request)
                reply = self.script(len(self.asked) - 1, request)
                if reply == CUT:
                    return
                await stream.send(reply)

    async def _request(self, stream: anyio.abc.ByteStream) -> bytes | None:
        request = b""
        try:
            while b"\r\n\r\n" not in request:
                request += await stream.receive()
            head, _, body = request.partition(b"\r\n\r\n")
            size = 0
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            while len(body) < size:
                piece = await stream.receive()
                request, body = request + piece, body + piece
        except (anyio.EndOfStream, anyio.BrokenResourceError, ssl.SSLError):
            return None
        return request


@asynccontextmanager
async def serving(
    script: Callable[[int, bytes], bytes], host: str = "127.0.0.1"
) -> AsyncGenerator[ScriptedServer]:
    """Serve the script on a free port until the end."""
    server = ScriptedServer(script)
    listener = await anyio.create_tcp_listener(local_host=host)
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        yield server
        tasks.cancel_scope.cancel()
