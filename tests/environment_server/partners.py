# SPDX-License-Identifier: Apache-2.0
"""Servers on loopback that answer as a test says, and an environment between them."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from livery.adapters.gym_servers.agent import HttpAgent
from livery.adapters.gym_servers.asking import GymServer, open_gym_client
from livery.adapters.gym_servers.resources import HttpResources
from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.system_clock import SystemClock
from livery.entrypoints.composition import Foundation
from livery.entrypoints.environment_server.app import (
    WITHOUT_KIND,
    EnvironmentRoutes,
)
from livery.entrypoints.environment_server.composition import (
    AgentPlaces,
    open_episodes,
)
from livery.entrypoints.environment_settings import EnvironmentServerSettings
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.http_serving.serving import address_of, listen, serve_until
from livery.ports.provided.secret_values import SecretValues
from livery.ports.provided.serve_episodes import ServedEpisodes
from livery.ports.required.harness import ToolTransport
from livery.ports.required.journal import Journal

Answers = Callable[[Request, Any], Awaitable[Response]]
"""What answers a request, given its body."""


@attrs.frozen
class Asked:
    """One request that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@attrs.define
class Partner:
    """A server that notes what it is asked."""

    answer: Answers
    url: str = ""
    asked: list[Asked] = attrs.field(factory=list[Asked])

    def app(self) -> Starlette:
        return Starlette(
            routes=[Route("/{path:path}", self._answered, methods=["GET", "POST"])]
        )

    async def _answered(self, request: Request) -> Response:
        content = await request.body()
        body = json.loads(content) if content else None
        asked = Asked(request.method, request.url.path, dict(request.headers), body)
        self.asked.append(asked)
        return await self.answer(request, body)

    @property
    def paths(self) -> list[str]:
        return [each.path for each in self.asked]


@asynccontextmanager
async def listening(partner: Partner) -> AsyncGenerator[None]:
    """Let a partner listen inside the block."""
    socket = listen("127.0.0.1", 0)
    partner.url = address_of(socket)
    stop = anyio.Event()

    async def nothing() -> None:
        return None

    async with anyio.create_task_group() as group:

        async def serve() -> None:
            await serve_until(partner.app(), socket, stop, nothing, grace_seconds=2.0)

        group.start_soon(serve)
        try:
            yield
        finally:
            stop.set()


@attrs.frozen
class Environment:
    """An environment server, and how to talk to it."""

    client: httpx.AsyncClient
    served: ServedEpisodes
    agent: HttpAgent
    resources: HttpResources

    async def post(self, path: str, body: object) -> httpx.Response:
        return await self.client.post(path, json=body)

    @property
    def kept_nothing(self) -> bool:
        """Whether no cookie of any session is kept."""
        return not self.agent.sessions and not self.resources.sessions


@asynccontextmanager
async def environment(
    resources_url: str,
    agent_url: str,
    *,
    journal: Journal | None = None,
    holders: MemoryHolders | None = None,
    **chosen: Any,
) -> AsyncGenerator[Environment]:
    """Open an environment of two partners; what is chosen lies over the settings."""
    settings = EnvironmentServerSettings(
        **{
            "max_concurrent_episodes": 64,
            "cleanup_timeout_seconds": 20.0,
            "disconnect_grace_seconds": 5.0,
            "shutdown_grace_seconds": 3.0,
            **chosen,
        }
    )
    foundation = Foundation(
        state=None,  # type: ignore[arg-type]
        secrets=SecretValues(),
        journal=journal or MemoryJournal(),
        holders=holders or MemoryHolders(),
        clock=SystemClock(),
    )
    async with open_gym_client() as http:
        reach = settings.reach_timeout_seconds
        agent = HttpAgent(
            server=GymServer(url=agent_url, http=http, reach_seconds=reach),
            token_capture=settings.token_capture,
        )
        resources = HttpResources(
            server=GymServer(url=resources_url, http=http, reach_seconds=reach),
            block=settings.resources_name,
            transports=frozenset(
                map(ToolTransport, settings.resources_tool_transports)
            ),
            observability=settings.observability,
        )
        places = AgentPlaces(settings=settings, agent=agent)
        async with open_episodes(
            settings, foundation, agent, resources, places
        ) as served:
            routes = EnvironmentRoutes(
                served=served,
                aggregate=resources.aggregate,
                body_bytes_max=settings.body_bytes_max,
                secrets=SecretValues(),
            )
            app = to_application(routes.routes(), without_kind=WITHOUT_KIND)
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://environment", timeout=60.0
            ) as client:
                yield Environment(client, served, agent, resources)
