# SPDX-License-Identifier: Apache-2.0
"""The two ways into a simulated server: its use cases, or its routes."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, Protocol, TypeVar

import attrs
import httpx

from livery.adapters.gym_servers.wire_names import READS_OUTCOME_HEADER
from livery.domain.admissions import AdmissionFull, AdmissionIsShut
from livery.domain.agent_sessions import AgentSessionId
from livery.domain.digests import Json
from livery.domain.refusals import Refusal
from livery.domain.tasks import EpisodeId, TaskId
from livery.entrypoints.agent_server.app import COOKIE_KEY, AgentRoutes
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.http_serving.session_cookies import SessionCookies
from livery.ports.provided.secret_values import SecretValues
from livery.ports.provided.serve_sessions import ServedSessions
from livery.ports.provided.session_grants import SessionGrant
from livery.ports.required.faults import Fault

T = TypeVar("T")

COOKIE: Final = "LiveryAgent___agent"
BODY_BYTES_MAX: Final = 100_000
OK: Final = 200
CONFLICT: Final = 409


class Turned(Exception):
    """A rule says no; asking again is of no use."""


class Failed(Exception):
    """Something did not work; it may be asked again."""


class Door(Protocol):
    """What a client can ask for."""

    async def seed(self, session: str, episode: EpisodeId, task: TaskId) -> str:
        """Set a session up."""
        ...

    async def activate(self, session: str, parameters: Mapping[str, Json]) -> str:
        """Return the reply of an activation."""
        ...

    async def close(self, session: str, episode: EpisodeId) -> str:
        """Return the reply of the close."""
        ...


Open = Callable[[ServedSessions, AsyncExitStack], Awaitable[Door]]


@attrs.frozen
class UseCases:
    """The use cases themselves."""

    served: ServedSessions

    async def seed(self, session: str, episode: EpisodeId, task: TaskId) -> str:
        grant = SessionGrant(task=task)
        await _asked(self.served.seed(AgentSessionId(session), episode, grant))
        return ""

    async def activate(self, session: str, parameters: Mapping[str, Json]) -> str:
        asked = self.served.activate(AgentSessionId(session), parameters)
        return (await _asked(asked)).reply

    async def close(self, session: str, episode: EpisodeId) -> str:
        closed = await _asked(self.served.close(AgentSessionId(session), episode))
        return closed.reply


async def _asked(asking: Awaitable[T]) -> T:
    try:
        return await asking
    except (AdmissionFull, AdmissionIsShut, Fault) as fault:
        raise Failed(str(fault)) from fault
    except Refusal as refusal:
        raise Turned(str(refusal)) from refusal


@attrs.frozen
class Routes:
    """The routes of the agent server, asked in this process."""

    client: httpx.AsyncClient
    cookies: dict[str, str]
    """What clients were given, by session; every server reads them."""

    async def seed(self, session: str, episode: EpisodeId, task: TaskId) -> str:
        body = {
            "agent_session_id": session,
            "episode_id": attrs.asdict(episode),
            "task_id": attrs.asdict(task),
        }
        reply = await self._post("/v1/agent_sessions", body)
        header = reply.headers["set-cookie"]
        self.cookies[session] = header.partition(";")[0].partition("=")[2]
        return ""

    async def activate(self, session: str, parameters: Mapping[str, Json]) -> str:
        cookie = self.cookies.get(session)
        return (await self._post("/v1/responses", parameters, cookie)).text

    async def close(self, session: str, episode: EpisodeId) -> str:
        body = {"agent_session_id": session, "episode_id": attrs.asdict(episode)}
        return (await self._post("/v1/agent_sessions/close", body)).text

    async def _post(
        self, path: str, body: Mapping[str, object], cookie: str | None = None
    ) -> httpx.Response:
        headers = {READS_OUTCOME_HEADER: "true"}
        if cookie is not None:
            headers["cookie"] = f"{COOKIE}={cookie}"
        self.client.cookies.clear()  # They are of many visitors.
        reply = await self.client.post(path, json=body, headers=headers)
        if reply.status_code == CONFLICT:
            raise Turned(reply.text)
        if reply.status_code != OK:
            raise Failed(f"{reply.status_code} {reply.text}")
        return reply


def open_routes() -> Open:
    """Let clients in by the routes; each server reads the cookies of all."""
    cookies: dict[str, str] = {}

    async def opened(served: ServedSessions, stack: AsyncExitStack) -> Door:
        return await _open_routes(served, stack, cookies)

    return opened


def open_use_cases() -> Open:
    """Let clients in directly."""

    async def opened(served: ServedSessions, stack: AsyncExitStack) -> Door:
        return UseCases(served)

    return opened


async def _open_routes(
    served: ServedSessions, stack: AsyncExitStack, cookies: dict[str, str]
) -> Door:
    routes = AgentRoutes(
        served=served,
        cookies=SessionCookies(COOKIE, "key", key=COOKIE_KEY),
        body_bytes_max=BODY_BYTES_MAX,
        secrets=SecretValues(),
    )
    transport = httpx.ASGITransport(to_application(routes.routes()))
    client = httpx.AsyncClient(transport=transport, base_url="http://simulated")
    await stack.enter_async_context(client)
    return Routes(client, cookies)
