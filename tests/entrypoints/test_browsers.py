# SPDX-License-Identifier: Apache-2.0
"""No page of a browser drives a server: who says where a page came from is refused."""

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from livery.entrypoints.http_serving.answering import alive, to_application

pytestmark = pytest.mark.anyio

PAGE = {"origin": "http://evil.example", "content-type": "text/plain"}


async def asked(method: str, path: str, **headers: str) -> tuple[httpx.Response, int]:
    """Return what is answered, and how often a handler was reached."""
    reached: list[bytes] = []

    async def run(request: Request) -> JSONResponse:
        reached.append(await request.body())
        return JSONResponse({})

    app = to_application(
        [Route("/run", run, methods=["POST"]), Route("/healthz", alive)]
    )
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://evil.example:18500"
    ) as client:
        reply = await client.request(method, path, headers=headers, content=b"{}")
    return reply, len(reached)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/run"),
        ("OPTIONS", "/run"),
        ("GET", "/healthz"),
        ("POST", "/nowhere"),
    ],
)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", ""])
async def test_a_request_with_an_origin_is_refused_wherever_it_goes(
    method: str, path: str, origin: str
) -> None:
    reply, reached = await asked(method, path, **{**PAGE, "origin": origin})

    told = reply.json()
    assert (reply.status_code, told["kind"], reached) == (403, "browser_refused", 0)
    assert "Origin" in told["detail"]
    assert "access-control-allow-origin" not in reply.headers


async def test_a_program_is_served_under_whatever_name_it_knows_the_server() -> None:
    reply, reached = await asked("POST", "/run")

    assert (reply.status_code, reached) == (200, 1)
