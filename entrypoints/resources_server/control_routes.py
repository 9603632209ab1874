# SPDX-License-Identifier: Apache-2.0
"""The routes that drive sessions: seed, verify, close, and what is asked beside them.

They are for trusted networks alone. Each is also served below `/ng-rollout/{key}`, as
NeMo Gym's environment asks where its observability is on.
"""

from collections.abc import Sequence
from typing import Final

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...domain.digests import Json
from ...domain.refusals import Refusal
from ...domain.resources_sessions import ResourcesSessionId
from ...ports.provided.log_context import known_as
from ...ports.provided.secret_values import SecretValues
from ...ports.provided.serve_resources import ServedResources
from ...ports.required.faults import Fault
from ...ports.required.world import TaskRefused
from ..http_serving.answering import (
    HEALTH_PATHS,
    READY_PATH,
    Answer,
    Answering,
    Asked,
    alive,
    readiness,
)
from ..http_serving.answers import not_done, unreadable
from ..http_serving.bodies import wrong_value
from ..http_serving.session_cookies import SessionCookies
from ..metrics_page import PATH, Endpoint
from ..trusted_networks import Network
from . import answers
from .documentation import MCP
from .messages import from_access, to_close, to_rows, to_seed, to_verify
from .metrics import aggregate
from .networks import trusted_only
from .openapi import document
from .tokens import SessionTokens

COOKIE_KEY: Final = "id"
"""What the cookie's payload calls the session: by its token, which tells nothing."""
REVERIFY_MODE: Final = "unsupported"
"""NeMo Gym's word: an answer cannot be graded again without its session."""
PREFIXES: Final = ("", "/ng-rollout/{key}")


@attrs.frozen(kw_only=True)
class ControlRoutes:
    """The handlers, over the sessions that are served."""

    served: ServedResources
    cookies: SessionCookies
    tokens: SessionTokens
    server_name: str
    """What the server of the tools is called."""
    sandbox_url: str
    """Where the routes for sandboxes are, and nothing else."""
    networks: tuple[Network, ...]
    body_bytes_max: int
    secrets: SecretValues
    over_mcp: bool
    """Whether the world has apps, whose tools are served over MCP."""
    metrics: Endpoint | None = None
    """What is told of the server itself."""

    def routes(self) -> Sequence[Route]:
        """Return the routes of the application."""
        answering = Answering(
            cookies=self.cookies,
            body_bytes_max=self.body_bytes_max,
            secrets=self.secrets,
        )
        guarded = trusted_only(self.networks)
        posted = {
            "/seed_session": self._seed,
            "/verify": self._verify,
            "/close_session": self._close,
            "/aggregate_metrics": self._aggregate,
        }
        got = {
            "/task_state": answering(self._task_state),
            "/reverify_mode": _reverify_mode,
        }
        return [
            *(
                Route(prefix + path, guarded(answering(handler)), methods=["POST"])
                for prefix in PREFIXES
                for path, handler in posted.items()
            ),
            *(
                Route(prefix + path, guarded(endpoint), methods=["GET"])
                for prefix in PREFIXES
                for path, endpoint in got.items()
            ),
            Route("/openapi.json", guarded(self._described), methods=["GET"]),
            *(
                ()
                if self.metrics is None
                else (Route(PATH, guarded(self.metrics), methods=["GET"]),)
            ),
            *self.health(),
        ]

    def health(self) -> Sequence[Route]:
        """Return the routes that tell how the server is."""
        ready = readiness(lambda: self.served.draining)
        return [
            *(Route(path, alive, methods=["GET"]) for path in HEALTH_PATHS),
            Route(READY_PATH, ready, methods=["GET"]),
        ]

    async def _seed(self, asked: Asked) -> Answer:
        seed = to_seed(asked.body)
        known_as(episode=seed.episode.key, session=seed.session)
        try:
            opened = await self.served.seed(seed.session, seed.episode, seed.task)
        except answers.CONFLICTS as error:
            return Answer(await self._conflict(seed.session, error))
        except TaskRefused as refused:
            wrong = wrong_value(("task_data",), str(refused), dict(seed.task.task_data))
            return Answer(unreadable(wrong))
        token = self.tokens.token(seed.session)
        sandbox = opened.sandbox
        told: dict[str, Json] = {
            "resources_session_id": seed.session,
            "resources_tools": None,
            "sandbox_access": from_access(
                None if sandbox is None else sandbox.access()
            ),
        }
        if opened.opened is not None:
            # Also where the task is reached otherwise: there it lists no tools, and an
            # environment that asks for it is served all the same.
            told["resources_tools"] = {
                "server_name": self.server_name,
                "url_path": MCP,
                "transport": "http",
                "headers": dict(self.tokens.headers(seed.session)),
            }
        return Answer(JSONResponse(told), token)

    async def _verify(self, asked: Asked) -> Answer:
        session = self.tokens.session(asked.visitor.session)
        if session is None:
            return Answer(answers.unknown())
        known_as(session=session)
        verify = to_verify(asked.body, asked.request.headers)
        try:
            reply = await self.served.verify(
                session, verify.task, verify.turn, stillness=verify.stillness
            )
        except answers.CONFLICTS as error:
            return Answer(await self._conflict(session, error))
        told = dict(reply)
        if isinstance(reason := told.get("failure_reason"), str):
            told["failure_reason"] = self.secrets.masked(reason)
        return Answer(JSONResponse(told))

    async def _close(self, asked: Asked) -> Answer:
        close = to_close(asked.body)
        known_as(episode=close.episode.key, session=close.session)
        try:
            await self.served.close(close.session, close.episode)
        except answers.CONFLICTS as error:
            return Answer(await self._conflict(close.session, error))
        except (Refusal, Fault) as error:
            return Answer(not_done(error, masked=self.secrets.masked))
        return Answer(JSONResponse({"resources_session_id": close.session}))

    async def _task_state(self, asked: Asked) -> Answer:
        session = self.tokens.session(asked.visitor.session)
        if session is None:
            return Answer(answers.unknown())
        known_as(session=session)
        state = await self.served.sessions.task_state(session)
        return Answer(
            JSONResponse({"complete": state.complete, "revision": state.revision})
        )

    async def _aggregate(self, asked: Asked) -> Answer:
        return Answer(JSONResponse(aggregate(to_rows(asked.body))))

    async def _described(self, request: Request) -> Response:
        measured = self.metrics is not None
        told = document(self.sandbox_url, measured=measured, over_mcp=self.over_mcp)
        return JSONResponse(told)

    async def _conflict(
        self, session: ResourcesSessionId, error: Refusal
    ) -> JSONResponse:
        standing = await self.served.sessions.standing(session)
        return answers.told(error, session, standing.state.phase)


async def _reverify_mode(request: Request) -> Response:
    return JSONResponse(REVERIFY_MODE)
