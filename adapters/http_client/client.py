# SPDX-License-Identifier: Apache-2.0
"""One client for a provider's HTTP, over httpx."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar, Final

import anyio
import attrs
import httpx

from ...ports.required.faults import Fault
from .answers import NOT_DECODED, AnswerUnusable, whole_answer
from .calls import Calls, ClientClosed
from .retries import (
    RETRIED_STATUSES,
    Delivery,
    Patience,
    can_help,
    delivery_of,
    retry_after_seconds,
    wall_clock,
)

KEEP_ALIVE_SECONDS: Final = 4.0
"""Shorter than any server keeps idle connections that we know of (5 s and more)."""
CONNECTIONS_MAX: Final = 256
CLOSE_SECONDS: Final = 5.0
UNSENDABLE: Final = (
    "HTTP does not carry the request as it is; look for line ends and blanks around"
    " what its headers hold, such as a key or a token"
)


@attrs.frozen
class HttpFailed(Fault):
    """No answer came, or none that can be used."""

    kind: ClassVar[str] = "http_failed"
    message: ClassVar[str] = (
        "{method} {host} failed after {attempts} attempts ({delivery}): {reason}."
    )
    can_retry: ClassVar[bool] = True

    method: str
    host: str
    """Host and port alone: paths and queries may hold what is not to be told."""
    attempts: int
    delivery: Delivery
    reason: str


@attrs.frozen
class KeepAliveTooLong(Fault):
    """Idle connections would be used that the server has closed already."""

    kind: ClassVar[str] = "keep_alive_too_long"
    message: ClassVar[str] = (
        "The client would keep idle connections for {client_seconds:g} s, the server"
        " keeps them for {server_seconds:g} s. The client's time has to be shorter."
    )

    client_seconds: float
    server_seconds: float


@attrs.frozen
class HttpClient:
    """Asks one other side."""

    _http: httpx.AsyncClient
    patience: Patience = attrs.field(factory=Patience)
    _calls: Calls = attrs.field(factory=Calls)

    async def request(
        self,
        method: str,
        path: str,
        *,
        repeatable: bool,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
        patience: Patience | None = None,
    ) -> httpx.Response:
        """Ask, again where that is right, and return the answer, whatever its status.

        `repeatable` says that asking twice does what asking once does. A redirect is
        an answer like any other and is not followed. `patience` is the client's own
        where none is given. `timeout_seconds` counts from one piece of the answer to
        the next; the whole of it has bounds of its own (`answers.py`).

        Raises:
            HttpFailed: No answer within the bounds of `patience`, or one that is too
                long, does not end or cannot be decoded.
        """
        patience = patience or self.patience
        connect_seconds = patience.connect_seconds
        request = self._built(
            method,
            path,
            content=content,
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=connect_seconds),
        )
        until = anyio.current_time() + patience.seconds_max
        for attempt in range(1, patience.attempts_max + 1):
            try:
                with self._calls.one():
                    head = await self._http.send(request, stream=True)
                    answer = await whole_answer(head)
            except (ClientClosed, AnswerUnusable) as fault:
                raise _failed(request, attempt, fault) from fault
            except httpx.TransportError as fault:
                pause = _pause_after_fault(
                    patience, fault, attempt, until, repeatable=repeatable
                )
                if pause is None:
                    raise _failed(request, attempt, fault) from fault
            else:
                pause = _pause_after(
                    patience, answer, attempt, until, repeatable=repeatable
                )
                if pause is None:
                    return answer
            await anyio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
    ) -> AsyncGenerator[httpx.Response]:
        """Ask once, and open the answer; its body is read by the caller.

        `timeout_seconds` counts from one piece of the body to the next.

        Raises:
            HttpFailed: No answer came, or, inside the block, it was cut off or could
                not be decoded.
        """
        connect_seconds = self.patience.connect_seconds
        request = self._built(
            method,
            path,
            content=content,
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=connect_seconds),
        )
        try:
            with self._calls.one():
                answer = await self._http.send(request, stream=True)
            try:
                yield answer
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()
        except httpx.DecodingError as fault:
            raise _failed(request, 1, AnswerUnusable(NOT_DECODED)) from fault
        except (ClientClosed, httpx.TransportError) as fault:
            raise _failed(request, 1, fault) from fault

    def _built(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None,
        headers: Mapping[str, str] | None,
        timeout: httpx.Timeout,
    ) -> httpx.Request:
        """Return a request; an address that others told may be none."""
        try:
            return self._http.build_request(
                method,
                path,
                content=content,
                headers=_raw(headers),
                timeout=timeout,
            )
        except httpx.InvalidURL as fault:
            raise HttpFailed(
                method=method,
                host=path.partition("://")[2].partition("/")[0].rpartition("@")[2],
                attempts=0,
                delivery=Delivery.NOT_SENT,
                reason=f"its address is none: {fault}",
            ) from fault


@asynccontextmanager
async def open_http_client(
    base: str,
    *,
    headers: Mapping[str, str] | None = None,
    patience: Patience | None = None,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    server_keep_alive_seconds: float | None = None,
    trust: ssl.SSLContext | None = None,
) -> AsyncGenerator[HttpClient]:
    """Open a client for the server at `base`, a URL.

    `trust` says which certificates are believed; the well-known ones when None.

    Raises:
        KeepAliveTooLong: The server is known to close idle connections earlier.
    """
    if (
        server_keep_alive_seconds is not None
        and keep_alive_seconds >= server_keep_alive_seconds
    ):
        raise KeepAliveTooLong(keep_alive_seconds, server_keep_alive_seconds)
    limits = httpx.Limits(
        max_connections=CONNECTIONS_MAX,
        max_keepalive_connections=CONNECTIONS_MAX,
        keepalive_expiry=keep_alive_seconds,
    )
    http = httpx.AsyncClient(
        base_url=base,
        headers=_raw(headers),
        limits=limits,
        follow_redirects=False,
        trust_env=False,
        verify=True if trust is None else trust,
    )
    calls = Calls()
    try:
        yield HttpClient(http, patience or Patience(), calls)
    finally:
        # Also for a caller that is given up: sockets would stay open. And of a call
        # of another task: what it opens meanwhile, the closed client would not know.
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await calls.end()
            await http.aclose()


def _raw(headers: Mapping[str, str] | None) -> dict[bytes, bytes]:
    """Return headers as bytes: the library takes no text that is not ASCII."""
    return {
        name.encode("ascii"): value.encode("utf-8", "surrogateescape")
        for name, value in (headers or {}).items()
    }


def _failed(
    request: httpx.Request,
    attempts: int,
    fault: httpx.TransportError | ClientClosed | AnswerUnusable,
) -> HttpFailed:
    if isinstance(fault, ClientClosed | AnswerUnusable):
        delivery, reason = fault.delivery, str(fault)
    elif isinstance(fault, httpx.LocalProtocolError):
        # Its own words show the value of a header, which may be a credential.
        delivery, reason = delivery_of(fault), UNSENDABLE
    else:
        delivery = delivery_of(fault)
        reason = f"{type(fault).__name__}: {fault}".rstrip(": ")
    return HttpFailed(
        method=request.method,
        host=request.url.netloc.decode("ascii", "replace").rpartition("@")[2],
        attempts=attempts,
        delivery=delivery,
        reason=reason,
    )


def _pause_after_fault(
    patience: Patience,
    fault: httpx.TransportError,
    attempt: int,
    until: float,
    *,
    repeatable: bool,
) -> float | None:
    """Return the pause before the next attempt; None when there is to be none."""
    sent = delivery_of(fault) is not Delivery.NOT_SENT
    if not can_help(fault) or (sent and not repeatable):
        return None
    return _within(patience, patience.pause(attempt), attempt, until)


def _pause_after(
    patience: Patience,
    answer: httpx.Response,
    attempt: int,
    until: float,
    *,
    repeatable: bool,
) -> float | None:
    if answer.status_code not in RETRIED_STATUSES or not repeatable:
        return None
    asked = retry_after_seconds(answer.headers, wall_clock())
    own = patience.pause(attempt)
    return _within(patience, own if asked is None else asked, attempt, until)


def _within(
    patience: Patience, pause: float, attempt: int, until: float
) -> float | None:
    last = attempt >= patience.attempts_max
    return None if last or anyio.current_time() + pause > until else pause
