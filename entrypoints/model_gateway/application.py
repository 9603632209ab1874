# SPDX-License-Identifier: Apache-2.0
"""The gateway as an ASGI application: who asks, for what, within which bounds.

Whatever is refused here is refused in the caller's dialect, so that a CLI reads it
as it would read its model's server.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import attrs
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from ...adapters.model_upstream import (
    Dialect,
    Malformed,
    dialect_of,
    error_body,
    read_request,
    spoken_by,
)
from ...ports.required.artifact_store import ArtifactStore
from ...ports.required.model_access import CallEnd
from .call import CallerGone, CallUnderWay
from .passing import Passing
from .session import Beyond
from .sessions import GatewaySessions

_BEARER: Final = "bearer "

_log = logging.getLogger(__name__)


@attrs.frozen
class TooLarge(Exception):
    """The request's body is longer than is allowed."""

    bytes_max: int


def gateway_app(
    sessions: GatewaySessions, *, bodies: ArtifactStore | None = None
) -> Starlette:
    """Return the application; with `bodies`, the calls' bodies are kept there."""
    app = Starlette()
    app.router.default = _Gateway(sessions, bodies)
    return app


@attrs.frozen
class _Gateway:
    _sessions: GatewaySessions
    _bodies: ArtifactStore | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # No model speaks over it; the server closes it.
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        session = self._sessions.holder(_presented(headers))
        below = raw.removeprefix(session.prefix) if session else raw
        dialect = dialect_of(scope["method"], below)
        speaks = dialect or spoken_by(headers)
        if session is None:
            # A program may knock at the address before it asks anything.
            level = logging.DEBUG if dialect is None else logging.WARNING
            _log.log(level, "A caller without a session's placeholder was refused")
            message = "This placeholder opens no session"
            refusal = Beyond(status=401, kind="no_session", message=message)
            with suppress(TooLarge, CallerGone):  # Unread, it could cost the answer.
                await _body(scope, receive, self._sessions.bounds.request_bytes_max)
            await _refuse(send, speaks, refusal)
            return
        call = CallUnderWay(
            session=session,
            number=session.next_number(),
            method=scope["method"],
            path=raw,
            bodies=self._bodies,
        )
        try:
            with session.running():
                if not raw.startswith(session.prefix):
                    dialect = None
                await self._serve(call, scope, receive, send, dialect, below, speaks)
        except CallerGone:
            call.ended(CallEnd.CALLER_GONE, "the caller went away")
        finally:
            if call.end is None:
                reason = "the session was closed" if session.is_revoked else "shut down"
                call.ended(CallEnd.CALLER_GONE, reason)
            call.note()
            await call.keep()

    async def _serve(
        self,
        call: CallUnderWay,
        scope: Scope,
        receive: Receive,
        send: Send,
        dialect: Dialect | None,
        below: bytes,
        speaks: Dialect,
    ) -> None:
        bounds = call.session.bounds
        refusal = call.session.beyond()
        if dialect is None:
            told = f"The gateway passes on no {scope['method']} of this path"
            refusal = Beyond(status=404, kind="no_model_path", message=told)
        try:
            call.body = await _body(scope, receive, bounds.request_bytes_max)
            if refusal is None:
                call.asked = read_request(below, call.body)
        except TooLarge as fault:
            told = f"The request is longer than {fault.bytes_max} bytes"
            refusal = Beyond(status=413, kind="request_too_large", message=told)
        except Malformed as fault:
            refusal = Beyond(status=400, kind="malformed", message=str(fault))
        if refusal is not None or dialect is None:
            assert refusal is not None
            call.status = refusal.status
            call.ended(CallEnd.NOT_FORWARDED, refusal.message)
            call.note()
            await _refuse(send, speaks, refusal)
            return
        query: bytes = scope["query_string"]
        passing = Passing(
            call=call,
            dialect=dialect,
            target=call.path + (b"?" + query if query else b""),
            headers=scope["headers"],
            receive=receive,
            send=send,
        )
        await passing.run()


def _presented(headers: Mapping[str, str]) -> list[str]:
    """Return every credential that the caller shows."""
    found: list[str] = []
    if key := headers.get("x-api-key"):
        found.append(key)
    told = headers.get("authorization", "")
    if told:
        is_bearer = told.lower().startswith(_BEARER)
        found.append(told[len(_BEARER) :].strip() if is_bearer else told)
    return found


async def _body(scope: Scope, receive: Receive, bytes_max: int) -> bytes:
    """Return the whole body.

    Raises:
        TooLarge: As it says; no more of it was read.
        CallerGone: As it says.
    """
    for name, value in scope["headers"]:
        if name.lower() == b"content-length" and int(value) > bytes_max:
            raise TooLarge(bytes_max)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        body += message.get("body", b"")
        if len(body) > bytes_max:
            raise TooLarge(bytes_max)
        if not message.get("more_body", False):
            return bytes(body)


async def _refuse(send: Send, dialect: Dialect, refusal: Beyond) -> None:
    body = error_body(
        dialect,
        status=refusal.status,
        kind=refusal.kind,
        message=refusal.message,
    )
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refusal.status == 413:
        headers.append((b"connection", b"close"))  # The rest of it is not read.
    await send(
        {"type": "http.response.start", "status": refusal.status, "headers": headers}
    )
    await send({"type": "http.response.body", "body": body})
