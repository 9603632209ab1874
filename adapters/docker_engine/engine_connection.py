# SPDX-License-Identifier: Apache-2.0
"""One HTTP exchange with the engine over a socket of its own, without a thread.

Attached execs and archives are long or large, and go through here: nothing is
held but what the socket delivers, and closing it ends the exchange at once. The
`docker` package would hold one thread for each, and loses what the engine sends
in one piece with the head of its answer.
"""

from collections.abc import AsyncIterator, Mapping

import attrs

from .engine_address import EngineAddress
from .engine_socket import EngineSocket, connect

HEAD_BYTES_MAX = 64 * 1024
ERROR_BYTES_MAX = 16 * 1024
RECEIVE_BYTES = 256 * 1024


@attrs.frozen
class BadAnswer(Exception):
    """What came is not the HTTP that an engine speaks."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class Head:
    """The beginning of an answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]


class EngineConnection:
    """An open exchange: one request, one answer, and what follows it."""

    def __init__(self, connected: EngineSocket) -> None:
        """Speak over `connected`, which is closed with this."""
        self._socket = connected
        self._held = b""

    async def request(
        self, method: str, target: str, headers: Mapping[str, str]
    ) -> None:
        """Send the head of a request; raises `OSError`."""
        lines = [f"{method} {target} HTTP/1.1", "Host: docker"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode("ascii"))

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError` when nobody reads it."""
        await self._socket.send(data)

    def send_end(self) -> None:
        """Say that nothing more will be sent; raises `OSError`."""
        self._socket.send_end()

    async def head(self) -> Head:
        """Read the head of the answer.

        Raises:
            BadAnswer: It is not HTTP, or longer than `HEAD_BYTES_MAX`.
        """
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > HEAD_BYTES_MAX:
                raise BadAnswer("the head of the answer has no end")
            held, self._held = self._held, b""
            self._held = held + await self._receive()
        first, *rest = self._held[:end].decode("latin-1").split("\r\n")
        self._held = self._held[end + 4 :]
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or len(words[1]) != 3:
            raise BadAnswer("the answer is not HTTP")
        pairs = (line.partition(":") for line in rest)
        return Head(
            status=int(words[1]),
            headers={name.strip().lower(): value.strip() for name, _, value in pairs},
        )

    async def body(self, head: Head) -> AsyncIterator[bytes]:
        """Yield the answer's body in pieces.

        Raises:
            BadAnswer: It ended before its announced end.
        """
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            async for piece in self._chunks():
                yield piece
        elif "content-length" in head.headers:
            async for piece in self._exactly(int(head.headers["content-length"])):
                yield piece
        else:
            while piece := await self.receive():
                yield piece

    async def error_text(self, head: Head) -> bytes:
        """Return the beginning of the body of an answer that says no."""
        text = b""
        async for piece in self.body(head):
            text += piece
            if len(text) > ERROR_BYTES_MAX:
                break
        return text[:ERROR_BYTES_MAX]

    async def receive(self) -> bytes:
        """Return the next bytes, framed or not; empty at the end.

        Raises:
            BadAnswer: The connection broke, or was closed on this side.
        """
        if self._held:
            held, self._held = self._held, b""
            return held
        try:
            return await self._socket.receive(RECEIVE_BYTES)
        except OSError as failure:
            raise BadAnswer("the connection broke") from failure

    def close(self) -> None:
        """Close the socket; a pending `receive` ends."""
        self._socket.close()

    async def _receive(self) -> bytes:
        """Return more bytes; an end is a fault here."""
        piece = await self.receive()
        if not piece:
            raise BadAnswer("the engine closed the connection in its answer")
        return piece

    async def _exactly(self, length: int) -> AsyncIterator[bytes]:
        while length > 0:
            piece = await self._receive()
            piece, self._held = piece[:length], piece[length:]
            length -= len(piece)
            yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        held = bytearray(await self._receive())
        while True:
            while (end := held.find(b"\r\n")) < 0:
                held += await self._receive()
            try:
                length = int(held[:end].split(b";")[0], 16)
            except ValueError as failure:
                raise BadAnswer("a chunk of the answer has no length") from failure
            if length == 0:
                return
            del held[: end + 2]
            while len(held) < length + 2:
                held += await self._receive()
            yield bytes(held[:length])
            del held[: length + 2]


async def open_connection(address: EngineAddress) -> EngineConnection:
    """Connect to the engine; raises `OSError` when nobody listens."""
    return EngineConnection(await connect(address))
