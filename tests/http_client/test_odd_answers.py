# SPDX-License-Identifier: Apache-2.0
"""Answers that are too long, do not end or cannot be decoded: typed, and bounded."""

import gzip
from collections.abc import AsyncGenerator

import anyio
import httpx
import pytest

from livery.adapters.http_client import (
    Delivery,
    HttpFailed,
    Patience,
    base_url,
    open_http_client,
)
from livery.adapters.http_client.answers import (
    ANSWER_BYTES_MAX,
    AnswerUnusable,
    whole_answer,
)

from .scripted_server import answer, serving

pytestmark = pytest.mark.anyio

QUICK = Patience(attempts_max=3, seconds_max=60.0, pause_seconds=0.001)
PACKED = "content-encoding: gzip"


@pytest.mark.parametrize("status", [200, 503])
async def test_an_answer_that_cannot_be_decoded_is_a_failure(status: int) -> None:
    async with (
        serving(lambda number, request: answer(status, PACKED, body=b"junk")) as server,
        open_http_client(base_url("127.0.0.1", server.port), patience=QUICK) as http,
    ):
        with pytest.raises(HttpFailed, match="cannot be decoded") as failed:
            await http.request("GET", "/", repeatable=True)
        with pytest.raises(HttpFailed, match="cannot be decoded"):
            async with http.stream("GET", "/") as streamed:
                await streamed.aread()

    assert failed.value.delivery is Delivery.DELIVERED
    assert failed.value.attempts == 1


async def test_an_answer_that_was_packed_is_read() -> None:
    body = gzip.compress(b"hello")
    async with (
        serving(lambda number, request: answer(200, PACKED, body=body)) as server,
        open_http_client(base_url("127.0.0.1", server.port), patience=QUICK) as http,
    ):
        reply = await http.request("GET", "/", repeatable=True)
        again = await http.request("GET", "/", repeatable=True)

    assert reply.content == again.content == b"hello"
    assert server.connections == 1


@pytest.mark.parametrize("is_packed", [False, True])
async def test_an_answer_that_is_too_long_is_not_taken_in(is_packed: bool) -> None:
    long = bytes(ANSWER_BYTES_MAX + 1)
    told = [PACKED] if is_packed else []
    body = gzip.compress(long, 1) if is_packed else long
    async with (
        serving(lambda number, request: answer(200, *told, body=body)) as server,
        open_http_client(base_url("127.0.0.1", server.port), patience=QUICK) as http,
    ):
        with pytest.raises(HttpFailed, match="longer than") as failed:
            await http.request("GET", "/", repeatable=True)

    assert failed.value.attempts == 1
    assert len(server.asked) == 1


async def test_an_answer_that_drips_for_ever_is_given_up() -> None:
    async def drips() -> AsyncGenerator[bytes]:
        while True:
            await anyio.sleep(0.01)
            yield b" "

    head = httpx.Response(
        200, content=drips(), request=httpx.Request("GET", "http://h")
    )

    with anyio.fail_after(30), pytest.raises(AnswerUnusable, match="did not end"):
        await whole_answer(head, seconds_max=0.1)

    assert head.is_closed
