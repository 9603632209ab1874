# SPDX-License-Identifier: Apache-2.0
"""The one guard that every way of reaching the apps goes through."""

from collections.abc import Mapping

import attrs
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from ...domain.digests import Json
from ...domain.resources_sessions import CallsEnded, ResourcesSessionId
from ...ports.provided.call_apps import (
    ToldResult,
    call_app,
    read_for_call,
    save_for_call,
)
from ...ports.provided.log_context import logged_as
from ...ports.provided.serve_resources import ServedResources
from ...ports.provided.session_apps import OpenApps
from ...ports.required.apps import Reach, SavedFile, Tool
from .documentation import documentation, documentation_tool
from .tokens import SessionTokens

UNAUTHORIZED = 401


@attrs.frozen(kw_only=True)
class GuardedCalls:
    """Calls of apps by those who show a session's token."""

    served: ServedResources
    tokens: SessionTokens

    def session_of(self, asked: HTTPConnection) -> ResourcesSessionId:
        """Return the session whose token a request shows.

        Raises:
            HTTPException: 401: it shows none that is known.
        """
        header = self.tokens.header
        session = self.tokens.shown(asked.headers.get(header))
        if session is None:
            raise HTTPException(UNAUTHORIZED, f"A valid {header} header is needed.")
        return session

    def opened(self, session: ResourcesSessionId) -> OpenApps:
        """Return a session's apps, to tell of them.

        Raises:
            CallsEnded: There are none any more.
        """
        apps = self.served.sessions.apps_of(session)
        if apps is None:
            raise CallsEnded
        return apps

    def tools(self, session: ResourcesSessionId) -> tuple[Tool, ...]:
        """Return a session's tools; raises `CallsEnded`."""
        return tuple(self.opened(session).tools.values())

    def offered(self, session: ResourcesSessionId) -> tuple[Tool, ...]:
        """Return what the model is offered as tools; raises `CallsEnded`."""
        opened = self.opened(session)
        match opened.reaching.way:
            case Reach.MCP:
                return tuple(opened.tools.values())
            case Reach.ENDPOINTS:
                return (documentation_tool(opened.reaching),)
            case Reach.COMMANDS:
                return ()

    async def call(
        self, session: ResourcesSessionId, tool: str, arguments: Mapping[str, Json]
    ) -> ToldResult:
        """Carry out one whole call.

        Raises:
            CallsEnded, ToolRefused, WorkspaceUnavailable: As they say.
        """
        self.served.used(session)
        with logged_as(session=session):
            async with self.served.sessions.calling(session) as opened:
                apps = opened.opened
                if apps is None:
                    raise CallsEnded
                looks_up = apps.reaching.way is Reach.ENDPOINTS
                if looks_up and tool == documentation_tool(apps.reaching).name:
                    known = tuple(apps.tools.values())
                    return ToldResult(told=documentation(known, self.tokens.header))
                return await call_app(apps, opened.sandbox, tool, arguments)

    async def read(self, session: ResourcesSessionId, path: str) -> bytes:
        """Return a file of the session's workspace, under the same guard."""
        self.served.used(session)
        with logged_as(session=session):
            async with self.served.sessions.calling(session) as opened:
                return await read_for_call(opened.sandbox, path)

    async def save(
        self, session: ResourcesSessionId, path: str, content: bytes
    ) -> None:
        """Save a file in the session's workspace, under the same guard."""
        self.served.used(session)
        file = SavedFile(name=path, content=content)
        with logged_as(session=session):
            async with self.served.sessions.calling(session) as opened:
                await save_for_call(opened.sandbox, file)
