# SPDX-License-Identifier: Apache-2.0
"""Connections to the gateway: gone with their callers, and not cut under a request."""

import anyio
import httpx
import psutil
import pytest

from livery.entrypoints.model_gateway import GatewayBounds
from livery.entrypoints.model_gateway.serving import IDLE_SECONDS

from .gateways import MESSAGES, PATIENCE_SECONDS, asking, gateway
from .upstream import answer, says

pytestmark = pytest.mark.anyio

PONG = answer(200, b"{}")
CALLERS = 20
assert PATIENCE_SECONDS < IDLE_SECONDS, "they would be closed by then anyhow"


async def test_callers_that_leave_leave_no_descriptor_behind() -> None:
    async with gateway(says(PONG)) as gate:
        await gate.post(asking())
        before = psutil.Process().num_fds()

        for _ in range(CALLERS):
            shown = {"x-api-key": gate.grant.placeholder}
            base = gate.grant.base_url
            async with httpx.AsyncClient(base_url=base, headers=shown) as caller:
                assert (await caller.post(MESSAGES, content=asking())).is_success

        with anyio.fail_after(PATIENCE_SECONDS):
            while psutil.Process().num_fds() > before:  # noqa: ASYNC110
                await anyio.sleep(0.01)


@pytest.mark.parametrize("is_declared", [True, False])
async def test_who_sends_too_much_before_it_reads_gets_the_answer(
    is_declared: bool,
) -> None:
    piece, pieces = bytes(1024 * 1024), 16
    length = b"content-length: %d" % (len(piece) * pieces)
    async with gateway(
        says(PONG), bounds=GatewayBounds(request_bytes_max=len(piece))
    ) as gate:
        url = httpx.URL(gate.grant.base_url)
        assert url.port is not None
        async with await anyio.connect_tcp(url.host, url.port) as caller:
            head = b"\r\n".join(
                (
                    b"POST /v1/messages HTTP/1.1",
                    b"host: h",
                    b"x-api-key: " + gate.grant.placeholder.encode(),
                    length if is_declared else b"transfer-encoding: chunked",
                    b"\r\n",
                )
            )
            await caller.send(head)
            for _ in range(pieces):
                framed = b"%x\r\n%b\r\n" % (len(piece), piece)
                await caller.send(piece if is_declared else framed)
            if not is_declared:
                await caller.send(b"0\r\n\r\n")
            reply = await caller.receive()

    assert reply.startswith(b"HTTP/1.1 413")
