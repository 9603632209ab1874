# SPDX-License-Identifier: Apache-2.0
"""A body that says it is too long is refused at once, and not when it has come."""

import anyio
import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

from livery.entrypoints.http_serving.answering import (
    Answer,
    Answering,
    Asked,
    to_application,
)
from livery.entrypoints.http_serving.serving import listen, serving
from livery.ports.provided.secret_values import SecretValues

pytestmark = pytest.mark.anyio

BYTES_MAX = 1024
WAIT_SECONDS = 5.0
"""Less than the rest of a body is waited for."""
GRACE_SECONDS = 0.5


async def counted(asked: Asked) -> Answer:
    return Answer(JSONResponse({"bytes": len(asked.body)}))


async def replied(length: str, sent: bytes, *more: str) -> bytes:
    """Return what a server answers before anything but `sent` has come to it."""
    answering = Answering(
        cookies=None, body_bytes_max=BYTES_MAX, secrets=SecretValues()
    )
    app = to_application([Route("/run", answering(counted), methods=["POST"])])
    listening = listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    head = ["POST /run HTTP/1.1", "Host: here", f"Content-Length: {length}", *more]
    found = b""
    async with (
        serving(app, listening, grace_seconds=GRACE_SECONDS),
        await anyio.connect_tcp("127.0.0.1", port) as stream,
    ):
        await stream.send("\r\n".join([*head, "", ""]).encode() + sent)
        with anyio.fail_after(WAIT_SECONDS):
            while not found.endswith(b"}"):
                found += await stream.receive()
    return found


@pytest.mark.parametrize("length", [str(BYTES_MAX + 1), "99999999999", "9" * 20])
async def test_a_declared_length_beyond_the_bound_is_refused_at_once(
    length: str,
) -> None:
    found = await replied(length, b"{")

    assert found.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in found.lower()
    assert b"longer than 1024 bytes" in found


async def test_who_waits_to_be_let_on_is_refused_as_well() -> None:
    found = await replied("99999999999", b"", "Expect: 100-continue")

    assert b"HTTP/1.1 413 " in found


async def test_a_declared_length_within_the_bound_is_taken() -> None:
    found = await replied(str(BYTES_MAX), b"x" * BYTES_MAX)

    assert found.endswith(b'{"bytes":1024}')
