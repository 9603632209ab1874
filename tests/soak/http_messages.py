# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 messages as they come over a connection: where each begins and ends.

Nothing is changed on the way: what is handed out are the very bytes that came.
"""

from collections.abc import AsyncGenerator
from typing import Final

import attrs

from livery.adapters.docker_engine.engine_socket import EngineSocket

RECEIVE_BYTES: Final = 64 * 1024
HEAD_BYTES_MAX: Final = 256 * 1024
HEAD_END: Final = b"\r\n\r\n"


class Ended(Exception):
    """The connection ended within a message."""


@attrs.frozen
class Head:
    """The head of a message."""

    raw: bytes
    """With the empty line at its end."""

    @property
    def words(self) -> list[bytes]:
        """The words of the first line."""
        return self.raw.split(b"\r\n", 1)[0].split(b" ", 2)

    @property
    def status(self) -> int:
        """Of a reply."""
        return int(self.words[1])

    def value(self, name: bytes) -> bytes:
        """Return a header's value in lower case, or nothing."""
        for line in self.raw.split(b"\r\n")[1:]:
            found, _, value = line.partition(b":")
            if found.strip().lower() == name:
                return value.strip().lower()
        return b""

    @property
    def length(self) -> int | None:
        """How long its body is said to be."""
        told = self.value(b"content-length")
        return int(told) if told else None

    @property
    def is_chunked(self) -> bool:
        """Whether its body comes in chunks."""
        return self.value(b"transfer-encoding").endswith(b"chunked")

    @property
    def upgrades(self) -> bool:
        """Whether it asks for another protocol, or begins it."""
        return self.value(b"upgrade") != b""


@attrs.define
class Reader:
    """Reads messages off a connection."""

    socket: EngineSocket
    held: bytearray = attrs.field(factory=bytearray)
    """What came and was not taken yet."""
    ended: bool = False

    async def fill(self) -> bool:
        """Wait for more; False at the end. Raises `OSError`."""
        piece = b"" if self.ended else await self.socket.receive(RECEIVE_BYTES)
        self.ended = not piece
        self.held += piece
        return not self.ended

    async def head(self) -> Head | None:
        """Return the next head; None when there is no further message."""
        while (at := self.held.find(HEAD_END)) < 0:
            if not await self.fill():
                if self.held:
                    raise Ended
                return None
            assert len(self.held) <= HEAD_BYTES_MAX, "it has no end"
        return Head(self._take(at + len(HEAD_END)))

    def reply_body(
        self, asked: Head, reply: Head
    ) -> tuple[AsyncGenerator[bytes], int | None]:
        """Return a reply's body, and its length where that is known before its end."""
        if asked.words[0] == b"HEAD" or reply.status in (204, 304):
            return self.sized(0), 0
        if reply.is_chunked:
            return self.chunks(), None
        if reply.length is None:
            return self.rest(), None
        return self.sized(reply.length), reply.length

    async def sized(self, length: int) -> AsyncGenerator[bytes]:
        """Yield a body of so many bytes."""
        while length:
            if not self.held and not await self.fill():
                raise Ended
            piece = self._take(min(length, len(self.held)))
            length -= len(piece)
            yield piece

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield a body in chunks, with all that frames it."""
        while True:
            line = await self._line()
            yield line
            size = int(line.split(b";")[0].strip(), 16)
            if size == 0:
                break
            async for piece in self.sized(size + len(b"\r\n")):
                yield piece
        while (line := await self._line()) != b"\r\n":
            yield line
        yield line

    async def rest(self) -> AsyncGenerator[bytes]:
        """Yield all that comes until the end."""
        while self.held or await self.fill():
            yield self._take(len(self.held))

    async def _line(self) -> bytes:
        while (at := self.held.find(b"\n")) < 0:
            if not await self.fill():
                raise Ended
        return self._take(at + 1)

    def _take(self, size: int) -> bytes:
        taken = bytes(self.held[:size])
        del self.held[:size]
        return taken
