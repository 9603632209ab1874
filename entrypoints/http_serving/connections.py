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
from hypercorn.typing import ASGIFramework

BACKLOG: Final = 512
CUT_OFF_SECONDS: Final = 0.25
"""How long connections may take to end that are cut off."""


class Connection(TCPServer):
    """One connection, over when nothing more comes and what came was answered."""

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
    loop = asyncio.get_running_loop()
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
            await Connection(wrapped, loop, config, context, {}, reader, writer)

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
