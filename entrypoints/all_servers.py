# SPDX-License-Identifier: Apache-2.0
"""Environment, resources and agent server in one process, on one foundation.

Behind `/run` the participants are called in this process, without HTTP between them;
each of the three is served at its own address all the same, and a session is the same
session whichever way it is asked for.
"""

import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import cast

import attrs
from starlette.routing import Route

from ..adapters.gym_servers.wire_names import AboutAgent
from ..domain.digests import Json
from ..domain.resources_sessions import ResourcesSessionId
from ..ports.provided.in_process_agent import InProcessAgent
from ..ports.provided.in_process_resources import InProcessResources
from ..ports.provided.serve_episodes import ServedEpisodes
from ..ports.required.faults import Fault
from ..ports.required.harness import Harness, ToolAccess, ToolTransport
from ..ports.required.sandbox_provider import SandboxProvider
from ..ports.required.world import World
from .agent_server.app import AgentRoutes
from .agent_server.composition import open_agent_routes
from .environment_server.app import WITHOUT_KIND, EnvironmentRoutes
from .environment_server.composition import AgentPlaces, open_episodes
from .environment_settings import EnvironmentServerSettings
from .http_serving.serving import Served, address_of, listen
from .kept_ports import listen_as_before
from .metrics_page import metrics_routes
from .plug_ins import Surroundings
from .resources_server.composition import ResourcesApplication, open_resources
from .resources_server.metrics import aggregate
from .server_foundation import open_server_foundation
from .settings_reading import SettingsFile
from .state_folder import StateFolder


@attrs.frozen(kw_only=True)
class Listening:
    """A server and the socket that it listens on."""

    served: Served
    socket: socket.socket


@attrs.frozen
class _About:
    """Tells of the agent in this process what an agent server tells of itself."""

    routes: AgentRoutes

    async def about(self) -> AboutAgent:
        """Return how many sessions it has, and whether it is stepwise."""
        served = self.routes.served
        return AboutAgent(
            concurrency=served.admit.places,
            stepwise=served.sessions.harness.stepwise,
        )


@attrs.frozen(kw_only=True)
class _Tools:
    """How the agent beside this calls a session's tools, as the settings say."""

    application: ResourcesApplication
    transports: tuple[ToolTransport, ...]
    name: str
    url: str
    """Of the resources server."""

    def __call__(self, session: ResourcesSessionId) -> tuple[ToolAccess, ...]:
        """Return the accesses of one session."""
        return tuple(self._access(session, one) for one in self.transports)

    def _access(
        self, session: ResourcesSessionId, transport: ToolTransport
    ) -> ToolAccess:
        if transport is ToolTransport.MCP:
            return self.application.over_mcp(session)
        return ToolAccess(
            transport=transport,
            name=f"{self.name}.{transport.value}",
            url=f"{self.url}/",
            headers=self.application.tokens.headers(session),
            served_here=True,
        )


@asynccontextmanager
async def open_all_servers(
    file: SettingsFile,
    state: StateFolder,
    surroundings: Surroundings,
    *,
    world: World | None = None,
    provider: SandboxProvider | None = None,
    harness: Harness | None = None,
) -> AsyncGenerator[tuple[Listening, ...]]:
    """Open all three, listening; what is given replaces what is configured.

    They come in the order in which they are to be ended: the environment first.

    Raises:
        Fault: As the servers' own compositions say.
    """
    settings = file.settings.environment_server
    refused: Fault | None = None
    async with (
        open_server_foundation(file, state, surroundings.secrets) as foundation,
        open_resources(
            file, state, surroundings, world, provider, foundation=foundation
        ) as resources,
        open_agent_routes(
            file, state, surroundings, harness, foundation=foundation, lender=provider
        ) as agent,
    ):
        places = AgentPlaces(settings=settings, agent=_About(agent))
        with ExitStack() as sockets:
            try:
                await places()
                told = _of_agent(file, agent)
                agent_server = _listening(told, listen(told.host, told.port), sockets)
                told = _of_resources(file, resources)
                # Seeds of a server that was killed say that the tools are there.
                name = f"{surroundings.name}-resources"
                kept = listen_as_before(state, name, told.host, told.port)
                resources_server = _listening(told, kept, sockets)
                own = listen(settings.host, settings.port)
                sockets.callback(own.close)
            except Fault as fault:
                refused = fault  # Raised below: from in here it would come in a group.
            else:
                participant = InProcessResources(
                    sessions=resources.served,
                    tools=_Tools(
                        application=resources,
                        transports=tuple(
                            map(ToolTransport, settings.resources_tool_transports)
                        ),
                        name=settings.resources_name,
                        url=address_of(resources_server.socket),
                    ),
                )
                async with open_episodes(
                    settings,
                    foundation,
                    InProcessAgent(agent.served),
                    participant,
                    places,
                ) as served:
                    environment = _of_environment(
                        settings, served, surroundings, metrics_routes(foundation)
                    )
                    yield (
                        Listening(served=environment, socket=own),
                        agent_server,
                        resources_server,
                    )
    if refused is not None:
        raise refused


async def _aggregate(rows: Mapping[str, Json]) -> Mapping[str, Json]:
    return aggregate(cast("list[Mapping[str, Json]]", rows["verify_responses"]))


def _listening(
    served: Served, listening: socket.socket, sockets: ExitStack
) -> Listening:
    sockets.callback(listening.close)
    return Listening(served=served, socket=listening)


def _of_environment(
    settings: EnvironmentServerSettings,
    served: ServedEpisodes,
    surroundings: Surroundings,
    more: Sequence[Route],
) -> Served:
    routes = EnvironmentRoutes(
        served=served,
        aggregate=_aggregate,
        body_bytes_max=settings.body_bytes_max,
        secrets=surroundings.secrets,
        more=more,
    )
    return Served(
        what="episodes",
        host=settings.host,
        port=settings.port,
        routes=routes.routes(),
        drain=served.drain,
        grace_seconds=settings.shutdown_grace_seconds,
        without_kind=WITHOUT_KIND,
    )


def _of_resources(file: SettingsFile, application: ResourcesApplication) -> Served:
    settings = file.settings.resources_server
    return Served(
        what="resources sessions",
        host=settings.host,
        port=settings.port,
        routes=application.routes,
        drain=application.served.drain,
        grace_seconds=settings.shutdown_seconds,
    )


def _of_agent(file: SettingsFile, routes: AgentRoutes) -> Served:
    settings = file.settings.agent_server
    return Served(
        what="agent sessions",
        host=settings.host,
        port=settings.port,
        routes=routes.routes(),
        drain=routes.served.drain,
        grace_seconds=settings.shutdown_grace_seconds,
    )
