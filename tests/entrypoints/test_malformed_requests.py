# SPDX-License-Identifier: Apache-2.0
"""What is no HTTP request gets a bare status, as docs/environment-server.md says."""

import anyio
import pytest

from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.http_serving.serving import listen, serving

pytestmark = pytest.mark.anyio

GRACE_SECONDS = 0.5
WAIT_SECONDS = 30.0
HEADERS_BYTES = 256 * 1024
"""More than any server takes."""


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"no request\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * HEADERS_BYTES, b"431"),
    ],
)
async def test_what_is_no_request_is_told_by_its_status_alone(
    sent: bytes, status: bytes
) -> None:
    listening = listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    found = b""
    async with (
        serving(to_application(()), listening, grace_seconds=GRACE_SECONDS),
        await anyio.connect_tcp("127.0.0.1", port) as stream,
    ):
        await stream.send(sent)
        with anyio.fail_after(WAIT_SECONDS):
            while b"\r\n\r\n" not in found:
                found += await stream.receive()

    assert found.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in found
    assert b"content-length: 0" in found
