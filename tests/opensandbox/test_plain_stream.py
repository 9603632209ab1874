# SPDX-License-Identifier: Apache-2.0
"""A connection that is read straight off its socket."""

import secrets
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest

from livery.adapters.opensandbox.plain_stream import PlainStream, connect_plainly

pytestmark = pytest.mark.anyio

BOUND_SECONDS = 60.0


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[PlainStream, anyio.abc.SocketStream]]:
    """Give both ends of a connection."""
    met: list[anyio.abc.SocketStream] = []
    arrived = anyio.Event()

    async def meet(far: anyio.abc.SocketStream) -> None:
        met.append(far)
        arrived.set()
        await anyio.sleep_forever()

    with anyio.fail_after(BOUND_SECONDS):
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, meet)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            near = await connect_plainly("127.0.0.1", port)
            await arrived.wait()
            try:
                yield near, met[0]
            finally:
                await near.aclose()
                await met[0].aclose()
                tasks.cancel_scope.cancel()


async def test_what_is_large_comes_through_whole_each_way() -> None:
    content = secrets.token_bytes(8_000_000)
    async with connected() as (near, far):
        got = bytearray()

        async def send() -> None:
            await near.send(content)
            await near.send_eof()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            async for piece in far:
                got += piece
        assert bytes(got) == content

        got.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(far.send, content)
            while len(got) < len(content):
                got += await near.receive(1_000_000)
        assert bytes(got) == content


async def test_the_other_end_s_close_is_the_end() -> None:
    async with connected() as (near, far):
        await far.aclose()

        with pytest.raises(anyio.EndOfStream):
            await near.receive()


async def test_a_connection_that_was_reset_is_broken() -> None:
    async with connected() as (near, far):
        raw = far.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await far.aclose()

        with pytest.raises(anyio.BrokenResourceError):
            await near.receive()
        with pytest.raises(anyio.BrokenResourceError):
            await near.send(b"x")


async def test_where_nobody_listens_nothing_is_connected() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # And does not listen.

        with pytest.raises(OSError, match="refused"):
            await connect_plainly("127.0.0.1", int(taken.getsockname()[1]))
