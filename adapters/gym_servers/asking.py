# SPDX-License-Identifier: Apache-2.0
"""Asking one server: a connection from the pool, JSON both ways, every no typed.

Whether asking again can help is told by the status alone: 408, 425, 429 and all from
500 on. A connection that is refused or lost is tried again, for so long and no longer.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import aiohttp
import anyio
import attrs

from ...domain.digests import Json
from ...domain.failures import (
    PROVIDER_QUOTA_EXHAUSTED,
    PROVIDER_UNAVAILABLE,
    REQUEST_REFUSED,
    SESSION_EXPIRED,
    SESSION_LOST,
    SHUTDOWN,
    TRANSPORT_PEER_DROP,
    TRANSPORT_UNREACHABLE,
    FailureKind,
)
from ...ports.provided.cookies import cookie_header
from ...ports.provided.json_texts import from_json
from ...ports.required.participants import ParticipantFailed
from .reach import (
    CONNECT_SECONDS,
    CONNECTIONS_MAX,
    KEEP_ALIVE_SECONDS,
    PAUSE_SECONDS,
    REACH_SECONDS,
)

REPLY_BYTES_MAX: Final = 256 * 1024 * 1024
DETAIL_CHARACTERS_MAX: Final = 500

Body = Mapping[str, Json]
Jar = dict[str, str]
"""Cookies, by name."""

_AGAIN: Final = (408, 425, 429)
_KINDS: Final[Mapping[str, FailureKind]] = {
    "admission_shut": SHUTDOWN,
    "capacity_exhausted": PROVIDER_QUOTA_EXHAUSTED,
    "provider_unavailable": PROVIDER_UNAVAILABLE,
    "provider_unreachable": PROVIDER_UNAVAILABLE,
    "sandbox_lost": SESSION_LOST,
    "session_closed": SESSION_EXPIRED,
}
"""What kinds of ours, as servers of ours tell them, are to an episode."""


@attrs.frozen
class Reply:
    """What a server answered with a status of 200."""

    body: Body
    cookies: Jar = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Step:
    """What is asked, in words for failures, and what a failure of it is called."""

    participant: str
    words: str
    kind: FailureKind
    """When the server fails; a request that it refuses has a kind of its own."""

    def failed(
        self,
        reason: str,
        *,
        kind: FailureKind | None = None,
        terminal: bool,
        not_taken: bool = False,
    ) -> ParticipantFailed:
        """Return the failure of this step."""
        return ParticipantFailed(
            participant=self.participant,
            step=self.words,
            failure_kind=kind or self.kind,
            reason=reason,
            terminal=terminal,
            not_taken=not_taken,
        )


@attrs.frozen(kw_only=True)
class GymServer:
    """One server, and how patiently it is asked."""

    url: str
    """Without a slash at its end."""
    http: aiohttp.ClientSession
    reach_seconds: float = REACH_SECONDS

    async def post(
        self,
        step: Step,
        path: str,
        body: Body,
        *,
        cookies: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Post `body` and return the reply.

        Raises:
            ParticipantFailed: There was none, or it is no success.
        """
        content = json.dumps(body, ensure_ascii=False).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        return await self._ask(step, "POST", path, content, _with(sent, cookies))

    async def get(
        self, step: Step, path: str, *, cookies: Mapping[str, str] | None = None
    ) -> Reply:
        """Get what stands at `path`; raises as `post` does."""
        return await self._ask(step, "GET", path, None, _with({}, cookies))

    async def _ask(
        self,
        step: Step,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> Reply:
        until = anyio.current_time() + self.reach_seconds
        while True:
            began = anyio.current_time()
            try:
                return await self._once(step, method, path, content, headers)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as fault:
                # Who answered for long was reached; it is the loss that counts.
                if anyio.current_time() - began > self.reach_seconds:
                    until = anyio.current_time() + self.reach_seconds
                if anyio.current_time() + PAUSE_SECONDS > until:
                    raise self._unreached(step, fault) from fault
            except aiohttp.ClientError as fault:
                # Another protocol, an encoding that was not asked for, a head too long.
                told = f"{self.url} gave an answer that cannot be read: {_line(fault)}"
                raise step.failed(told, terminal=True) from fault
            await anyio.sleep(PAUSE_SECONDS)

    async def _once(
        self,
        step: Step,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> Reply:
        async with self.http.request(
            method,
            f"{self.url}{path}",
            data=content,
            headers=headers,
            allow_redirects=False,
        ) as answer:
            text = await _read(step, answer)
            if answer.status != HTTPStatus.OK:
                raise self._refused(step, answer.status, text)
            jar = {name: morsel.value for name, morsel in answer.cookies.items()}
            return Reply(_object(step, text), jar, answer.headers)

    def _unreached(self, step: Step, fault: aiohttp.ClientError) -> ParticipantFailed:
        connect = isinstance(fault, aiohttp.ClientConnectorError)
        return step.failed(
            f"{self.url} cannot be reached: {_line(fault)}",
            kind=TRANSPORT_UNREACHABLE if connect else TRANSPORT_PEER_DROP,
            terminal=False,
        )

    def _refused(self, step: Step, status: int, text: bytes) -> ParticipantFailed:
        again = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _AGAIN
        detail, kind = _told(text)
        phrase = _phrase(status)
        return step.failed(
            f"{self.url} answered {status} {phrase}{detail and f': {detail}'}",
            kind=_KINDS.get(kind, step.kind if again else REQUEST_REFUSED),
            terminal=not again,
            not_taken=status == HTTPStatus.UNPROCESSABLE_ENTITY,
        )


@asynccontextmanager
async def open_gym_client() -> AsyncGenerator[aiohttp.ClientSession]:
    """Open the connections to the servers, which are closed after the block."""
    connector = aiohttp.TCPConnector(
        limit=0,
        limit_per_host=CONNECTIONS_MAX,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        trust_env=False,
    ) as http:
        yield http


def _with(
    headers: Mapping[str, str], cookies: Mapping[str, str] | None
) -> Mapping[str, str]:
    if not cookies:
        return headers
    return {**headers, "cookie": cookie_header(cookies)}


async def _read(step: Step, answer: aiohttp.ClientResponse) -> bytes:
    """Read a body, as far as it may be long."""
    length = answer.content_length
    if length is not None and length <= REPLY_BYTES_MAX:
        return await answer.read()
    found = bytearray()
    async for chunk in answer.content.iter_any():
        found += chunk
        if len(found) > REPLY_BYTES_MAX:
            reason = f"its answer is longer than {REPLY_BYTES_MAX} bytes"
            raise step.failed(reason, terminal=True)
    return bytes(found)


def _line(fault: aiohttp.ClientError) -> str:
    """Return a fault in one line: some show what came below their words."""
    told = str(
        fault.message if isinstance(fault, aiohttp.ClientResponseError) else fault
    )
    return f"{type(fault).__name__}: {' '.join(told.split())}".rstrip(": ")


def _object(step: Step, text: bytes) -> Body:
    try:
        found = from_json(text)
    except ValueError as error:
        raise step.failed(f"its answer is no JSON: {error}", terminal=True) from error
    if not isinstance(found, Mapping):
        raise step.failed("its answer is no JSON object", terminal=True)
    return found


def _told(text: bytes) -> tuple[str, str]:
    """Return the detail and the kind of an error's body, as far as it has them."""
    try:
        found = from_json(text)
    except ValueError:
        found = text.decode(errors="replace")
    kind = ""
    if isinstance(found, Mapping):
        kind, found = str(found.get("kind", "")), found.get("detail", found)
    detail = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if len(detail) > DETAIL_CHARACTERS_MAX:
        detail = f"{detail[:DETAIL_CHARACTERS_MAX]}… ({len(detail)} characters)"
    return detail, kind


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
