# SPDX-License-Identifier: Apache-2.0
"""The routes of the agent server.

Every handler notices within a moment that its client has left, and answers nobody
then: seed and close go on to their end, an activation by its own rules. No middleware
stands between a client and its handler.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import attrs
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...domain.agent_sessions import AgentSessionId, SessionPhase
from ...domain.digests import Json
from ...domain.refusals import Refusal
from ...ports.provided.log_context import logged_as
from ...ports.provided.secret_values import SecretValues
from ...ports.provided.serve_sessions import ServedSessions
from ...ports.required.faults import Fault
from . import answers
from .bodies import BodyRefused
from .messages import to_close, to_parameters, to_seed
from .openapi import document
from .session_cookies import SessionCookies, Visitor

log = logging.getLogger(__name__)

BODY_SECONDS: Final = 60.0
"""How long a client may take to send a body."""
ACTIVATION_PATHS: Final = (
    "/v1/responses",
    "/ng-rollout/{key}/v1/responses",
    "/ng-rollout/{key}/training-token-capture/v1/responses",
)
HEALTH_PATHS: Final = ("/", "/health", "/healthz", "/livez")
READY_PATH: Final = "/readyz"

_TOO_LARGE: Final = 413
_TOO_SLOW: Final = 408
_SHUTTING_DOWN: Final = 503
_UNEXPECTED: Final = 500


@attrs.frozen
class Answer:
    """A reply, and the session that the cookie names from now on."""

    response: Response
    session: AgentSessionId | None = None


Handler = Callable[[bytes, Visitor], Awaitable[Answer]]


class Unsent(Response):
    """What a client that has left is sent: nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send nothing."""


@attrs.frozen(kw_only=True)
class AgentRoutes:
    """The handlers, over the sessions that are served."""

    served: ServedSessions
    cookies: SessionCookies
    body_bytes_max: int
    secrets: SecretValues

    def routes(self) -> Sequence[Route]:
        """Return the routes of the application."""
        return [
            Route("/v1/agent_sessions", self._route(self._seed), methods=["POST"]),
            Route(
                "/v1/agent_sessions/close", self._route(self._close), methods=["POST"]
            ),
            *(
                Route(path, self._route(self._activate), methods=["POST"])
                for path in ACTIVATION_PATHS
            ),
            *(Route(path, _alive, methods=["GET"]) for path in HEALTH_PATHS),
            Route(READY_PATH, self._ready, methods=["GET"]),
            Route("/openapi.json", _described, methods=["GET"]),
        ]

    async def _seed(self, body: bytes, visitor: Visitor) -> Answer:
        asked = to_seed(body)
        if (other := await self._other(visitor, asked.session)) is not None:
            return Answer(other)
        try:
            await self.served.seed(asked.session, asked.episode, asked.grant)
        except tuple(answers.SEEDING) as error:
            return Answer(await self._conflict(asked.session, error, answers.SEEDING))
        told = {"agent_session_id": asked.session}
        return Answer(JSONResponse(told), asked.session)

    async def _activate(self, body: bytes, visitor: Visitor) -> Answer:
        if visitor.session is None:
            return Answer(_unknown())
        session = AgentSessionId(visitor.session)
        parameters = to_parameters(body)
        try:
            ending = await self.served.activate(session, parameters)
        except tuple(answers.ACTIVATING) as error:
            return Answer(await self._conflict(session, error, answers.ACTIVATING))
        except (Refusal, Fault) as error:
            return Answer(self._not_done(error, parameters))
        return Answer(Response(ending.reply, media_type="application/json"))

    async def _close(self, body: bytes, visitor: Visitor) -> Answer:
        asked = to_close(body)
        if (other := await self._other(visitor, asked.session)) is not None:
            return Answer(other)
        try:
            closed = await self.served.close(asked.session, asked.episode)
        except tuple(answers.CLOSING_IT) as error:
            return Answer(
                await self._conflict(asked.session, error, answers.CLOSING_IT)
            )
        told = {
            "agent_session_id": asked.session,
            "agent_observations": json.loads(closed.reply)["observations"],
            "resources_cookies": None,
        }
        return Answer(JSONResponse(told), asked.session)

    async def _other(
        self, visitor: Visitor, session: AgentSessionId
    ) -> JSONResponse | None:
        """Return the conflict when the cookie names another session, or a forgotten one."""
        if visitor.session is None:
            return None
        state = (await self.served.sessions.standing(session)).state
        if visitor.session != session:
            return answers.conflict(
                answers.OTHER_COOKIE, "cookie_mismatch", state.phase
            )
        if state.phase is SessionPhase.ABSENT:
            return _unknown()
        return None

    async def _conflict(
        self,
        session: AgentSessionId,
        error: Exception,
        texts: answers.Texts,
    ) -> JSONResponse:
        assert isinstance(error, Refusal), "only refusals have such texts"
        state = (await self.served.sessions.standing(session)).state
        reason = state.reason
        if state.closed is not None:
            reason = str(json.loads(state.closed.reply).get("reason", ""))
        return answers.conflict(texts[type(error)], error.kind, state.phase, reason)

    def _not_done(self, error: Refusal | Fault, found: Json = None) -> JSONResponse:
        return answers.not_done(error, found=found, masked=self.secrets.masked)

    async def _ready(self, request: Request) -> JSONResponse:
        if self.served.draining:
            return JSONResponse({"status": "shutting down"}, _SHUTTING_DOWN)
        return await _alive(request)

    def _route(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            visitor = self.cookies.read(request)
            try:
                body = await self._body(request)
                answer = await self._answer(request, handler, body, visitor)
            except ClientDisconnect:
                log.info("The client left before it was answered")
                return Unsent()
            except HTTPException as refused:
                answer = Answer(_told(refused))
            if answer.response.status_code != _UNEXPECTED:
                if answer.session is not None:
                    visitor = attrs.evolve(visitor, session=answer.session)
                self.cookies.set(answer.response, visitor)
            return answer.response

        return answered

    async def _body(self, request: Request) -> bytes:
        """Read the body, as far as it may be long and slow."""
        body = bytearray()
        try:
            with anyio.fail_after(BODY_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self.body_bytes_max:
                        told = f"The body is longer than {self.body_bytes_max} bytes."
                        raise HTTPException(_TOO_LARGE, told)
        except TimeoutError as late:
            told = f"The body did not come within {BODY_SECONDS:g} seconds."
            raise HTTPException(_TOO_SLOW, told) from late
        return bytes(body)

    async def _answer(
        self, request: Request, handler: Handler, body: bytes, visitor: Visitor
    ) -> Answer:
        """Have the handler answer, unless the client leaves before."""
        found: list[Answer] = []
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_left, request, group.cancel_scope)
            found.append(await self._carried_out(handler, body, visitor))
            group.cancel_scope.cancel()
        if not found:
            raise ClientDisconnect
        return found[0]

    async def _carried_out(
        self, handler: Handler, body: bytes, visitor: Visitor
    ) -> Answer:
        with logged_as(session=visitor.session or ""):
            try:
                return await handler(body, visitor)
            except BodyRefused as refused:
                return Answer(answers.unreadable(refused))
            except (Refusal, Fault) as error:
                return Answer(self._not_done(error))
            except Exception:
                log.exception("A request hit a mistake of ours")
                told = {"detail": "Internal server error", "kind": "unexpected"}
                return Answer(JSONResponse(told, _UNEXPECTED))


def to_application(
    routes: Sequence[Route],
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None,
) -> Starlette:
    """Return the application of some routes."""
    return Starlette(
        routes=routes, exception_handlers={HTTPException: _http}, lifespan=lifespan
    )


async def _cancel_when_left(request: Request, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


async def _alive(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


async def _described(request: Request) -> JSONResponse:
    return JSONResponse(document())


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these"
    return _told(error)


def _told(error: HTTPException) -> JSONResponse:
    return JSONResponse(
        {"detail": error.detail}, error.status_code, headers=error.headers
    )


def _unknown() -> JSONResponse:
    return answers.conflict(answers.UNKNOWN, "session_unknown", SessionPhase.ABSENT)
