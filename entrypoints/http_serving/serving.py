# SPDX-License-Identifier: Apache-2.0
"""Serve an application with Hypercorn until it is told to stop.

Its end is bounded: after the grace it is cancelled, and its connections with it.
"""

import logging
import socket
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio
import attrs
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from ...ports.required.faults import Fault
from ..http_connections.body_ends import read_to_the_end
from ..http_connections.connections import BACKLOG, serve_connections
from ..worker_parts import WorkerParts

KEEP_ALIVE_SECONDS: Final = 75.0
"""How long an idle connection is kept: longer than NeMo Gym's client keeps it (15)."""
REQUESTS_OF_A_CONNECTION_MAX: Final = 1_000_000
CLOSING_SECONDS: Final = 0.5
"""What connections may take to close once every request was answered."""


@attrs.frozen
class AddressTaken(Fault):
    """The server cannot listen where it was told to."""

    kind = "address_taken"
    message = "Nothing can listen on {host} port {port}: {reason}."

    host: str
    port: int
    reason: str


@attrs.frozen(kw_only=True)
class Served:
    """What a server serves, open."""

    what: str
    """In a sentence: "Serving … at"."""
    host: str
    port: int
    routes: Sequence[BaseRoute]
    drain: Callable[[], Awaitable[None]]
    """Ends what is under way; it runs while the server still answers."""
    grace_seconds: float
    without_kind: Collection[int] = ()
    """Statuses that are told without a kind when routing refuses."""
    parts: WorkerParts | None = None
    """What this process tells of itself beside others; None where it cannot have any."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        AddressTaken: It cannot be had.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AddressTaken(host, port, reason) from error


def address_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_until(
    app: ASGIApp,
    listening: socket.socket,
    stop: anyio.Event,
    drain: Callable[[], Awaitable[None]],
    *,
    grace_seconds: float,
) -> None:
    """Serve until `stop` is set; then `drain`, answer what is under way, and end.

    `drain` runs while the server still answers. All of that ends with the grace.
    """
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.loglevel = "WARNING"
    config.include_server_header = False
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.keep_alive_max_requests = REQUESTS_OF_A_CONNECTION_MAX
    config.graceful_timeout = grace_seconds
    config.alpn_protocols = ["http/1.1"]
    drained = anyio.Event()

    async def in_order() -> None:
        await stop.wait()
        group.cancel_scope.deadline = anyio.current_time() + grace_seconds
        await drain()
        drained.set()
        await anyio.sleep(CLOSING_SECONDS)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(in_order)
        framework = cast(ASGIFramework, read_to_the_end(app))
        await serve_connections(framework, config, listening, drained.wait)
        group.cancel_scope.cancel()


@asynccontextmanager
async def serving(
    app: ASGIApp, listening: socket.socket, *, grace_seconds: float
) -> AsyncGenerator[None]:
    """Serve beside whatever the block does, until it is left."""
    stop = anyio.Event()
    raised: Exception | None = None

    async def served() -> None:
        # Shielded: it ends by its own grace, and closes what it has open.
        with anyio.CancelScope(shield=True):
            await serve_until(
                app, listening, stop, _nothing, grace_seconds=grace_seconds
            )

    async with anyio.create_task_group() as group:
        group.start_soon(served)
        try:
            yield
        except Exception as error:
            raised = error  # Raised below: from in here it would come in a group.
        finally:
            stop.set()
    if raised is not None:
        raise raised


async def _nothing() -> None:
    """Drain what needs no draining."""
