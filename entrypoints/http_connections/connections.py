# SPDX-License-Identifier: Apache-2.0
"""Hypercorn's connections, each of which ends when its caller has left.

Hypercorn itself keeps the descriptor of a connection that its caller has closed until
the keep-alive time is over. Callers who take a new connection for each request would
use up a server's descriptors with no more than a dozen requests a second.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.typing import AppWrapper, ASGIFramework

BACKLOG: Final = 512
PIECES_BYTES_MAX: Final = 64 * 1024
"""How much is held back at most for what comes in the same round."""
CUT_OFF_SECONDS: Final = 0.25
"""How long connections may take to end that are cut off."""


class Connection(TCPServer):
    """One connection, over when nothing more comes and what came was answered.

    What is sent in one round of the loop goes out together: a head with its body.
    """

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Begin, in the running event loop."""
        loop = asyncio.get_running_loop()
        super().__init__(app, loop, config, context, {}, reader, writer)
        self._pieces: list[bytes] = []
        self._size = 0

    async def protocol_send(self, event: Event) -> None:
        """Send a piece soon, or act on what else the protocol tells."""
        if not isinstance(event, RawData):
            self._send_pieces()
            await super().protocol_send(event)
            return
        if not self._pieces:
            self.loop.call_soon(self._send_pieces)
        self._pieces.append(event.data)
        self._size += len(event.data)
        if self._size > PIECES_BYTES_MAX:
            self._send_pieces()
        try:
            await self.writer.drain()
        except (ConnectionError, RuntimeError):
            await self.protocol.handle(Closed())

    def _send_pieces(self) -> None:
        if self._size and not self.writer.is_closing():
            self.writer.writelines(self._pieces)
        self._pieces, self._size = [], 0

    async def _close(self) -> None:
        self._send_pieces()
        await super()._close()

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()


async def serve_connections(
    app: ASGIFramework,
    config: Config,
    listening: socket.socket,
    stop: Callable[[], Awaitable[object]],
) -> None:
    """Serve until `stop` returns, and then until each request is answered.

    Cancelled, it closes all connections.
    """
    wrapped, context = ASGIWrapper(app), WorkerContext(None)
    serving: set[asyncio.Task[None]] = set()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None, "each connection has one"
        serving.add(task)
        task.add_done_callback(serving.discard)
        # asyncio takes a connection's task that was cancelled for a fault, and logs it.
        with suppress(asyncio.CancelledError):
            await Connection(wrapped, config, context, reader, writer)

    server = await asyncio.start_server(connected, sock=listening, backlog=BACKLOG)
    try:
        await stop()
    finally:
        server.close()
        # Idle connections close now, and the others when they are idle.
        await context.terminated.set()
        try:
            while serving:
                await asyncio.wait(serving)
        finally:
            for task in serving:
                task.cancel()
            # What a caller does not take in is not waited for.
            with anyio.move_on_after(CUT_OFF_SECONDS, shield=True):
                while serving:
                    await asyncio.wait(serving)
