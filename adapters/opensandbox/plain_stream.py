# SPDX-License-Identifier: Apache-2.0
"""A connection read straight off its socket, for what is large.

A transport of the event loop hands over a quarter of a mebibyte at a time, each by
way of a queue: half as much again as the bare calls take for a large file.
"""

import errno
import os
import socket

import anyio
import anyio.abc
import anyio.lowlevel


class PlainStream(anyio.abc.ByteStream):
    """Owns a connected socket."""

    def __init__(self, connected: socket.socket) -> None:
        """Own `connected`, which does not block."""
        self._socket = connected

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Return what is there, at most so much, once something is."""
        # A sender that is quick would keep everybody else waiting.
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                piece = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError as fault:
                raise anyio.BrokenResourceError from fault
            else:
                if not piece:
                    raise anyio.EndOfStream
                return piece

    async def send(self, item: bytes) -> None:
        """Send all of it."""
        left = memoryview(item)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as fault:
                raise anyio.BrokenResourceError from fault

    async def send_eof(self) -> None:
        """Say that nothing more comes from here."""
        self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close it."""
        self._socket.close()


async def connect_plainly(host: str, port: int) -> PlainStream:
    """Connect to the first address of a host that takes the connection.

    Raises:
        OSError: None does.
    """
    failed: OSError | None = None
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        fresh = socket.socket(family, kind, protocol)
        try:
            await _connect(fresh, address)
        except BaseException as fault:
            fresh.close()
            if not isinstance(fault, OSError):
                raise
            failed = fault
        else:
            return PlainStream(fresh)
    raise failed or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


async def _connect(fresh: socket.socket, address: tuple[str, int]) -> None:
    fresh.setblocking(False)
    try:
        fresh.connect(address)
    except BlockingIOError:
        await anyio.wait_writable(fresh)
        if number := fresh.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(number, os.strerror(number)) from None
