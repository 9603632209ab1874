# SPDX-License-Identifier: Apache-2.0
"""A relay in a local sandbox carries connections to this host, and nothing else."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.abc
import pytest

from livery.adapters.local_host.sandbox import LocalHostSandbox
from livery.adapters.worker_scripts import program
from livery.ports.provided.mailbox_streams import through_files
from livery.ports.provided.relay_connections import (
    OpenStream,
    Relay,
    RelayFailed,
    RelayStart,
    attached,
    open_relay,
)
from livery.ports.required.byte_stream import ByteStream
from livery.ports.required.sandbox_provider import SandboxSpec
from livery.ports.required.sandbox_streams import DuplexStream, StreamingSandbox

from .. import peers
from ..channel.processes import until_gone
from ..channel.worker_sandbox import sandbox_in
from ..local_host.places import new_label, provider_in
from .far_ends import (
    PATIENCE_SECONDS,
    echo,
    mailbox_in,
    received,
    seconds_of,
    serving,
    starting,
)

pytestmark = pytest.mark.anyio

MUCH = bytes(range(256)) * 8192
"""2 MiB: eight windows."""


@pytest.fixture(params=["own", "oldest"])
def start(request: pytest.FixtureRequest) -> RelayStart:
    """Start the relay on this Python, and on the oldest that is here."""
    # Read anew: while coverage is on, another program stands for our own.
    python = sys.executable if request.param == "own" else str(peers.oldest_python())
    return starting(python)


@pytest.fixture(params=["streams", "files"])
async def opens(
    request: pytest.FixtureRequest,
    start: RelayStart,
    sandbox: LocalHostSandbox,
    tmp_path: Path,
) -> AsyncIterator[OpenStream]:
    """Carry over attached streams, and through files."""
    if request.param == "streams":
        yield attached(sandbox, start)
        return
    python = start(())[0][0]
    async with sandbox_in(tmp_path, python) as plain:
        assert not isinstance(plain, StreamingSandbox)
        yield through_files(plain, program("mailbox"), python=python)
        await until_gone(mailbox_in(plain.scratch))


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[LocalHostSandbox]:
    label = new_label()
    async with provider_in(tmp_path / "sandboxes") as provider:
        made = await provider.create(label, SandboxSpec())
        assert isinstance(made, LocalHostSandbox)
        assert isinstance(made, StreamingSandbox)
        try:
            yield made
        finally:
            await provider.destroy(label)


async def connected(relay: Relay, target: str = "far") -> anyio.abc.SocketStream:
    return await anyio.connect_tcp("127.0.0.1", relay.ports[target])


async def test_bytes_come_through_both_ways_and_ends_too(opens: OpenStream) -> None:
    heard = b""
    async with (
        serving(echo) as far,
        open_relay(opens, {"far": far}) as relay,
        await connected(relay) as inside,
        anyio.create_task_group() as tasks,
    ):

        async def say() -> None:
            await inside.send(MUCH)
            await inside.send_eof()

        tasks.start_soon(say)
        heard = await received(inside)

    assert heard == MUCH
    assert (relay.record.bytes_out, relay.record.bytes_in) == (len(MUCH), len(MUCH))
    assert (relay.record.connections, relay.record.losses) == (1, 0)


async def test_what_is_sent_piece_by_piece_comes_piece_by_piece(
    opens: OpenStream,
) -> None:
    heard = anyio.Event()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        nonlocal heard
        async with stream:
            for number in range(3):
                await stream.send(b"%d" % number)
                await heard.wait()
                heard = anyio.Event()

    async with (
        serving(serve) as far,
        open_relay(opens, {"far": far}) as relay,
        await connected(relay) as inside,
    ):
        pieces: list[bytes] = []
        with anyio.fail_after(PATIENCE_SECONDS):
            for _ in range(3):
                pieces.append(await inside.receive())
                heard.set()

    assert pieces == [b"0", b"1", b"2"]


async def test_many_connections_go_on_beside_one_that_nobody_reads(
    opens: OpenStream,
) -> None:
    async def pour(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            while True:
                try:
                    await stream.send(MUCH)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    heard: list[bytes] = []
    async with (
        serving(pour) as source,
        serving(echo) as far,
        open_relay(opens, {"far": far, "source": source}) as relay,
        await connected(relay, "source"),
    ):

        async def ask(number: int) -> None:
            async with await connected(relay) as inside:
                await inside.send(b"%d" % number)
                await inside.send_eof()
                heard.append(await received(inside))

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(ask, number)
        poured = relay.record.bytes_in

    assert sorted(heard, key=int) == [b"%d" % number for number in range(40)]
    assert poured < 16 * 1024 * 1024, "the relay held back who nobody reads"


async def test_who_leaves_inside_is_gone_outside_within_a_second(
    opens: OpenStream, request: pytest.FixtureRequest
) -> None:
    gone = anyio.Event()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError):
                async for _ in stream:
                    pass
        gone.set()

    async with (
        serving(serve) as far,
        open_relay(opens, {"far": far}) as relay,
    ):
        inside = await connected(relay)
        await inside.send(b"hello")
        await inside.aclose()
        with anyio.fail_after(seconds_of(request)):
            await gone.wait()


async def test_a_far_end_that_is_not_there_is_a_closed_connection_and_told(
    opens: OpenStream,
) -> None:
    async def nobody() -> DuplexStream:
        raise ConnectionRefusedError("nobody listens")

    async with (
        open_relay(opens, {"far": nobody}) as relay,
        await connected(relay) as inside,
    ):
        assert await received(inside) == b""

    assert relay.record.failed_dials == 1
    assert "nobody listens" in relay.record.told[0]


@pytest.mark.case("FC-248")
async def test_a_lost_relay_closes_connections_is_told_and_comes_back(
    sandbox: LocalHostSandbox, start: RelayStart
) -> None:
    streams: list[ByteStream] = []

    @asynccontextmanager
    async def opened(ports: tuple[int, ...]) -> AsyncGenerator[ByteStream]:
        async with attached(sandbox, start)(ports) as stream:
            streams.append(stream)
            yield stream

    async with serving(echo) as far, open_relay(opened, {"far": far}) as relay:
        inside = await connected(relay)
        async with inside:
            await inside.send(b"before")
            assert await inside.receive() == b"before"
            await streams[0].aclose()
            try:
                rest = await received(inside)
            except anyio.BrokenResourceError:
                rest = b""
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(streams) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            again = await _connected_again(relay)
        async with again:
            await again.send(b"after")
            await again.send_eof()
            heard = await received(again)

    assert rest == b""
    assert heard == b"after"
    assert relay.record.losses == 1
    assert not relay.record.is_lost


async def _connected_again(relay: Relay) -> anyio.abc.SocketStream:
    while True:
        try:
            return await connected(relay)
        except OSError:
            await anyio.sleep(0.01)


async def test_a_relay_that_cannot_stay_is_given_up_and_says_so(
    sandbox: LocalHostSandbox, start: RelayStart
) -> None:
    starts = 0

    @asynccontextmanager
    async def opened(ports: tuple[int, ...]) -> AsyncGenerator[ByteStream]:
        nonlocal starts
        starts += 1
        async with attached(sandbox, start)(ports) as stream:
            yield stream if starts == 1 else _Ended()
            await stream.aclose()

    async with serving(echo) as far:
        streams: list[ByteStream] = []

        @asynccontextmanager
        async def remembered(ports: tuple[int, ...]) -> AsyncGenerator[ByteStream]:
            async with opened(ports) as stream:
                streams.append(stream)
                yield stream

        async with open_relay(remembered, {"far": far}, pause_seconds=0.0) as relay:
            await streams[0].aclose()
            with anyio.fail_after(PATIENCE_SECONDS):
                while not relay.record.is_lost:  # noqa: ASYNC110
                    await anyio.sleep(0.01)

    assert relay.record.losses == starts == 5


class _Ended:
    async def send(self, data: bytes) -> None:
        raise BrokenPipeError("gone")

    async def receive(self) -> bytes:
        return b""

    async def aclose(self) -> None:
        return None


async def test_a_port_that_is_taken_is_told_and_no_relay_runs(
    sandbox: LocalHostSandbox, start: RelayStart
) -> None:
    async with serving(echo) as far:
        async with open_relay(attached(sandbox, start), {"far": far}) as relay:
            with pytest.raises(RelayFailed, match="in use"):
                async with open_relay(
                    attached(sandbox, start), {"far": far}, ports=relay.ports
                ):
                    raise AssertionError("it cannot listen there")

        async with open_relay(
            attached(sandbox, start), {"far": far}, ports=relay.ports
        ) as second:
            assert second.ports == relay.ports


async def test_without_a_python_no_relay_runs(
    sandbox: LocalHostSandbox,
) -> None:
    def wrong(ports: tuple[int, ...]) -> tuple[tuple[str, ...], bytes]:
        return ("true",), b"no program"

    with pytest.raises(RelayFailed, match="ended at once"):
        async with open_relay(attached(sandbox, wrong), {}):
            raise AssertionError("nothing listens")


async def test_what_is_raised_inside_comes_out_as_it_is(
    sandbox: LocalHostSandbox, start: RelayStart
) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_relay(attached(sandbox, start), {}):
            raise KeyError("mine")
