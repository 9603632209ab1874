# SPDX-License-Identifier: Apache-2.0
"""A model's and two tools' servers on loopback that do as a test says."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.harnesses.simple import ModelApi, SimpleConfig, SimpleHarness
from livery.adapters.system_clock import SystemClock
from livery.domain.activations import Ending, RunId
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.provided.activate_harness import ActivateHarness, Attempt
from livery.ports.required.harness import (
    HarnessRequest,
    ToolAccess,
    ToolTransport,
)

from ...environment_server.partners import Asked, Partner, listening

HELLO: dict[str, Any] = {"type": "message", "role": "user", "content": "hello"}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "weigh",
    "description": "Weigh a thing.",
    "parameters": {"type": "object", "properties": {"thing": {"type": "string"}}},
    "strict": True,
}


def call(name: str, number: int = 1, **arguments: object) -> dict[str, Any]:
    """Return a tool call, as a model's answer has it."""
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


def said(text: str) -> dict[str, Any]:
    """Return an assistant's message."""
    return {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def answer(*items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a Responses object."""
    usage = {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }
    return {
        "id": "resp",
        "model": "m-1",
        "output": list(items),
        "status": "completed",
        "usage": usage,
        **more,
    }


@attrs.define
class Servers:
    """What the servers answer, in order, and what they were asked."""

    answers: list[Any] = attrs.field(factory=list[Any])
    """The model's, each a body or a response."""
    tool: Response | None = None
    """What a direct tool call is answered instead of its own echo."""
    events: bool = False
    """Whether the MCP server answers in a stream of events."""
    mcp_down: bool = False
    hang: bool = False
    model: Partner = attrs.field(init=False)
    tools: Partner = attrs.field(init=False)
    mcp: Partner = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.model = Partner(self._model)
        self.tools = Partner(self._tool)
        self.mcp = Partner(self._mcp)

    async def _model(self, request: Request, body: Any) -> Response:
        if self.hang:
            while (await request.receive())["type"] != "http.disconnect":
                continue
        found = self.answers.pop(0)
        return found if isinstance(found, Response) else JSONResponse(found)

    async def _tool(self, request: Request, body: Any) -> Response:
        if self.tool is not None:
            return self.tool
        reply = JSONResponse({"asked": body})
        reply.set_cookie("jar", "second")
        return reply

    async def _mcp(self, request: Request, body: Any) -> Response:
        if self.mcp_down:
            return Response(status_code=502)
        if "id" not in body:
            return Response(status_code=202)
        match body["method"]:
            case "initialize":
                result: Any = {"protocolVersion": "2025-06-18", "capabilities": {}}
            case "tools/list" if not body["params"].get("cursor"):
                result = {"tools": [self._described("weigh")], "nextCursor": "more"}
            case "tools/list":
                result = {"tools": [self._described("lift")]}
            case "tools/call" if body["params"]["name"] == "broken":
                return self._told(body, {"error": {"code": -1, "message": "broken"}})
            case "tools/call" if "wrong" in body["params"]["arguments"]:
                error = {"code": -32602, "message": "wrong is unknown"}
                return self._told(body, {"error": error})
            case "tools/call" if body["params"]["arguments"].get("textless"):
                result = {"content": [{"type": "text"}]}
            case _:
                text = json.dumps(body["params"])
                content = [{"type": "text", "text": text}]
                refused = "refuse" in body["params"]["arguments"]
                result = {"content": content, "isError": refused}
        return self._told(body, {"result": result})

    def _told(self, body: Any, result: Mapping[str, Any]) -> Response:
        reply = {"jsonrpc": "2.0", "id": body["id"], **result}
        headers = {"mcp-session-id": "s-1"}
        if not self.events:
            return JSONResponse(reply, headers=headers)
        text = f"event: message\r\ndata: {json.dumps(reply)}\r\n\r\n"
        return Response(text, media_type="text/event-stream", headers=headers)

    def _described(self, name: str) -> Mapping[str, Any]:
        return {"name": name, "inputSchema": {"type": "object"}}

    def direct(self, **more: Any) -> ToolAccess:
        return ToolAccess(
            transport=ToolTransport.DIRECT_HTTP,
            name="direct",
            url=f"{self.tools.url}/",
            headers={"x-token": "t"},
            cookies={"jar": "first="},
            **more,
        )

    def over_mcp(self, name: str = "office", **more: Any) -> ToolAccess:
        return ToolAccess(
            transport=ToolTransport.MCP,
            name=name,
            url=f"{self.mcp.url}/mcp",
            headers={"authorization": "Bearer t"},
            **more,
        )


@asynccontextmanager
async def serving(*answers: Any) -> AsyncGenerator[Servers]:
    """Serve, with these answers of the model."""
    servers = Servers(answers=list(answers))
    async with (
        listening(servers.model),
        listening(servers.tools),
        listening(servers.mcp),
    ):
        yield servers


def config(servers: Servers, **chosen: Any) -> SimpleConfig:
    """Return a configuration with the scripted server as its model."""
    return SimpleConfig(model_url=servers.model.url, model="m", **chosen)


def chat(servers: Servers, **chosen: Any) -> SimpleConfig:
    """Return the same, over Chat Completions."""
    return config(servers, api=ModelApi.CHAT_COMPLETIONS, **chosen)


@attrs.frozen
class Run:
    """What came of one activation."""

    ending: Ending
    response: Any
    bundle: Any

    @property
    def kinds(self) -> list[str]:
        return [item["type"] for item in self.response["output"]]

    @property
    def results(self) -> list[str]:
        kind = "function_call_output"
        return [i["output"] for i in self.response["output"] if i["type"] == kind]


def attempt(
    *tools: ToolAccess,
    parameters: Mapping[str, Any] | None = None,
    fresh: bool = True,
    task: str = "1",
) -> Attempt:
    """Return an attempt at an activation."""
    return Attempt(
        run=RunId("run-1"),
        request=HarnessRequest(
            episode=EpisodeId("r1"),
            task=TaskId("set", task),
            parameters=parameters or {"input": "hello"},
            tool_accesses=tools,
        ),
        sandbox=None,
        fresh=fresh,
    )


def use_case(harness: SimpleHarness) -> ActivateHarness:
    """Return the use case that activates the harness."""
    return ActivateHarness(
        harness=harness,
        artifacts=MemoryArtifactStore(),
        clock=SystemClock(),
        supervisor_program=b"",
    )


async def run(harness: SimpleHarness, asked: Attempt) -> Run:
    """Activate the harness, and read what came of it."""
    harness.check(asked.request)
    with anyio.fail_after(60):
        ending = await use_case(harness)(asked)
    return read(ending)


def read(ending: Ending) -> Run:
    """Read an ending."""
    return Run(ending, json.loads(ending.reply), json.loads(ending.observations))


def bodies(partner: Partner) -> list[Any]:
    """Return the bodies that a server was asked with."""
    return [each.body for each in partner.asked]


def methods(asked: list[Asked]) -> list[str]:
    """Return the methods that an MCP server was asked for."""
    return [each.body["method"] for each in asked]
