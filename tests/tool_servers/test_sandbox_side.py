# SPDX-License-Identifier: Apache-2.0
"""A relay leads a sandbox to where a server gives tools and does nothing else."""

import json
import sys
from pathlib import Path

import pytest

from livery.adapters.harnesses.claude_code import ClaudeCodeHarness
from livery.adapters.tool_servers import HostToolServers
from livery.adapters.tool_servers.sandbox_side import led_to
from livery.adapters.worker_scripts import program
from livery.ports.provided.check_tools import CheckTools
from livery.ports.required.tool_servers import ToolsUnreachable

from ..channel.worker_sandbox import sandbox_in
from ..resources_server.serving import BoxWorld
from ..resources_server.serving import serving as resources_serving
from .servers import TOKEN, access, nowhere, tool_server

pytestmark = pytest.mark.anyio


def document(sandbox_url: object) -> bytes:
    return json.dumps({"info": {"x-livery": {"sandbox_url": sandbox_url}}}).encode()


@pytest.mark.parametrize(
    "described",
    [
        None,
        b"no JSON",
        b"[]",
        b"{}",
        b'{"info": null}',
        b'{"info": {"x-livery": []}}',
        b'{"info": {"x-livery": {"concurrency": 3}}}',
        document(3),
    ],
)
async def test_a_server_that_keeps_no_other_address_is_led_to(
    described: bytes | None,
) -> None:
    with tool_server() as there:
        there.described = described
        found = await HostToolServers().for_sandboxes(there.url)

    assert found == there.url
    assert TOKEN not in repr(there.asked), "who is only looked at is shown no token"


@pytest.mark.parametrize(
    ("kept", "led_to"),
    [
        ("http://127.0.0.1:7", "http://127.0.0.1:7/mcp"),
        ("http://[::1]:7", "http://[::1]:7/mcp"),
        ("http://0.0.0.0:7", "http://127.0.0.1:7/mcp"),
        ("http://10.1.2.3:7", "http://10.1.2.3:7/mcp"),
        ("http://apps.example:7", "http://apps.example:7/mcp"),
    ],
)
async def test_a_server_that_keeps_one_for_sandboxes_is_led_to_there(
    kept: str, led_to: str
) -> None:
    with tool_server() as there:
        there.described = document(kept)

        assert await HostToolServers().for_sandboxes(there.url) == led_to
        by_name = there.url.replace("127.0.0.1", "localhost")
        named = (
            led_to.replace("127.0.0.1", "localhost") if "0.0.0.0" in kept else led_to
        )
        assert await HostToolServers().for_sandboxes(by_name) == named


@pytest.mark.parametrize("known", ["10.1.2.3", "tools.example"])
def test_an_address_of_the_server_s_own_host_is_none_for_another(known: str) -> None:
    with pytest.raises(OSError, match=r"set sandbox_host in \[resources_server\]"):
        led_to(f"http://{known}:8200/mcp", "http://127.0.0.1:7")


async def test_a_server_that_does_not_answer_is_led_to_nowhere() -> None:
    with pytest.raises(OSError, match="refused"):
        await HostToolServers().for_sandboxes(nowhere())


async def test_a_session_whose_relay_has_nowhere_to_lead_is_not_seeded(
    tmp_path: Path,
) -> None:
    look = CheckTools(
        servers=HostToolServers(),
        program=program("tool_servers"),
        is_relayed=lambda sandbox: True,
    )
    async with sandbox_in(tmp_path, sys.executable) as sandbox:
        with tool_server() as there:
            there.described = document(nowhere().removesuffix("/mcp"))
            with pytest.raises(ToolsUnreachable, match="Connection refused"):
                await look(ClaudeCodeHarness(), (access(there.url),), sandbox)
        with pytest.raises(ToolsUnreachable, match="this host: Connection refused"):
            await look(ClaudeCodeHarness(), (access(nowhere(), "gone"),), sandbox)


async def test_our_resources_server_tells_where_sandboxes_are_let_in(
    tmp_path: Path,
) -> None:
    world = BoxWorld(wants_sandbox=False)
    async with resources_serving(tmp_path, world) as server:
        told = (await server.get("/openapi.json")).json()

    assert told["info"]["x-livery"] == {"sandbox_url": server.application.sandbox_url}
