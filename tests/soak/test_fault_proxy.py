# SPDX-License-Identifier: Apache-2.0
"""The fault proxy: honest HTTP/1.1 when nothing goes wrong, and each fault as it says."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.abc
import attrs
import pytest

from livery.adapters.docker_engine.engine_address import EngineAddress
from livery.adapters.docker_engine.engine_socket import EngineSocket, connect

from ..model_gateway.upstream import (
    LAST_CHUNK,
    STREAM_HEAD,
    Request,
    Script,
    Upstream,
    answer,
    chunk,
    says,
    says_and_closes,
    upstream,
)
from .chances import Chances, FaultKind
from .fault_proxy import fault_proxy
from .http_messages import Reader

pytestmark = pytest.mark.anyio

ASK = (
    b"POST /it?a=b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX-Own: kept\r\n\r\nhello"
)
GET = b"GET /it HTTP/1.1\r\nHost: h\r\n\r\n"
UPGRADE = b"POST /e HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
PLAIN = answer(200, b"0123456789" * 10)
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\nand so on"
CHUNKED = STREAM_HEAD + chunk(b"one") + chunk(b"two") + LAST_CHUNK
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.005
BRISK = 0.02
"""Faults that last so long are none that a test waits for."""


@attrs.frozen
class Scene:
    """A server, and a proxy before it."""

    address: EngineAddress
    server: Upstream
    chances: Chances

    async def told(self, asked: bytes) -> bytes:
        """Ask on a connection of its own, and return all that comes until its end."""
        caller = await connect(self.address)
        try:
            await caller.send(asked)
            return await rest(caller)
        finally:
            caller.close()


async def rest(caller: EngineSocket) -> bytes:
    found = b""
    with anyio.fail_after(WAIT_SECONDS):
        try:
            while piece := await caller.receive(65536):
                found += piece
        except ConnectionResetError:
            pass
    return found


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def scene(
    script: Script,
    *kinds: FaultKind,
    seed: int = 1,
    pace: float = BRISK,
    path: Path | None = None,
) -> AsyncGenerator[Scene]:
    chances = Chances("hop", float(bool(kinds)), seed, kinds=kinds, pace=pace)
    async with upstream(script) as server:
        address = EngineAddress(host="127.0.0.1", port=server.port)
        async with fault_proxy(chances, address, path) as proxy:
            yield Scene(proxy, server, chances)


@pytest.mark.parametrize(
    "reply", [PLAIN, CHUNKED, answer(204, b""), answer(404, b"no")]
)
async def test_requests_follow_each_other_on_one_connection(reply: bytes) -> None:
    async with scene(says(b"HTTP/1.1 100 Continue\r\n\r\n", reply)) as it:
        caller = await connect(it.address)
        reader = Reader(caller)
        found: list[bytes] = []
        for _ in range(3):
            await caller.send(ASK)
            assert (await reader.head()) is not None
            head = await reader.head()
            assert head is not None
            body = b"".join(
                [piece async for piece in reader.sized(len(reply) - len(head.raw))]
            )
            found.append(head.raw + body)
        caller.close()

    assert found == [reply] * 3
    assert [one.head + b"\r\n\r\n" + one.body for one in it.server.asked] == [ASK] * 3
    assert not it.chances.counted


async def test_a_reply_without_a_length_ends_with_its_connection(
    tmp_path: Path,
) -> None:
    async with scene(says_and_closes(ENDLESS), path=tmp_path / "socket") as it:
        assert it.address.path is not None
        assert await it.told(GET) == ENDLESS
    assert not (tmp_path / "socket").exists()


async def test_a_reply_to_head_has_no_body() -> None:
    only = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    async with scene(says(only)) as it:
        caller = await connect(it.address)
        reader = Reader(caller)
        for _ in range(2):
            await caller.send(GET.replace(b"GET", b"HEAD"))
            head = await reader.head()
            assert head is not None
            assert head.raw == only
        caller.close()


async def test_a_request_in_chunks_and_one_cut_off_by_its_caller_come_as_they_are() -> (
    None
):
    seen: list[bytes] = []

    async def swallow(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            held = b""
            try:
                while not held.endswith(LAST_CHUNK):
                    held += await stream.receive()
            except anyio.EndOfStream:
                pass
            seen.append(held)
            await stream.send(answer(200, b"taken"))

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    chances = Chances("hop", 0.0, 1)
    head = b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = head + chunk(b"x" * 100_000) + LAST_CHUNK
    part = b"PUT /a HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, swallow)
        async with fault_proxy(
            chances, EngineAddress(host="127.0.0.1", port=port)
        ) as proxy:
            for asked in (whole, part):
                caller = await connect(proxy)
                await caller.send(asked)
                caller.send_end()
                assert await rest(caller) in (answer(200, b"taken"), b"")
                caller.close()
                await until(lambda: seen[-1:] == [asked])  # noqa: B023
        group.cancel_scope.cancel()


@pytest.mark.parametrize("kind", [FaultKind.REFUSE, FaultKind.DROP])
async def test_what_is_refused_or_dropped_never_reaches_the_server(
    kind: FaultKind,
) -> None:
    async with scene(says(PLAIN), kind) as it:
        assert await it.told(ASK) == b""
    assert it.server.asked == []
    assert it.chances.counted == {kind: 1}


async def test_a_caller_who_leaves_a_dropped_request_is_let_go() -> None:
    async with scene(says(PLAIN), FaultKind.DROP, pace=1000.0) as it:
        caller = await connect(it.address)
        await caller.send(ASK)
        caller.send_end()
        assert await rest(caller) == b""
        caller.close()


@pytest.mark.parametrize("seed", range(5))
async def test_a_request_that_is_cut_is_never_whole(seed: int) -> None:
    async with scene(says(PLAIN), FaultKind.CUT_REQUEST, seed=seed) as it:
        assert await it.told(ASK) == b""
        await until(lambda: it.server.connections == 0)
    assert it.server.asked == []
    assert it.chances.counted == {FaultKind.CUT_REQUEST: 1}


@pytest.mark.parametrize("seed", range(5))
async def test_a_reply_that_is_cut_was_carried_out(seed: int) -> None:
    async with scene(says(PLAIN), FaultKind.CUT_REPLY, seed=seed) as it:
        found = await it.told(ASK)
    assert len(found) < len(PLAIN)
    assert PLAIN.startswith(found)
    assert len(it.server.asked) == 1
    assert it.chances.counted == {FaultKind.CUT_REPLY: 1}


@pytest.mark.parametrize("kind", [FaultKind.STALL, FaultKind.SLOW])
@pytest.mark.parametrize("reply", [ENDLESS, answer(200, b"x" * 50_000)])
@pytest.mark.parametrize("seed", range(3))
async def test_what_stalls_or_is_slow_comes_whole(
    kind: FaultKind, reply: bytes, seed: int
) -> None:
    async with scene(says_and_closes(reply), kind, seed=seed) as it:
        caller = await connect(it.address)
        await caller.send(ASK)
        found = b""
        with anyio.fail_after(WAIT_SECONDS):
            while len(found) < len(reply):
                found += await caller.receive(65536)
        caller.close()
    assert found == reply
    assert it.chances.counted == {kind: 1}


async def test_a_duplicate_asks_twice_and_is_answered_once() -> None:
    async with scene(says(PLAIN), FaultKind.DUPLICATE) as it:
        caller = await connect(it.address)
        await caller.send(ASK)
        found = b""
        while len(found) < len(PLAIN):
            found += await caller.receive(65536)
        await until(lambda: len(it.server.asked) == 2)
        caller.send_end()
        assert await rest(caller) == b""
        caller.close()
        await until(lambda: it.server.connections == 0)
        await until(lambda: it.chances.under_way == 0)
    assert found == PLAIN
    assert [one.body for one in it.server.asked] == [b"hello"] * 2
    assert it.chances.counted == {FaultKind.DUPLICATE: 1}


async def test_what_is_long_or_upgrades_is_not_duplicated() -> None:
    size = 70_000
    asked = b"PUT /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    async with scene(says_and_closes(ENDLESS), FaultKind.DUPLICATE) as it:
        assert await it.told(asked) == ENDLESS
        assert await it.told(UPGRADE) == ENDLESS
    assert len(it.server.asked) == 2
    assert not it.chances.counted


UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n"


async def echo(_: Request, stream: anyio.abc.SocketStream) -> None:
    """Give back what comes, and say goodbye when nothing more will."""
    await stream.send(UPGRADED)
    async for piece in stream:
        await stream.send(piece)
    await stream.send(b"bye")
    await stream.aclose()


@pytest.mark.parametrize("kinds", [(), (FaultKind.SLOW,), (FaultKind.STALL,)])
@pytest.mark.parametrize("seed", range(2))
async def test_a_tunnel_has_two_ends_that_close_one_by_one(
    kinds: tuple[FaultKind, ...], seed: int
) -> None:
    async with scene(echo, *kinds, seed=seed) as it:
        caller = await connect(it.address)
        await caller.send(UPGRADE + b"first")
        for _ in range(20):
            await caller.send(b"more")
        caller.send_end()
        found = await rest(caller)
        caller.close()
    assert found == UPGRADED + b"first" + b"more" * 20 + b"bye"
    assert set(it.chances.counted) == set(kinds)


@pytest.mark.parametrize("seed", range(6))
async def test_a_tunnel_that_is_cut_ends_on_both_sides(seed: int) -> None:
    async with scene(echo, FaultKind.CUT_REPLY, seed=seed) as it:
        caller = await connect(it.address)
        await caller.send(UPGRADE)
        sent = b"x" * 10_000
        with suppress(OSError):
            await caller.send(sent)
        found = await rest(caller)
        caller.close()
        await until(lambda: it.server.connections == 0)
    assert len(found) < len(UPGRADED) + len(sent)
    assert it.chances.counted == {FaultKind.CUT_REPLY: 1}


async def test_who_leaves_is_followed_to_the_server() -> None:
    left = anyio.Event()

    async def never(_: Request, stream: anyio.abc.SocketStream) -> None:
        try:
            await stream.receive()
        finally:
            left.set()

    async with scene(never) as it:
        caller = await connect(it.address)
        await caller.send(ASK)
        await until(lambda: it.server.connections == 1)
        caller.close()
        with anyio.fail_after(WAIT_SECONDS):
            await left.wait()


async def test_a_server_that_is_not_there_is_a_closed_connection(
    tmp_path: Path,
) -> None:
    nobody = EngineAddress(path=str(tmp_path / "nobody"))
    async with fault_proxy(Chances("hop", 0.0, 1), nobody) as proxy:
        caller = await connect(proxy)
        await caller.send(ASK)
        assert await rest(caller) == b""
        caller.close()


def test_a_seed_decides_and_the_share_is_kept() -> None:
    one, same, other = (Chances("hop", 0.05, seed) for seed in (7, 7, 8))
    told = [
        [c.next(can_repeat=True) for _ in range(20_000)] for c in (one, same, other)
    ]

    assert told[0] == told[1] != told[2]
    faults = [fault for fault in told[0] if fault is not None]
    assert 900 < len(faults) < 1100
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert one.messages == 20_000
