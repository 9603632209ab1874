# SPDX-License-Identifier: Apache-2.0
"""The composition root of the environment server, with its participants over HTTP.

The two other servers may come up later than this one: each is waited for when it is
first needed. An agent that is there already and cannot be stepped is told at once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import attrs

from ...adapters.gym_servers.agent import HttpAgent
from ...adapters.gym_servers.asking import GymServer, open_gym_client
from ...adapters.gym_servers.resources import HttpResources
from ...adapters.gym_servers.wire_names import AboutAgent
from ...domain.failures import REQUEST_REFUSED
from ...ports.provided.admit_episodes import AdmitEpisodes
from ...ports.provided.run_episode import RunEpisode
from ...ports.provided.serve_episodes import (
    EpisodePatience,
    ServedEpisodes,
    serve_episodes,
)
from ...ports.provided.shared_places import SharedPlaces
from ...ports.required.harness import ToolTransport
from ...ports.required.participants import Agent, ParticipantFailed, Resources
from ..composition import Foundation
from ..environment_settings import PLACES, EnvironmentServerSettings
from ..http_serving.serving import Served
from ..metrics_page import metrics_routes
from ..plug_ins import Surroundings
from ..server_foundation import open_server_foundation
from ..server_urls import to_url
from ..settings_reading import SettingsFile
from ..state_folder import StateFolder
from .app import WITHOUT_KIND, EnvironmentRoutes

RUN: Final = "environment"
"""What the episodes of all such servers on a state folder belong to."""
EPISODES: Final = "episodes"
"""What its queue is called."""
SHARE_TO_FINISH: Final = 1 / 3
"""How much of the shutdown's grace episodes have to come to their end."""


@asynccontextmanager
async def open_environment_server(
    file: SettingsFile, state: StateFolder, surroundings: Surroundings
) -> AsyncGenerator[Served]:
    """Open what the environment server serves.

    Raises:
        UrlRefused: A server's address is none.
        ParticipantFailed: The agent is there, and cannot be driven step by step.
        Fault: Something that it stands on is not there, or not usable.
    """
    settings = file.settings.environment_server
    urls = [
        to_url(f"environment_server.{name}", getattr(settings, name))
        for name in ("resources_url", "agent_url")
    ]
    async with (
        open_server_foundation(file, state, surroundings.secrets) as foundation,
        open_gym_client() as http,
    ):
        resources_server, agent_server = (
            GymServer(url=url, http=http, reach_seconds=settings.reach_timeout_seconds)
            for url in urls
        )
        agent = HttpAgent(server=agent_server, token_capture=settings.token_capture)
        resources = HttpResources(
            server=resources_server,
            block=settings.resources_name,
            transports=frozenset(
                map(ToolTransport, settings.resources_tool_transports)
            ),
            observability=settings.observability,
        )
        places = AgentPlaces(settings=settings, agent=agent)
        at_once = attrs.evolve(agent_server, reach_seconds=0.0)
        now = attrs.evolve(places, agent=attrs.evolve(agent, server=at_once))
        await now.refuse_at_once()
        async with open_episodes(
            settings, foundation, agent, resources, places
        ) as served:
            routes = EnvironmentRoutes(
                served=served,
                aggregate=resources.aggregate,
                body_bytes_max=settings.body_bytes_max,
                secrets=surroundings.secrets,
                more=metrics_routes(foundation),
            )
            yield Served(
                what="episodes",
                host=settings.host,
                port=settings.port,
                routes=routes.routes(),
                drain=served.drain,
                grace_seconds=settings.shutdown_grace_seconds,
                without_kind=WITHOUT_KIND,
                parts=foundation.parts,
            )


class TellsOfItself(Protocol):
    """An agent that can be asked what it is."""

    async def about(self) -> AboutAgent:
        """Return what it tells of itself; raises `ParticipantFailed`."""
        ...


@attrs.frozen
class AgentPlaces:
    """How many episodes run at once, and whether the agent can be driven as it is to be.

    An agent server tells both when it is one of ours.
    """

    settings: EnvironmentServerSettings
    agent: "TellsOfItself"

    async def __call__(self) -> int:
        """Return the number; raises `ParticipantFailed` for an agent that does not do."""
        settings = self.settings
        if settings.max_steps is None and settings.max_concurrent_episodes is not None:
            return settings.max_concurrent_episodes
        about = await self.agent.about()
        if settings.max_steps is not None and not about.stepwise:
            raise not_stepwise()
        return settings.max_concurrent_episodes or about.concurrency or PLACES

    async def refuse_at_once(self) -> None:
        """Raise `ParticipantFailed` when the agent is there and does not do."""
        try:
            await self()
        except ParticipantFailed as failed:
            if failed.failure_kind == REQUEST_REFUSED:
                raise


def not_stepwise() -> ParticipantFailed:
    """Return the failure of an agent that cannot be driven step by step."""
    return ParticipantFailed(
        participant="agent",
        step="be driven step by step",
        failure_kind=REQUEST_REFUSED,
        reason="max_steps is set, and the agent does not say that it is stepwise;"
        " take an agent that is, or leave max_steps out",
        terminal=True,
    )


@asynccontextmanager
async def open_episodes(
    settings: EnvironmentServerSettings,
    foundation: Foundation,
    agent: Agent,
    resources: Resources,
    places: AgentPlaces,
) -> AsyncGenerator[ServedEpisodes]:
    """Open the episodes of two participants, wherever they are."""
    run_episode = RunEpisode(
        journal=foundation.journal,
        clock=foundation.clock,
        run=RUN,
        resources=resources,
        agent=agent,
        episode_seconds=settings.episode_timeout_seconds,
        cleanup_seconds=settings.cleanup_timeout_seconds,
        max_steps=settings.max_steps,
        holders=foundation.holders,
    )
    admit = AdmitEpisodes(
        clock=foundation.clock,
        places=places,
        shared=lambda number: SharedPlaces(
            journal=foundation.journal,
            clock=foundation.clock,
            holders=foundation.holders,
            name=RUN,
            places=number,
        ),
        patience_seconds=settings.queue_timeout_seconds,
        waited=foundation.waited(EPISODES),
    )
    foundation.queued(EPISODES, lambda: admit.waiting)
    patience = EpisodePatience(
        disconnect_grace_seconds=settings.disconnect_grace_seconds,
        keep_seconds=settings.result_keep_seconds,
        kept_max=settings.results_kept_max,
        finish_seconds=settings.shutdown_grace_seconds * SHARE_TO_FINISH,
    )
    async with serve_episodes(
        run_episode, admit, patience, once=settings.run_once
    ) as served:
        yield served
