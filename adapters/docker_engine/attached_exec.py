# SPDX-License-Identifier: Apache-2.0
"""An exec whose streams are attached: frames of two outputs, one input.

The engine puts eight bytes before each piece of output: which stream it is, and
how long. Output and input have the same connection; saying that no more input
comes leaves the output open.
"""

import struct

from .engine_connection import BadAnswer, EngineConnection

STDOUT, STDERR = 1, 2
STDERR_KEPT_BYTES = 8 * 1024
RECEIVE_BYTES_MAX = 64 * 1024
"""The port's bound on what one `receive` of a byte stream returns."""

_HEADER = struct.Struct(">BxxxI")


class AttachedExec:
    """One running exec, seen from outside."""

    def __init__(self, exec_id: str, connection: EngineConnection) -> None:
        """Own `connection`, on which the engine has begun to stream."""
        self.exec_id = exec_id
        self._connection = connection
        self._held = bytearray()
        self._stream = 0
        self._left = 0

    async def send(self, data: bytes) -> None:
        """Send input; raises `OSError` when nobody takes it any more."""
        await self._connection.send(data)

    def send_end(self) -> None:
        """Say that the input is at its end; raises `OSError`."""
        self._connection.send_end()

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next piece of output and which it belongs to; None at the end.

        Raises:
            BadAnswer: The connection broke, or holds something else than frames.
        """
        while True:
            if self._left and self._held:
                piece = bytes(self._held[: self._left])
                del self._held[: len(piece)]
                self._left -= len(piece)
                return self._stream, piece
            if not self._left and len(self._held) >= _HEADER.size:
                self._stream, self._left = _HEADER.unpack_from(self._held)
                del self._held[: _HEADER.size]
                if self._stream not in {0, STDOUT, STDERR}:
                    raise BadAnswer("the engine's stream has no frames")
                continue
            more = await self._connection.receive()
            if not more:
                return None
            self._held += more

    def close(self) -> None:
        """Close the streams; the process itself goes on until it notices."""
        self._connection.close()


class WorkerStream:
    """The `ByteStream` to a worker: its input and output, and what it complains."""

    def __init__(self, attached: AttachedExec) -> None:
        """Own `attached`, which runs the worker."""
        self._attached = attached
        self._held = b""
        self._complaint = b""

    @property
    def exec_id(self) -> str:
        """The engine's name of the exec that the worker is."""
        return self._attached.exec_id

    @property
    def complaint(self) -> str:
        """The end of what was written to standard error."""
        return self._complaint.decode(errors="replace").strip()

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError` when the other end is gone."""
        await self._attached.send(data)

    async def receive(self) -> bytes:
        """Return the next bytes, at most 64 KiB; empty at the end."""
        while not self._held:
            try:
                got = await self._attached.receive()
            except BadAnswer:
                return b""
            if got is None:
                return b""
            stream, piece = got
            if stream == STDERR:
                self._complaint = (self._complaint + piece)[-STDERR_KEPT_BYTES:]
            else:
                self._held = piece
        piece, self._held = (
            self._held[:RECEIVE_BYTES_MAX],
            self._held[RECEIVE_BYTES_MAX:],
        )
        return piece

    async def receive_line(self, *, bytes_max: int) -> bytes:
        """Return the bytes up to the next line's end, without it, or to the end."""
        line = b""
        while b"\n" not in line and len(line) < bytes_max:
            piece = await self.receive()
            if not piece:
                return line
            line += piece
        line, _, rest = line.partition(b"\n")
        self._held = rest + self._held
        return line

    async def aclose(self) -> None:
        """Close both directions; a pending `receive` ends."""
        self._attached.close()
