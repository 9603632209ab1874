# SPDX-License-Identifier: Apache-2.0
"""A relay that says what it should not is lost, and nothing worse."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from livery.ports.provided.relay_connections import RelayFailed, open_relay
from livery.ports.provided.relay_links import WINDOW_BYTES
from livery.ports.provided.worker_frames import Frame, FrameKind, to_payload
from livery.ports.required.byte_stream import ByteStream
from livery.ports.required.sandbox import SandboxLost
from livery.ports.required.sandbox_streams import DuplexStream

from .far_ends import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

HELLO = Frame(FrameKind.HELLO, 0, to_payload({"ports": [1]})).to_bytes()
OPENED = Frame(FrameKind.OPENED, 1, (0).to_bytes(4, "big")).to_bytes()


class Saying:
    """A stream that says its pieces and then ends, or breaks."""

    def __init__(self, *pieces: bytes, breaks: bool = False) -> None:
        self._pieces = list(pieces)
        self._breaks = breaks

    async def send(self, data: bytes) -> None:
        raise BrokenPipeError("nobody reads")

    async def receive(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self._pieces:
            return self._pieces.pop(0)
        if self._breaks:
            raise OSError("the stream broke")
        return b""

    async def aclose(self) -> None:
        return None


class Silent(Saying):
    """A far end that takes all and says nothing until it is closed."""

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()

    async def send_end(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def receive(self) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError("unreachable")


async def silent() -> DuplexStream:
    return Silent()


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        (Saying(), "ended at once"),
        (Saying(breaks=True), "broke"),
        (Saying(OPENED), "no hello"),
        (Saying(b"bash: no such file\n"), "a frame of kind"),
        (Saying(Frame(FrameKind.HELLO, 0, b"[]").to_bytes()), "did not start"),
        (Saying(HELLO.replace(b'"ports"', b'"other"')), "no ports"),
    ],
)
async def test_without_a_hello_there_is_no_relay(stream: ByteStream, told: str) -> None:
    @asynccontextmanager
    async def opened(ports: tuple[int, ...]) -> AsyncGenerator[ByteStream]:
        yield stream

    with pytest.raises(RelayFailed, match=told):
        async with open_relay(opened, {"far": silent}):
            raise AssertionError("nothing listens")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "its stream ended"),
        (OPENED.replace(b"\0\0\0\0", b"\0\0\0\7"), "not given"),
        (OPENED + OPENED, "not given"),
        (OPENED + Frame(FrameKind.STAT, 1).to_bytes(), "sent STAT"),
        (Frame(FrameKind.CHUNK, 9, b"x").to_bytes(), "its stream ended"),
        (b"\xff" * 9, "a frame of kind"),
        (
            OPENED + Frame(FrameKind.CHUNK, 1, b"x" * (WINDOW_BYTES + 1)).to_bytes(),
            "no window",
        ),
    ],
)
async def test_what_no_relay_of_ours_says_loses_it(said: bytes, told: str) -> None:
    @asynccontextmanager
    async def opened(ports: tuple[int, ...]) -> AsyncGenerator[ByteStream]:
        yield Saying(HELLO + said)

    async with open_relay(opened, {"far": silent}, pause_seconds=0.0) as relay:
        with anyio.fail_after(PATIENCE_SECONDS):
            while not relay.record.is_lost:  # noqa: ASYNC110
                await anyio.sleep(0.001)

    assert relay.record.losses == len(relay.record.told) == 5
    assert told in relay.record.told[0]


async def test_a_relay_in_a_lost_sandbox_is_not_started_again() -> None:
    starts = 0

    @asynccontextmanager
    async def opened(ports: tuple[int, ...]) -> AsyncGenerator[ByteStream]:
        nonlocal starts
        starts += 1
        if starts > 1:
            raise SandboxLost("docker", "sandbox-1", "it was ended")
        yield Saying(HELLO)

    async with open_relay(opened, {"far": silent}, pause_seconds=0.0) as relay:
        with anyio.fail_after(PATIENCE_SECONDS):
            while not relay.record.is_lost:  # noqa: ASYNC110
                await anyio.sleep(0.001)

    assert starts == relay.record.losses == 2
    assert "it was ended" in relay.record.told[-1]
