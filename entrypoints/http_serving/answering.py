# SPDX-License-Identifier: Apache-2.0
"""How a route is answered: the body read within bounds, and nobody when all have left.

Every handler notices within a moment that its client has left, and answers nobody
then; what must go on without a caller does so in a task of its own. No middleware
stands between a client and its handler, but the one that refuses browsers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import attrs
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from ...domain.refusals import Refusal
from ...ports.provided.log_context import logged_as
from ...ports.provided.secret_values import SecretValues
from ...ports.required.faults import Fault
from . import answers
from .bodies import BodyRefused
from .browsers import BrowsersRefused
from .session_cookies import SessionCookies, Visitor

log = logging.getLogger(__name__)

BODY_SECONDS: Final = 60.0
"""How long a client may take to send a body."""
HEALTH_PATHS: Final = ("/", "/health", "/healthz", "/livez")
READY_PATH: Final = "/readyz"

_TOO_LARGE: Final = 413
_TOO_SLOW: Final = 408
_SHUTTING_DOWN: Final = 503
_UNEXPECTED: Final = 500


@attrs.frozen
class Asked:
    """A request, as far as it is read for every handler."""

    request: Request
    body: bytes
    visitor: Visitor


@attrs.frozen
class Answer:
    """A reply, and the session that the cookie names from now on."""

    response: Response
    session: str | None = None


Handler = Callable[[Asked], Awaitable[Answer]]


class Unsent(Response):
    """What a client that has left is sent: nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send nothing."""


@attrs.frozen(kw_only=True)
class Answering:
    """Makes routes' endpoints out of handlers."""

    cookies: SessionCookies | None
    """None: the server knows nobody by a cookie."""
    body_bytes_max: int
    secrets: SecretValues

    def __call__(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a handler."""

        async def answered(request: Request) -> Response:
            visitor = Visitor("") if not self.cookies else self.cookies.read(request)
            try:
                body = await self._body(request)
                answer = await self._answer(handler, Asked(request, body, visitor))
            except ClientDisconnect:
                log.info("The client left before it was answered")
                return Unsent()
            except HTTPException as refused:
                answer = Answer(answers.refused_by_http(refused))
            if self.cookies and answer.response.status_code != _UNEXPECTED:
                if answer.session is not None:
                    visitor = attrs.evolve(visitor, session=answer.session)
                self.cookies.set(answer.response, visitor)
            return answer.response

        return answered

    async def _body(self, request: Request) -> bytes:
        """Read the body, as far as it may be long and slow."""
        declared = request.headers.get("content-length", "")
        # As a float, which takes a number of any length.
        if declared.isdecimal() and float(declared) > self.body_bytes_max:
            raise self._too_long(closing=True)
        body = bytearray()
        try:
            with anyio.fail_after(BODY_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self.body_bytes_max:
                        raise self._too_long(closing=False)
        except TimeoutError as late:
            told = f"The body did not come within {BODY_SECONDS:g} seconds."
            raise HTTPException(_TOO_SLOW, told) from late
        return bytes(body)

    def _too_long(self, *, closing: bool) -> HTTPException:
        """Return the refusal; `closing` has it go out before the body has come."""
        told = f"The body is longer than {self.body_bytes_max} bytes."
        headers = {"connection": "close"} if closing else None
        return HTTPException(_TOO_LARGE, told, headers=headers)

    async def _answer(self, handler: Handler, asked: Asked) -> Answer:
        """Have the handler answer, unless the client leaves before."""
        scope = anyio.CancelScope()
        # A task of asyncio's own: one in a group costs ten times as much, each request.
        watch = asyncio.create_task(_cancel_when_left(asked.request, scope))
        try:
            with scope:
                return await self._carried_out(handler, asked)
        finally:
            watch.cancel()
        raise ClientDisconnect

    async def _carried_out(self, handler: Handler, asked: Asked) -> Answer:
        # Whose request it is, the handlers say: what a cookie holds may be a token.
        with logged_as():
            try:
                return await handler(asked)
            except BodyRefused as refused:
                return Answer(answers.unreadable(refused))
            except HTTPException as refused:
                return Answer(answers.refused_by_http(refused))
            except (Refusal, Fault) as error:
                return Answer(answers.not_done(error, masked=self.secrets.masked))
            except Exception:
                log.exception("A request hit a mistake of ours")
                told = "Internal server error"
                return Answer(answers.refused(_UNEXPECTED, "unexpected", told))


def to_application(
    routes: Sequence[BaseRoute],
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None,
    *,
    without_kind: Collection[int] = (),
) -> Starlette:
    """Return the application of some routes, which no browser gets to.

    What routing refuses has a kind, but for the statuses that are told `without_kind`.
    """
    return Starlette(
        routes=routes,
        middleware=[Middleware(BrowsersRefused)],
        exception_handlers={
            HTTPException: _http,
            **dict.fromkeys(without_kind, _http_without_kind),
        },
        lifespan=lifespan,
    )


async def alive(request: Request) -> JSONResponse:
    """Answer that the server is there."""
    return JSONResponse({"status": "ok"})


def readiness(draining: Callable[[], bool]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that tells whether new work is taken."""

    async def ready(request: Request) -> Response:
        if draining():
            return JSONResponse({"status": "shutting down"}, _SHUTTING_DOWN)
        return await alive(request)

    return ready


async def _cancel_when_left(request: Request, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these"
    return answers.refused_by_http(error)


async def _http_without_kind(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for their statuses"
    return JSONResponse(
        {"detail": error.detail}, error.status_code, headers=error.headers
    )
