# SPDX-License-Identifier: Apache-2.0
"""The apps as tools of the Model Context Protocol, over streamable HTTP.

Stateless: each request carries the session's token, and nothing is kept between two.
A call that is refused or that failed is an error result with the status that it has
on every other way.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import attrs
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...domain.refusals import Refusal
from ...domain.resources_sessions import ResourcesSessionId
from ...ports.provided.secret_values import SecretValues
from ...ports.required.faults import Fault
from ..http_serving.answers import refused_by_http
from ..http_statuses import status_of
from .agent_routes import error_words, to_text
from .calls import GuardedCalls
from .documentation import MCP

VERSION: Final = "1.0"
"""What the server of the tools says of itself."""

# `Any`: the lifespan's value, of which this server has none.
Context = ServerRequestContext[Any, Any]


def _connection(request: object) -> HTTPConnection:
    """Return the transport's own request, of whatever kind the library says it is."""
    assert isinstance(request, HTTPConnection), "it came over HTTP"
    return cast("HTTPConnection", request)


@attrs.frozen
class McpEndpoint:
    """The ASGI application at `/mcp`, while it runs."""

    calls: GuardedCalls
    manager: StreamableHTTPSessionManager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that shows a session's token."""
        try:
            self.calls.session_of(HTTPConnection(scope))
        except HTTPException as unknown:
            await refused_by_http(unknown)(scope, receive, send)
            return
        await self.manager.handle_request(scope, receive, send)

    @property
    def route(self) -> Route:
        """The route of it: requests alone.

        A client that asks for a stream of what the server has to say is told that
        there is none: 405, as the protocol has it. The library would keep one open
        for each session, with a task that outlives its server, and say nothing.
        """
        return Route(MCP, self, methods=["POST"])


@asynccontextmanager
async def open_mcp_endpoint(
    calls: GuardedCalls,
    *,
    server_name: str,
    body_bytes_max: int,
    secrets: SecretValues,
) -> AsyncGenerator[McpEndpoint]:
    """Serve the tools of every session under one server name."""

    def session(context: Context) -> ResourcesSessionId:
        return calls.session_of(_connection(context.request))

    async def listed(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = calls.offered(session(context))
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=dict(tool.parameters),
                )
                for tool in tools
            ]
        )

    async def called(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            result = await calls.call(
                session(context), params.name, params.arguments or {}
            )
        except (Refusal, Fault) as error:
            detail = secrets.masked(str(error))
            words = error_words(status_of(error), error.kind, detail)
            told = f"{words['status']}: {words['detail']}"
            return types.CallToolResult(
                content=[types.TextContent(text=told)],
                structured_content=dict(words),
                is_error=True,
            )
        text = types.TextContent(text=to_text(result.words))
        return types.CallToolResult(content=[text])

    server: Server[Any] = Server(
        server_name, version=VERSION, on_list_tools=listed, on_call_tool=called
    )
    manager = StreamableHTTPSessionManager(
        server,
        json_response=True,
        stateless=True,
        max_request_body_size=body_bytes_max,
    )
    raised: Exception | None = None
    async with manager.run():
        try:
            yield McpEndpoint(calls, manager)
        except Exception as error:
            raised = error  # Raised below: from in here it would come in a group.
    if raised is not None:
        raise raised
