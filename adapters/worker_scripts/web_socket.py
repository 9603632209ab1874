# SPDX-License-Identifier: Apache-2.0
"""The far end of a WebSocket: its frames on the outside, a plain stream inside.

For a way to the door that takes WebSockets apart and puts them together again.
Only what such a way needs is spoken: binary messages, ping and pong, and the close.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import threading

MESSAGE_BYTES = 64 * 1024
FRAME_BYTES_MAX = 2 * 1024 * 1024
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MORE, BINARY, CLOSE, PING, PONG = 0, 2, 8, 9, 10


class Closed(Exception):
    """Nothing more comes."""


def accept_of(key: str) -> str:
    """Return what answers the key of a handshake."""
    digest = hashlib.sha1(key.encode() + GUID).digest()
    return base64.b64encode(digest).decode()


def frame(opcode: int, payload: bytes) -> bytes:
    """Return one whole frame of a server's."""
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", 0x80 | opcode, size)
    elif size < 65536:
        head = struct.pack(">BBH", 0x80 | opcode, 126, size)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, 127, size)
    return head + payload


def unmasked(payload: bytes, mask: bytes) -> bytes:
    """Return what a client's frame holds."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    both = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return both.to_bytes(size, "big")


class Outside:
    """The connection with the frames on it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._turn = threading.Lock()

    def send(self, opcode: int, payload: bytes) -> None:
        """Send one message; raises `OSError`."""
        with self._turn:
            self._connection.sendall(frame(opcode, payload))

    def receive(self) -> bytes:
        """Return the next piece of a message; raises `Closed` or `OSError`."""
        while True:
            opcode, payload = self._frame()
            if opcode in (MORE, BINARY):
                return payload
            if opcode == PING:
                self.send(PONG, payload)
            elif opcode == CLOSE:
                raise Closed

    def _frame(self) -> tuple[int, bytes]:
        first, second = self._exactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", self._exactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._exactly(8))
        if size > FRAME_BYTES_MAX:
            raise Closed
        mask = self._exactly(4) if second & 0x80 else b"\0\0\0\0"
        return first & 0x0F, unmasked(self._exactly(size), mask)

    def _exactly(self, size: int) -> bytes:
        text = b""
        while len(text) < size:
            piece = self._connection.recv(size - len(text))
            if not piece:
                raise Closed
            text += piece
        return text


def carry(connection: socket.socket, first: bytes) -> socket.socket:
    """Carry from now on; return the plain stream's end in a child of this process.

    `first` is the first message. It is the child that goes on, so that a worker has
    no child that is none of its own. This process ends with either side.
    """
    inside, plain = socket.socketpair()
    if os.fork() == 0:
        inside.close()
        return plain
    plain.close()
    outside = Outside(connection)
    try:
        outside.send(BINARY, first)
        threading.Thread(target=_inwards, args=(outside, inside), daemon=True).start()
        while True:
            piece = inside.recv(MESSAGE_BYTES)
            if not piece:
                break
            outside.send(BINARY, piece)
        outside.send(CLOSE, struct.pack(">H", 1000))
    except OSError:
        pass  # One of the two has gone; so does the other.
    finally:
        os._exit(0)


def _inwards(outside: Outside, inside: socket.socket) -> None:
    try:
        while True:
            inside.sendall(outside.receive())
    except (Closed, OSError):
        # The program sees the end of its input, and ends by itself.
        inside.shutdown(socket.SHUT_WR)
