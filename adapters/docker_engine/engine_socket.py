# SPDX-License-Identifier: Apache-2.0
"""A socket to the engine that is waited for by the event loop, without a thread.

A wait that is cancelled in the very turn in which bytes come does no harm, which
is not so for the streams of every event loop. Closing ends a pending wait.
"""

import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.lowlevel

from .engine_address import EngineAddress

BUSY_SECONDS = 0.02
"""How long between two tries while the engine's queue of connections is full."""


_Wait = Callable[[socket.socket], Awaitable[None]]


class EngineSocket:
    """A connected, non-blocking socket."""

    def __init__(self, connected: socket.socket) -> None:
        """Own `connected`."""
        self._socket = connected

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError` when nobody reads it."""
        await anyio.lowlevel.checkpoint()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await self._wait(anyio.wait_writable)

    def send_end(self) -> None:
        """Say that nothing more will be sent; raises `OSError`."""
        self._socket.shutdown(socket.SHUT_WR)

    async def receive(self, bytes_max: int) -> bytes:
        """Return the next bytes, empty at the end; raises `OSError`."""
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                return self._socket.recv(bytes_max)
            except BlockingIOError:
                await self._wait(anyio.wait_readable)

    def close(self) -> None:
        """Close; a pending wait ends as at a broken connection."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    async def _wait(self, wait: _Wait) -> None:
        try:
            await wait(self._socket)
        except anyio.ClosedResourceError as closed:
            raise BrokenPipeError("the socket was closed") from closed


async def connect(address: EngineAddress) -> EngineSocket:
    """Connect to the engine; raises `OSError` when nobody listens."""
    if address.path is not None:
        return await _connect(socket.AF_UNIX, address.path)
    found = await anyio.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for family, _, _, _, place in found:
        try:
            return await _connect(family, place)
        except OSError as refused:
            failure = refused
    raise failure or OSError("the name has no address")


async def _connect(family: int, place: "str | tuple[str | int, ...]") -> EngineSocket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        while True:
            with suppress(BlockingIOError):
                made.connect(place)
                break
            if family == socket.AF_UNIX:
                await anyio.sleep(BUSY_SECONDS)
                continue
            await anyio.wait_writable(made)
            if number := made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(number, os.strerror(number))
            break
    except BaseException:
        made.close()
        raise
    return EngineSocket(made)
