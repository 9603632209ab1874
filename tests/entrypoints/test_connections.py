# SPDX-License-Identifier: Apache-2.0
"""Connections of a server: kept for who stays, and gone when their caller has left."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import attrs
import psutil
import pytest
from anyio.abc import SocketStream
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework
from starlette.types import Receive, Scope, Send

from livery.entrypoints.http_connections.connections import PIECES_BYTES_MAX, Connection
from livery.entrypoints.http_serving.serving import (
    KEEP_ALIVE_SECONDS,
    listen,
    serve_until,
)

pytestmark = pytest.mark.anyio

CALLERS = 20
ASK = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
WAIT_SECONDS = 60.0
assert WAIT_SECONDS < KEEP_ALIVE_SECONDS, "it would be closed by then anyhow"
LOOK_SECONDS = 0.01


@attrs.define
class App:
    """Answers, once it may."""

    may: anyio.Event = attrs.field(factory=anyio.Event)
    asked: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.may.wait()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


@attrs.frozen
class Serving:
    """An application that is served."""

    app: App
    port: int
    open_before: int

    async def connected(self) -> SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def all_closed(self) -> None:
        """Wait until as many descriptors are open as before anybody came."""
        with anyio.fail_after(WAIT_SECONDS):
            while psutil.Process().num_fds() > self.open_before:  # noqa: ASYNC110
                await anyio.sleep(LOOK_SECONDS)

    async def asked(self, times: int) -> None:
        """Wait until it was asked so often."""
        with anyio.fail_after(WAIT_SECONDS):
            while self.app.asked < times:  # noqa: ASYNC110
                await anyio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def serving(*, grace_seconds: float = 5.0) -> AsyncGenerator[Serving]:
    app, stop = App(), anyio.Event()
    socket = listen("127.0.0.1", 0)
    port = int(socket.getsockname()[1])

    async def nothing() -> None:
        return None

    async with anyio.create_task_group() as group:

        async def serve() -> None:
            await serve_until(app, socket, stop, nothing, grace_seconds=grace_seconds)

        group.start_soon(serve)
        # The first connection has a loop open what it needs for all of them.
        first = await anyio.connect_tcp("127.0.0.1", port)
        await first.aclose()
        await anyio.sleep(LOOK_SECONDS)
        try:
            yield Serving(app, port, psutil.Process().num_fds())
        finally:
            app.may.set()
            stop.set()


async def answer(caller: SocketStream) -> bytes:
    found = b""
    with anyio.fail_after(WAIT_SECONDS):
        while not found.endswith(b"ok"):
            found += await caller.receive()
    return found


async def test_who_leaves_costs_no_descriptor_any_more() -> None:
    async with serving() as it:
        it.app.may.set()
        for _ in range(CALLERS):
            async with await it.connected() as caller:
                await caller.send(ASK)
                assert (await answer(caller)).startswith(b"HTTP/1.1 200")
        await it.all_closed()


async def test_who_leaves_without_an_answer_costs_none_once_it_was_given() -> None:
    async with serving() as it:
        for number in range(1, CALLERS + 1):
            async with await it.connected() as caller:
                await caller.send(ASK)
                await it.asked(number)
        it.app.may.set()
        await it.all_closed()


async def test_who_will_say_no_more_is_closed_to_when_nothing_is_owed() -> None:
    async with serving() as it:
        async with await it.connected() as caller:
            await caller.send(ASK)
            await it.asked(1)
            await caller.send_eof()
            it.app.may.set()
            with anyio.fail_after(WAIT_SECONDS):
                async for _ in caller:
                    pass
        await it.all_closed()


async def test_who_stays_asks_again_on_the_same_connection() -> None:
    async with serving() as it:
        it.app.may.set()
        async with await it.connected() as caller:
            for _ in range(3):
                await caller.send(ASK)
                assert (await answer(caller)).startswith(b"HTTP/1.1 200")
        await it.all_closed()


async def test_a_request_that_never_ends_is_cut_off_by_the_grace() -> None:
    async with serving(grace_seconds=1.0) as it:
        caller = await it.connected()
        await caller.send(ASK)
        await it.asked(1)
        it.app.may = anyio.Event()  # What it waits for will not come any more.

    with anyio.fail_after(WAIT_SECONDS):
        async for piece in caller:
            assert b"ok" not in piece
    await caller.aclose()


@attrs.define
class Wire:
    """Takes what a connection writes, and counts how often; it is its socket as well."""

    writes: list[bytes] = attrs.field(factory=list[bytes])
    closing: bool = False
    family: int = socket.AF_INET

    def get_extra_info(self, name: str) -> "Wire | None":
        return self if name == "socket" else None

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    getsockname = getpeername

    def is_closing(self) -> bool:
        return self.closing

    def writelines(self, pieces: list[bytes]) -> None:
        self.writes.append(b"".join(pieces))

    async def drain(self) -> None:
        if self.closing:
            raise ConnectionResetError

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.closing = True

    async def wait_closed(self) -> None:
        pass


async def written(body: bytes, wire: Wire) -> list[bytes]:
    """Return what is written to a connection that is asked once for a body in halves."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        size = str(len(body)).encode()
        headers = [(b"content-length", size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        half = len(body) // 2
        message = {"type": "http.response.body", "body": body[:half], "more_body": True}
        await send(message)
        await send({"type": "http.response.body", "body": body[half:]})

    reader = asyncio.StreamReader()
    reader.feed_data(ASK)
    config = Config()
    connection = Connection(
        ASGIWrapper(cast(ASGIFramework, app)),
        config,
        WorkerContext(None),
        reader,
        cast(asyncio.StreamWriter, wire),
    )
    async with anyio.create_task_group() as group:
        group.start_soon(connection.run)
        with anyio.fail_after(WAIT_SECONDS):
            while not (wire.closing or b"".join(wire.writes).endswith(body)):  # noqa: ASYNC110
                await anyio.sleep(LOOK_SECONDS)
        reader.feed_eof()
    return wire.writes


async def test_a_head_goes_out_with_its_body() -> None:
    writes = await written(b"ok", Wire())

    assert len(writes) == 1


async def test_what_is_much_is_not_held_back() -> None:
    body = b"o" * (4 * PIECES_BYTES_MAX)

    writes = await written(body, Wire())

    assert len(writes) == 2
    assert b"".join(writes).endswith(body)


async def test_nothing_is_written_to_a_caller_who_is_gone() -> None:
    assert await written(b"ok", Wire(closing=True)) == []
