# SPDX-License-Identifier: Apache-2.0
"""A WebSocket as a stream of bytes: binary messages, one after the other.

Its handshake is over. A client's frames are masked; a ping is answered while the
stream is read, which a channel always does.
"""

import secrets
import struct

import anyio

from ...ports.required.byte_stream import ByteStream

MESSAGE_BYTES = 64 * 1024
FRAME_BYTES_MAX = 2 * 1024 * 1024
MORE, BINARY, CLOSE, PING, PONG = 0, 2, 8, 9, 10


class WebSocketStream:
    """The client's end, over a plain stream."""

    def __init__(self, plain: ByteStream) -> None:
        """Own `plain`."""
        self._plain = plain
        self._held = bytearray()
        self._pieces = b""
        self._turn = anyio.Lock()
        self._is_over = False

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError` when the other end is gone."""
        for start in range(0, len(data), MESSAGE_BYTES):
            await self._send(BINARY, data[start : start + MESSAGE_BYTES])

    async def receive(self) -> bytes:
        """Return the next bytes, at most 64 KiB; empty at the end."""
        while not self._pieces and not self._is_over:
            opcode, payload = await self._frame()
            if opcode in {MORE, BINARY}:
                self._pieces = payload
            elif opcode == PING:
                await self._send(PONG, payload)
            elif opcode == CLOSE:
                self._is_over = True
        piece, self._pieces = self._pieces[:MESSAGE_BYTES], self._pieces[MESSAGE_BYTES:]
        return piece

    async def aclose(self) -> None:
        """Close both directions; a pending `receive` ends."""
        self._is_over = True
        await self._plain.aclose()

    async def _send(self, opcode: int, payload: bytes) -> None:
        async with self._turn:
            await self._plain.send(_masked(opcode, payload))

    async def _frame(self) -> tuple[int, bytes]:
        head = await self._exactly(2)
        if head is None:
            return CLOSE, b""
        size = head[1] & 0x7F
        if size >= 126:
            more = await self._exactly(2 if size == 126 else 8)
            size = FRAME_BYTES_MAX + 1 if more is None else int.from_bytes(more, "big")
        if size > FRAME_BYTES_MAX:
            return CLOSE, b""
        payload = await self._exactly(size)
        return (CLOSE, b"") if payload is None else (head[0] & 0x0F, payload)

    async def _exactly(self, size: int) -> bytes | None:
        """Return so many bytes; None when the stream ends before."""
        while len(self._held) < size:
            piece = await self._plain.receive()
            if not piece:
                return None
            self._held += piece
        found = bytes(self._held[:size])
        del self._held[:size]
        return found


def _masked(opcode: int, payload: bytes) -> bytes:
    size, mask = len(payload), secrets.token_bytes(4)
    if size < 126:
        head = struct.pack(">BB", 0x80 | opcode, 0x80 | size)
    elif size < 65536:
        head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, size)
    key = (mask * (size // 4 + 1))[:size]
    both = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return head + mask + both.to_bytes(size, "big")
