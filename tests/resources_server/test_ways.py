# SPDX-License-Identifier: Apache-2.0
"""Every task of the office is solved by each way of reaching its apps."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx
import pytest

from livery.adapters.worlds.desk import DeskTasks, DeskWorld
from livery.adapters.worlds.desk.tasks import SolvingCall
from livery.adapters.worlds.desk.world import ACTIONS
from livery.domain.claims import ClaimId
from livery.domain.digests import Json
from livery.domain.resources_sessions import ResourcesSessionId
from livery.domain.tasks import Task

from .folders import FolderProvider, FolderSandbox
from .serving import Server, serving

pytestmark = pytest.mark.anyio

ACCEPT = "application/json, text/event-stream"
FORBIDDEN = re.compile(
    r"livery|nemo|\bgym\b|grader|grading|reward|verif|episode|rollout|environment"
    r"|task.?set|resources.session|hypercorn|starlette",
    re.IGNORECASE,
)
"""Words that an ordinary company's API has no use for."""


@attrs.frozen
class Agent:
    """What works on one task, from inside its sandbox."""

    server: Server
    sandbox: FolderSandbox
    token: str
    http: httpx.AsyncClient

    async def command(self, *words: str) -> tuple[int, str]:
        """Run a command in the workspace."""
        ended = await anyio.run_process(
            [f"{self.sandbox.workdir}/bin/{words[0]}", *words[1:]],
            cwd=self.sandbox.workdir,
            check=False,
        )
        return ended.returncode, (ended.stdout + ended.stderr).decode()

    async def endpoint(self, call: SolvingCall) -> httpx.Response:
        """Ask an endpoint."""
        tool = ACTIONS[call.tool].tool
        return await self.http.post(
            f"/api/{tool.app}/{tool.action}",
            json=dict(call.arguments),
            headers={"authorization": f"Bearer {self.token}"},
        )

    async def mcp(self, method: str, **params: Json) -> httpx.Response:
        """Ask the server of the tools."""
        return await self.http.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers={"accept": ACCEPT, "authorization": f"Bearer {self.token}"},
        )


@attrs.frozen
class Office:
    """A server of the world, and a client that is where sandboxes are."""

    server: Server
    provider: FolderProvider
    http: httpx.AsyncClient

    @asynccontextmanager
    async def agent(self, task: Task) -> AsyncGenerator[tuple[Agent, str]]:
        """Seed a task, give what works on it, and close it."""
        name = f"s-{task.task_id.task_id}"
        body = {
            "task_id": {"taskset": "desk", "task_id": task.task_id.task_id},
            "task_data": task.task_data,
        }
        cookie = await self.server.seeded(name, **body)
        (claim,) = self.provider.live
        sandbox = self.provider._folder(ClaimId(claim))
        token = self.server.application.tokens.token(ResourcesSessionId(name))
        yield Agent(self.server, sandbox, token, self.http), cookie
        reply = await self.server.close(name)
        assert reply.status_code == 200, reply.text

    async def reward(self, cookie: str, task: Task) -> float:
        reply = await self.server.verify(cookie, **task.task_data)
        verdict: Mapping[str, Any] = reply.json()
        assert verdict["mask_sample"] is False, verdict
        return float(verdict["reward"])


@asynccontextmanager
async def office(tmp_path: Path) -> AsyncGenerator[Office]:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with (
        serving(tmp_path / "state", DeskWorld(), provider) as server,
        httpx.AsyncClient(base_url=server.application.sandbox_url) as http,
    ):
        yield Office(server, provider, http)


def option(name: str, value: Json) -> list[str]:
    """Return an argument as a command takes it."""
    word = name.replace("_", "-")
    given = value if isinstance(value, list) else [value]
    return [f"--{word}={json.dumps(v) if isinstance(v, bool) else v}" for v in given]


async def test_every_task_is_solved_by_tools(tmp_path: Path) -> None:
    tasks = DeskTasks("mcp")
    async with office(tmp_path) as it:
        for task in tasks.tasks():
            async with it.agent(task) as (agent, cookie):
                for call in tasks.calls(task.task_id):
                    reply = await agent.mcp(
                        "tools/call", name=call.tool, arguments=call.arguments
                    )
                    assert not reply.json()["result"].get("isError"), reply.text

                assert await it.reward(cookie, task) == 1.0, task.task_id


async def test_every_task_is_solved_by_endpoints(tmp_path: Path) -> None:
    tasks = DeskTasks("endpoints")
    async with office(tmp_path) as it:
        for task in tasks.tasks():
            async with it.agent(task) as (agent, cookie):
                for call in tasks.calls(task.task_id):
                    reply = await agent.endpoint(call)
                    assert reply.status_code == 200, reply.text

                assert await it.reward(cookie, task) == 1.0, task.task_id


async def test_every_task_is_solved_by_commands(tmp_path: Path) -> None:
    tasks = DeskTasks("commands")
    async with office(tmp_path) as it:
        for task in tasks.tasks():
            async with it.agent(task) as (agent, cookie):
                for call in tasks.calls(task.task_id):
                    tool = ACTIONS[call.tool].tool
                    words = [w for n, v in call.arguments.items() for w in option(n, v)]
                    status, told = await agent.command(tool.app, tool.action, *words)
                    assert status == 0, told

                assert await it.reward(cookie, task) == 1.0, task.task_id


async def test_the_official_client_lists_and_calls_tools(tmp_path: Path) -> None:
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    (task, *_) = DeskTasks("mcp").tasks()
    async with office(tmp_path) as it, it.agent(task) as (agent, cookie):
        url = f"{it.server.application.sandbox_url}/mcp"
        headers = {"authorization": f"Bearer {agent.token}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport) as client:
                listed = await client.list_tools()
                (call,) = DeskTasks().calls(task.task_id)
                result = await client.call_tool(call.tool, dict(call.arguments))

        assert len(listed.tools) == len(ACTIONS)
        assert not result.is_error
        assert await it.reward(cookie, task) == 1.0


async def test_commands_tell_how_they_are_used_and_what_was_wrong(
    tmp_path: Path,
) -> None:
    (task, *_) = DeskTasks("commands").tasks()
    async with office(tmp_path) as it, it.agent(task) as (agent, cookie):
        work = Path(agent.sandbox.workdir)
        (work / "body.txt").write_text("from a file")
        (work / "pasted").write_text("QUJD" * 100)
        mail = ("--to=ines@office.example", "--subject=s")

        told = {
            name: await agent.command(*words)
            for name, words in {
                "usage": ("mail",),
                "help": ("mail", "send", "--help"),
                "none": ("mail", "burn"),
                "bare": ("mail", "send", "x"),
                "odd": ("mail", "send", "--x=1"),
                "empty": ("mail", "send", "--subject"),
                "number": ("mail", "read", "--id=x"),
                "truth": ("mail", "mark", "--id=1", "--seen=maybe"),
                "no file": ("mail", "send", "--body-file=none"),
                "missing": ("mail", "send", "--to=ines@office.example"),
                "attached": ("mail", "send", *mail, "--body=b", "--attach=none"),
                "pasted": ("mail", "send", *mail, "--body-file=pasted"),
                "sent": ("mail", "send", *mail, "--body-file", "body.txt"),
            }.items()
        }
        await it.server.verify(cookie)
        ended = await agent.command("mail", "list")

    assert {name: status for name, (status, _) in told.items()} == {
        **dict.fromkeys(("usage", "help", "sent"), 0),
        **dict.fromkeys(("none", "bare", "odd", "empty", "number", "truth"), 2),
        "no file": 2,
        **dict.fromkeys(("missing", "attached", "pasted"), 1),
    }
    assert "--body-file" in told["help"][1]
    assert "error 422: subject is missing" in told["missing"][1]
    assert "There is no file" in told["attached"][1]
    assert "mail send --attach=PATH" in told["pasted"][1]
    assert ended == (
        1,
        "mail: error 409: This session has ended; no more calls are taken.\n",
    )


async def test_what_the_sandbox_sees_is_an_ordinary_company_s_api(
    tmp_path: Path,
) -> None:
    seen: dict[str, str] = {}

    def look(name: str, reply: httpx.Response) -> None:
        headers = "\n".join(f"{k}: {v}" for k, v in reply.headers.items())
        seen[name] = f"{headers}\n{reply.text}"

    async with office(tmp_path) as it:
        for way in ("mcp", "commands", "endpoints"):
            (task, *_) = DeskTasks(way).tasks()
            named = attrs.evolve(
                task, task_id=attrs.evolve(task.task_id, task_id=f"{way}-1")
            )
            async with it.agent(named) as (agent, cookie):
                seen[f"{way} cookie"] = cookie
                seen[f"{way} token"] = agent.token
                work = Path(agent.sandbox.workdir)
                for file in sorted(work.rglob("*")):
                    if file.is_file():
                        seen[f"{way} {file.name}"] = f"{file.name}\n{file.read_text()}"
                initialize = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": {"name": "c", "version": "1"},
                }
                look(f"{way} hello", await agent.mcp("initialize", **initialize))
                look(f"{way} tools", await agent.mcp("tools/list"))
                look(f"{way} odd", await agent.mcp("odd/method"))
                look(f"{way} docs", await it.http.get("/api"))
                bearer = {"authorization": f"Bearer {agent.token}"}
                look(f"{way} docs in", await it.http.get("/api", headers=bearer))
                look(f"{way} file", await it.http.get("/files/none", headers=bearer))
                for path in ("/seed_session", "/verify", "/close_session", "/nowhere"):
                    look(f"{way} {path}", await it.http.post(path, json={}))
                    assert "404" in str((await it.http.post(path, json={})).status_code)
                for path in ("/openapi.json", "/task_state", "/reverify_mode"):
                    reply = await it.http.get(path)
                    assert reply.status_code == 404
                    look(f"{way} {path}", reply)
                look(f"{way} health", await it.http.get("/health"))
                wrong = SolvingCall(tool="mail_read", arguments={"id": 99})
                look(f"{way} refused", await agent.endpoint(wrong))
                it.provider.faults.get = RuntimeError("livery's own words")
                attach = {"path": "p", "file": "GUIDE.md"}
                upload = SolvingCall(tool="drive_upload", arguments=attach)
                look(f"{way} failed", await agent.endpoint(upload))
                it.provider.faults.get = None
                await it.server.verify(cookie)
                look(f"{way} ended", await agent.endpoint(wrong))
                over = {"name": "mail_read", "arguments": {"id": 1}}
                look(f"{way} over", await agent.mcp("tools/call", **over))

    found = {n: m.group() for n, text in seen.items() if (m := FORBIDDEN.search(text))}
    assert found == {}
    assert len(seen) > 60
