# SPDX-License-Identifier: Apache-2.0
"""A session that needs a tool server which is not there is refused when it is seeded."""

import sys
from pathlib import Path

import attrs
import pytest

from livery.adapters.harnesses.claude_code import ClaudeCodeHarness
from livery.adapters.harnesses.command import CommandHarness
from livery.adapters.harnesses.nop import NopHarness
from livery.adapters.harnesses.simple import SimpleConfig, SimpleHarness
from livery.adapters.tool_servers import HostToolServers
from livery.adapters.worker_scripts import program
from livery.ports.provided.check_tools import CheckTools, check_honoured
from livery.ports.required.harness import (
    Harness,
    RequestRefused,
    ToolAccess,
    ToolTransport,
)
from livery.ports.required.sandbox import SandboxFailed
from livery.ports.required.tool_servers import ToolsUnreachable

from ..agent_server.scripted import ScriptedHarness, seed, serving
from ..channel.worker_sandbox import sandbox_in
from .servers import TOKEN, access, nowhere, tool_server

pytestmark = pytest.mark.anyio

LOOK = CheckTools(servers=HostToolServers(), program=program("tool_servers"))


@attrs.define
class Noting:
    """This host's look, which notes what it was asked."""

    asked: list[str] = attrs.field(factory=list[str])

    async def unreachable(
        self, tools: tuple[ToolAccess, ...], *, seconds: float
    ) -> tuple[tuple[str, str], ...]:
        self.asked += [tool.name for tool in tools]
        return tuple((tool.name, "no") for tool in tools if tool.name == "gone")

    async def for_sandboxes(self, url: str) -> str:
        return url


async def test_a_harness_in_the_sandbox_is_looked_for_from_there(
    tmp_path: Path,
) -> None:
    harness, noting = ClaudeCodeHarness(), Noting()
    look = attrs.evolve(LOOK, servers=noting)
    async with sandbox_in(tmp_path, sys.executable) as sandbox:
        with tool_server() as there:
            await look(harness, (access(there.url),), sandbox)
            with pytest.raises(ToolsUnreachable) as caught:
                await look(
                    harness, (access(there.url), access(nowhere(), "gone")), sandbox
                )
            await look(harness, (access(nowhere(), required=False),), sandbox)

    assert noting.asked == []
    fault = caught.value
    told = (fault.name, fault.where, fault.reason)
    assert told == ("gone", "the sandbox", "Connection refused")
    assert [asked[2]["X-Token"] for asked in there.asked] == [TOKEN, TOKEN]
    lines = [(command.argv, dict(command.env)) for command in sandbox.sent]
    assert TOKEN not in repr(lines), "command lines are everybody's to read"


async def test_where_a_relay_carries_its_connections_this_host_looks(
    tmp_path: Path,
) -> None:
    noting = Noting()
    look = attrs.evolve(LOOK, servers=noting, is_relayed=lambda sandbox: True)
    gone = access("http://tools.invalid/", "gone")
    async with sandbox_in(tmp_path, sys.executable) as sandbox:
        await look(ClaudeCodeHarness(), (access("http://tools.invalid/"),), sandbox)
        with pytest.raises(ToolsUnreachable, match="from this host: no"):
            await look(ClaudeCodeHarness(), (gone,), sandbox)

    assert noting.asked == ["tools", "gone"]


@pytest.mark.parametrize("transport", ToolTransport)
async def test_a_harness_on_this_host_is_looked_for_from_here(
    transport: ToolTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither the harness nor this look goes through a proxy.
    monkeypatch.setenv("http_proxy", nowhere())
    harness = SimpleHarness(config=SimpleConfig())
    with tool_server() as there:
        await LOOK(harness, (access(there.url, transport=transport),), None)
    with pytest.raises(ToolsUnreachable, match="from this host: Connection refused"):
        await LOOK(harness, (access(nowhere(), transport=transport),), None)
    await LOOK(harness, (access(nowhere(), required=False),), None)

    assert len(there.asked) == 1


async def test_tools_of_this_process_are_not_asked_over_http() -> None:
    here = attrs.evolve(access(nowhere()), served_here=True)

    await LOOK(SimpleHarness(config=SimpleConfig()), (here,), None)


async def test_who_says_nothing_of_tools_is_not_looked_for() -> None:
    await LOOK(NopHarness(), (access(nowhere()),), None)


async def test_a_look_that_comes_to_nothing_is_the_sandbox_s_failure(
    tmp_path: Path,
) -> None:
    look = attrs.evolve(LOOK, program=b"print('{}')")
    async with sandbox_in(tmp_path, sys.executable) as sandbox:
        with pytest.raises(SandboxFailed, match="look at tool servers"):
            await look(ClaudeCodeHarness(), (access(nowhere()),), sandbox)


@pytest.mark.parametrize(
    ("harness", "transport", "field"),
    [
        (ClaudeCodeHarness(), ToolTransport.MCP, None),
        (ClaudeCodeHarness(), ToolTransport.DIRECT_HTTP, "tool_accesses[1].kind"),
        (CommandHarness(argv=("true",)), ToolTransport.MCP, "tool_accesses[1].kind"),
        (NopHarness(), ToolTransport.MCP, None),
    ],
)
def test_a_kind_of_tool_that_is_needed_and_cannot_be_called_is_refused(
    harness: Harness, transport: ToolTransport, field: str | None
) -> None:
    optional = access("http://x/", "a", transport=transport, required=False)
    tools = (optional, access("http://x/", "b", transport=transport))

    check_honoured(harness, (optional,))
    if field is None:
        check_honoured(harness, tools)
        return
    with pytest.raises(RequestRefused) as caught:
        check_honoured(harness, tools)

    assert caught.value.field == field


@attrs.define
class Caller(ScriptedHarness):
    """Calls tools over MCP, from this host."""

    tool_transports: frozenset[ToolTransport] = frozenset({ToolTransport.MCP})
    calls_tools_inside: bool = False


def granted(url: str, kind: str = "mcp") -> dict[str, object]:
    tool: dict[str, object] = {"kind": kind, "name": "tools", "required": True}
    if kind == "mcp":
        tool["connection"] = {"url": url, "headers": {"X-Token": TOKEN}}
    else:
        tool["base_url"] = url
    return {"tool_accesses": [tool]}


async def test_a_seed_that_needs_what_is_not_there_fails_and_keeps_nothing() -> None:
    async with serving(own=True, harness=Caller(), check_tools=LOOK) as it:
        with tool_server() as there:
            good = await it.post("/v1/agent_sessions", seed(**granted(there.url)))
        dead = await it.post("/v1/agent_sessions", seed("s2", **granted(nowhere())))
        unfit = await it.post(
            "/v1/agent_sessions", seed("s3", **granted(there.url, "direct_http"))
        )
        left = {claim[:8] for claim in it.provider.live}
        again = await it.post("/v1/agent_sessions", seed("s2"))

    assert (good.status_code, again.status_code) == (200, 200)
    assert (dead.status_code, dead.json()["kind"]) == (502, "tools_unreachable")
    assert TOKEN not in dead.text
    assert unfit.status_code == 422
    assert unfit.json()["detail"][0]["loc"] == ["body", "tool_accesses", 0, "kind"]
    assert left == {"agent-s1"}
