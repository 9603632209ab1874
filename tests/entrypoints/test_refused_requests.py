# SPDX-License-Identifier: Apache-2.0
"""What is refused before a handler is reached says what it is, as every refusal does."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from livery.entrypoints.all_servers import open_all_servers
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.http_serving.serving import address_of, serving
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.settings_reading import read_settings
from livery.entrypoints.state_folder import open_state_folder

from ..resources_server.serving import BoxWorld

pytestmark = pytest.mark.anyio

GRACE_SECONDS = 0.5
NAMES = ("environment", "agent", "resources")
BYTES_MAX = 1024
LONG = b"x" * (BYTES_MAX + 1)
SHORT = b"{}"
TRUSTED = "203.0.113.0/24"
"""Where nobody asks from, so that this test is not trusted."""
SETTINGS = f"""
[agent_server]
port = 0
harness = "nop"
body_bytes_max = {BYTES_MAX}
[resources_server]
port = 0
body_bytes_max = {BYTES_MAX}
trusted_networks = ["{TRUSTED}"]
[environment_server]
port = 0
body_bytes_max = {BYTES_MAX}
"""
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
    ("sandboxes", "POST", "/verify", SHORT, 404, "path_unknown"),
    ("sandboxes", "GET", "/mcp", SHORT, 405, "method_not_allowed"),
    ("sandboxes", "GET", "/files/a", SHORT, 401, "unauthorized"),
    ("sandboxes", "PUT", "/files/a", LONG, 413, "body_too_long"),
]


@asynccontextmanager
async def addresses(folder: Path) -> AsyncGenerator[dict[str, str]]:
    """Serve everything, and tell where."""
    path = folder / "livery.toml"
    path.write_text(SETTINGS)
    state = folder / "state"
    async with (
        open_all_servers(
            read_settings(path),
            open_state_folder(state),
            Surroundings(name="all", state=state),
            world=BoxWorld(wants_sandbox=False),
        ) as servers,
        AsyncExitStack() as stack,
    ):
        (port,) = (state / "all-sandbox-ports").read_text().split()
        found = {"sandboxes": f"http://127.0.0.1:{port}"}
        for name, each in zip(NAMES, servers, strict=True):
            found[name] = address_of(each.socket)
            app = to_application(
                each.served.routes, without_kind=each.served.without_kind
            )
            await stack.enter_async_context(
                serving(app, each.socket, grace_seconds=GRACE_SECONDS)
            )
        yield found


async def test_what_is_refused_has_a_kind(tmp_path: Path) -> None:
    found: list[tuple[str, str, str, bytes, int, str]] = []
    told: list[object] = []
    async with addresses(tmp_path) as url, httpx.AsyncClient() as client:
        for server, method, path, body, _, _ in ANSWERS:
            reply = await client.request(method, f"{url[server]}{path}", content=body)
            kind = str(reply.json().get("kind"))
            found.append((server, method, path, body, reply.status_code, kind))
            told.append(sorted(reply.json()))

    assert found == ANSWERS
    assert told == [["detail", "kind"]] * len(ANSWERS)


async def test_the_environment_tells_what_is_not_there_as_nemo_gym_does(
    tmp_path: Path,
) -> None:
    async with addresses(tmp_path) as url, httpx.AsyncClient() as client:
        unknown = await client.post(f"{url['environment']}/nope", json={})
        got = await client.get(f"{url['environment']}/run")

    assert (unknown.status_code, unknown.json()) == (404, {"detail": "Not Found"})
    assert (got.status_code, got.json()) == (405, {"detail": "Method Not Allowed"})
    assert got.headers["allow"] == "POST"
