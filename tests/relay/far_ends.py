# SPDX-License-Identifier: Apache-2.0
"""Servers on this host's loopback that a relay leads to."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest

from livery.adapters.host_ports import dial_tcp
from livery.adapters.worker_scripts import bootstrap, program
from livery.ports.provided.relay_connections import RelayStart
from livery.ports.required.sandbox_streams import Dial

Serve = Callable[[anyio.abc.SocketStream], Awaitable[None]]
PATIENCE_SECONDS = 30.0


def starting(python: str) -> RelayStart:
    """Return what starts a relay with that interpreter."""
    return lambda ports: bootstrap(python, *map(str, ports), name="relay")


@asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[Dial]:
    """Serve each connection with `serve`; yield what connects there."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield dial_tcp("127.0.0.1", port)
        tasks.cancel_scope.cancel()


async def echo(stream: anyio.abc.SocketStream) -> None:
    async with stream:
        async for piece in stream:
            await stream.send(piece)
        await stream.send_eof()


async def received(stream: anyio.abc.ByteReceiveStream) -> bytes:
    """Return all that comes until the end."""
    pieces = bytearray()
    with anyio.fail_after(PATIENCE_SECONDS):
        async for piece in stream:
            pieces += piece
    return bytes(pieces)


def mailbox_in(scratch: str) -> str:
    """Return the word by which the processes of a mailbox are known."""
    digest = hashlib.sha256(program("mailbox")).hexdigest()
    return f"{scratch}/mailbox-{digest[:16]}.py"


def seconds_of(request: pytest.FixtureRequest) -> float:
    """Return how soon an end is seen: through files, a few commands later."""
    return 1.0 if "streams" in request.node.name else PATIENCE_SECONDS
