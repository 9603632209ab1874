# SPDX-License-Identifier: Apache-2.0
"""A model's server on loopback that does as its script says, to the byte."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import attrs


@attrs.frozen
class Request:
    """A request as it came over the wire."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n")[0]

    def header(self, name: bytes) -> list[bytes]:
        pairs = [line.partition(b":") for line in self.head.split(b"\r\n")[1:]]
        return [v.strip() for n, _, v in pairs if n.strip().lower() == name]


Script = Callable[[Request, anyio.abc.SocketStream], Awaitable[None]]


@attrs.define
class Upstream:
    """What was asked of it."""

    script: Script
    port: int = 0
    asked: list[Request] = attrs.field(factory=list[Request])
    connections: int = 0
    """How many are open, as far as the other side has told."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        try:
            await self._serve(stream)
        finally:
            self.connections -= 1

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            while (request := await _request(stream)) is not None:
                self.asked.append(request)
                try:
                    await self.script(request, stream)
                except (
                    anyio.EndOfStream,
                    anyio.BrokenResourceError,
                    anyio.ClosedResourceError,
                ):
                    return


async def _request(stream: anyio.abc.SocketStream) -> Request | None:
    held = b""
    try:
        while b"\r\n\r\n" not in held:
            held += await stream.receive()
        head, _, body = held.partition(b"\r\n\r\n")
        size = int((Request(head, b"").header(b"content-length") or [b"0"])[0])
        while len(body) < size:
            body += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return None
    return Request(head, body)


@asynccontextmanager
async def upstream(
    script: Script, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncGenerator[Upstream]:
    """Serve the script until the block is left."""
    served = Upstream(script)
    listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    served.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, served.serve)
        yield served
        tasks.cancel_scope.cancel()


def answer(status: int, body: bytes, *headers: str) -> bytes:
    """Return an answer of known length."""
    kinds = [] if any("content-type" in h for h in headers) else ["application/json"]
    lines = [f"HTTP/1.1 {status} Some", f"content-length: {len(body)}", *headers]
    lines += [f"content-type: {kind}" for kind in kinds]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()


LAST_CHUNK = chunk(b"")


def says(*parts: bytes) -> Script:
    """Answer every request with the same bytes."""

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        for part in parts:
            await stream.send(part)

    return script


def says_and_closes(*parts: bytes) -> Script:
    """Answer with these bytes and break off."""

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        for part in parts:
            await stream.send(part)
        await stream.aclose()

    return script
