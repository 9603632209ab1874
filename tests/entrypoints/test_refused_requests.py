# SPDX-License-Identifier: Apache-2.0
"""What is refused before a handler is reached says what it is, as every refusal does."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from .listening_servers import SANDBOXES, Listening, listening_servers

pytestmark = pytest.mark.anyio

BYTES_MAX = 1024
LONG = b"x" * (BYTES_MAX + 1)
SHORT = b"{}"
STRANGERS = 'trusted_networks = ["203.0.113.0/24"]'
"""Where nobody asks from, so that this test is not trusted."""
ANSWERS = [
    ("agent", "GET", "/nowhere", SHORT, 404, "path_unknown"),
    ("agent", "GET", "/v1/responses", SHORT, 405, "method_not_allowed"),
    ("agent", "POST", "/healthz", SHORT, 405, "method_not_allowed"),
    ("agent", "POST", "/v1/agent_sessions", LONG, 413, "body_too_long"),
    ("environment", "POST", "/run", LONG, 413, "body_too_long"),
    ("resources", "GET", "/api/box", SHORT, 404, "path_unknown"),
    ("resources", "GET", "/nowhere", SHORT, 405, "method_not_allowed"),
    ("resources", "GET", "/verify", SHORT, 405, "method_not_allowed"),
    ("resources", "GET", "/task_state", SHORT, 403, "forbidden"),
    ("resources", "POST", "/verify", LONG, 403, "forbidden"),
    ("resources", "GET", "/openapi.json", SHORT, 403, "forbidden"),
    ("resources", "GET", "/api", SHORT, 401, "unauthorized"),
    ("resources", "POST", "/box_put", SHORT, 401, "unauthorized"),
    ("resources", "POST", "/box_put", LONG, 413, "body_too_long"),
    ("resources", "POST", "/mcp", SHORT, 401, "unauthorized"),
    (SANDBOXES, "POST", "/verify", SHORT, 404, "path_unknown"),
    (SANDBOXES, "GET", "/mcp", SHORT, 405, "method_not_allowed"),
    (SANDBOXES, "GET", "/files/a", SHORT, 401, "unauthorized"),
    (SANDBOXES, "PUT", "/files/a", LONG, 413, "body_too_long"),
]


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[Mapping[str, Listening]]:
    bounds = f"body_bytes_max = {BYTES_MAX}"
    async with listening_servers(folder, STRANGERS, bounds) as servers:
        yield servers


async def test_what_is_refused_has_a_kind(tmp_path: Path) -> None:
    found: list[tuple[str, str, str, bytes, int, str]] = []
    told: list[object] = []
    async with served(tmp_path) as servers, httpx.AsyncClient() as client:
        for server, method, path, body, _, _ in ANSWERS:
            reply = await client.request(
                method, f"{servers[server].url}{path}", content=body
            )
            kind = str(reply.json().get("kind"))
            found.append((server, method, path, body, reply.status_code, kind))
            told.append(sorted(reply.json()))

    assert found == ANSWERS
    assert told == [["detail", "kind"]] * len(ANSWERS)


async def test_the_environment_tells_what_is_not_there_as_nemo_gym_does(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as servers, httpx.AsyncClient() as client:
        url = servers["environment"].url
        unknown = await client.post(f"{url}/nope", json={})
        got = await client.get(f"{url}/run")

    assert (unknown.status_code, unknown.json()) == (404, {"detail": "Not Found"})
    assert (got.status_code, got.json()) == (405, {"detail": "Method Not Allowed"})
    assert got.headers["allow"] == "POST"
