# SPDX-License-Identifier: Apache-2.0
"""An answer goes out when the request is in, or says that the connection closes."""

from typing import Any

import pytest
from anyio.lowlevel import checkpoint
from starlette.responses import PlainTextResponse
from starlette.types import Message

from livery.entrypoints.http_connections import body_ends
from livery.entrypoints.http_connections.body_ends import read_to_the_end

pytestmark = pytest.mark.anyio

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "headers": []}


async def answered(*body: Message) -> list[Any]:
    """Return what was received and sent, in order, by an app that reads no body."""
    seen: list[Any] = []
    left = iter(body)

    async def receive() -> Message:
        message = next(left)
        seen.append(message["type"])
        return message

    async def send(message: Message) -> None:
        seen.append(message)

    await read_to_the_end(PlainTextResponse("no", 413))(SCOPE, receive, send)
    return seen


async def test_a_body_that_nobody_reads_is_in_before_its_answer_is_out() -> None:
    seen = await answered(
        {"type": "http.request", "body": b"x", "more_body": True},
        {"type": "http.request", "body": b"y", "more_body": False},
    )

    assert seen[:2] == ["http.request"] * 2
    assert [message["type"] for message in seen[2:]] == [
        "http.response.start",
        "http.response.body",
    ]
    assert body_ends.CLOSING_HEADER not in seen[2]["headers"]


async def test_a_body_that_does_not_end_closes_its_connection() -> None:
    seen: list[Message] = []

    async def receive() -> Message:
        await checkpoint()
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Message) -> None:
        seen.append(message)

    app = PlainTextResponse("no", 413)
    await read_to_the_end(app, drain_seconds=0.0)(SCOPE, receive, send)

    assert body_ends.CLOSING_HEADER in seen[0]["headers"]
