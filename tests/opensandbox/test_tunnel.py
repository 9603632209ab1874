# SPDX-License-Identifier: Apache-2.0
"""The way to the door: who is let in, and what a WebSocket on the way does."""

import base64
import hashlib
import socket
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import attrs
import pytest

from livery.adapters.opensandbox import OpenSandboxProvider
from livery.adapters.opensandbox.tunnel import DoorAddress, NoDoor, open_tunnel
from livery.adapters.opensandbox.web_socket import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    WebSocketStream,
)
from livery.adapters.worker_scripts import web_socket as far_end
from livery.ports.provided.worker_channel import WorkerChannel

from ..docker_engine.engines import Owners
from . import providers
from .stand_in_server import StandInServer

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """Listen, and give whoever asks this answer."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def give(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            if answer:
                await stream.send(answer)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, give)
        port = int(listener.extra(anyio.abc.SocketAttribute.local_port))
        yield f"http://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "dropped"),
        (b"SSH-2.0-other\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "502"),
        (b"HTTP/1.1 101 Yes\r\n\r\n", "not the door"),
        (b"HTTP/1.1 101 Yes\r\nX-Livery-Proof: 00\r\n\r\n", "not the door"),
        (b"x" * 70_000, "no end"),
    ],
)
async def test_what_is_no_door_of_ours_is_not_spoken_to(
    answer: bytes, told: str
) -> None:
    async with answering(answer) as url:
        door = DoorAddress(url=url, headers={}, key=b"key")

        with pytest.raises(NoDoor, match=told):
            await open_tunnel(door)


async def test_nobody_listening_is_no_door() -> None:
    for url in ("http://127.0.0.1:9", "https://127.0.0.1:9"):
        with pytest.raises(NoDoor):
            await open_tunnel(DoorAddress(url=url, headers={}, key=b"key"))


async def test_the_door_lets_in_who_knows_its_key_and_nobody_else(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, providers.stand_in_spec())
    try:
        door = sandbox._way._door  # The key is nowhere else.
        assert door is not None
        assert door.key.decode() not in f"{door}"

        with pytest.raises(NoDoor, match="403"):
            await open_tunnel(attrs.evolve(door, key=b"another"))
        for framed in (False, True):
            stream = await open_tunnel(attrs.evolve(door, has_frames=framed))
            channel = WorkerChannel(stream)
            async with anyio.create_task_group() as tasks:
                await tasks.start(channel.run)
                stat = await channel.stat("/tmp", user=None)
                await channel.aclose()
            assert stat.mode == 0o1777
    finally:
        await provider.destroy(label)


@attrs.define(eq=False)
class Plain:
    """A plain stream whose far end is a list."""

    coming: list[bytes]
    sent: list[bytes] = attrs.field(factory=list[bytes])
    is_closed: bool = False

    async def send(self, data: bytes) -> None:
        self.sent.append(data)

    async def receive(self) -> bytes:
        return self.coming.pop(0) if self.coming else b""

    async def aclose(self) -> None:
        self.is_closed = True


async def test_messages_of_every_size_come_through_as_bytes() -> None:
    for size in (0, 1, 125, 126, 65_535, 65_536, 200_000):
        content = bytes(index % 251 for index in range(size))
        whole = far_end.frame(BINARY, content) + far_end.frame(BINARY, b"!")
        plain = Plain([whole[:3], whole[3:]])
        stream, got = WebSocketStream(plain), b""

        while not got.endswith(b"!") and (piece := await stream.receive()):
            assert len(piece) <= 64 * 1024
            got += piece

        assert got == content + b"!"


async def test_what_is_sent_is_masked_and_read_at_the_far_end() -> None:
    content = bytes(index % 251 for index in range(150_000))
    plain = Plain([])

    await WebSocketStream(plain).send(content)

    near, far = socket.socketpair()
    with near, far:
        near.settimeout(10.0)
        outside = far_end.Outside(far)
        got = b""
        for message in plain.sent:
            assert content[:64] not in message
            sender = threading.Thread(target=near.sendall, args=(message,))
            sender.start()
            got += outside.receive()
            sender.join()
    assert got == content


async def test_a_ping_is_answered_and_a_close_is_the_end() -> None:
    ping, close = far_end.frame(PING, b"are you there"), far_end.frame(CLOSE, b"")
    plain = Plain([ping + far_end.frame(PONG, b"") + close + b"rest"])
    stream = WebSocketStream(plain)

    assert await stream.receive() == b""
    assert await stream.receive() == b""
    (pong,) = plain.sent
    assert pong[0] & 0x0F == PONG
    assert far_end.unmasked(pong[6:], pong[2:6]) == b"are you there"
    await stream.aclose()
    assert plain.is_closed


@pytest.mark.parametrize(
    "broken",
    [
        b"\x82",
        b"\x82\x7e\x01",
        b"\x82\x05abc",
        struct.pack(">BBQ", 0x82, 127, 2**40),
    ],
)
async def test_a_broken_frame_is_the_end(broken: bytes) -> None:
    assert await WebSocketStream(Plain([broken])).receive() == b""
    near, far = socket.socketpair()
    with near, far:
        near.sendall(broken)
        near.shutdown(socket.SHUT_WR)
        with pytest.raises(far_end.Closed):
            far_end.Outside(far).receive()


def test_the_far_end_answers_pings_and_ends_at_a_close() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(10.0)
        near.sendall(far_end.frame(PING, b"x") + far_end.frame(CLOSE, b""))
        with pytest.raises(far_end.Closed):
            far_end.Outside(far).receive()
        assert near.recv(100) == far_end.frame(PONG, b"x")


def test_the_handshake_is_answered_as_the_standard_says() -> None:
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    wanted = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode())

    assert far_end.accept_of(key) == base64.b64encode(wanted.digest()).decode()
    assert far_end.accept_of(key) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
