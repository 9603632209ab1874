# SPDX-License-Identifier: Apache-2.0
"""One line to the model's server for each session, byte for byte.

A request goes on as it came: method, target, body and headers, but for what is
between two neighbours alone, the caller's credential, and cookies. The real
credential is put in here. Each session has its own connections and its own jar of
cookies, so that an upstream that keeps a session on one engine finds it again.
Nothing is asked twice; whoever asked knows best whether to ask again.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import anyio
import attrs
import httpx

from ...ports.required.model_access import CallEnd
from .covering import Cover
from .dialects import Dialect

CONNECT_SECONDS: Final = 10.0
SEND_SECONDS: Final = 60.0
SILENCE_SECONDS: Final = 600.0
"""How long an upstream may say nothing before the call is given up."""
KEEP_ALIVE_SECONDS: Final = 4.0
"""Shorter than any server keeps idle connections that we know of (5 s and more)."""
CONNECTIONS_MAX: Final = 64
"""Of one session."""
COOKIES_MAX: Final = 64

Headers = Sequence[tuple[bytes, bytes]]

_HOP_BY_HOP: Final = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
_NOT_PASSED_ON: Final = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"authorization",
    b"x-api-key",
    b"cookie",
    b"expect",
    b"accept-encoding",
}
_NOT_PASSED_BACK: Final = _HOP_BY_HOP | {b"set-cookie", b"set-cookie2"}
_DECODED: Final = {"gzip", "deflate"}


class CredentialStyle(StrEnum):
    """In which header the upstream wants its credential."""

    AUTO = "auto"
    """As the dialect has it: `x-api-key` for Anthropic's, else a bearer token."""
    X_API_KEY = "x-api-key"
    BEARER = "bearer"


@attrs.frozen(kw_only=True)
class Credential:
    """The real credential."""

    secret: str = attrs.field(repr=False)
    style: CredentialStyle = CredentialStyle.AUTO

    def header(self, dialect: Dialect) -> tuple[bytes, bytes]:
        """Return the header that holds it."""
        is_key = self.style is CredentialStyle.X_API_KEY or (
            self.style is CredentialStyle.AUTO and dialect is Dialect.ANTHROPIC
        )
        if is_key:
            return b"x-api-key", self.secret.encode()
        return b"authorization", b"Bearer " + self.secret.encode()


@attrs.frozen
class UpstreamFailed(Exception):
    """No answer came, or it broke off; `end` says which."""

    end: CallEnd
    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class UpstreamAnswer:
    """The head of an answer; its body comes as the upstream sends it."""

    status: int
    headers: Headers
    """What is passed back; names are in lower case."""
    is_stream: bool
    """Whether it is a stream of events."""
    pieces: AsyncIterator[bytes]
    """Raises `UpstreamFailed` when it breaks off."""

    def header(self, name: bytes) -> str:
        """Return a header's value; empty when there is none."""
        return next((v.decode("latin-1") for n, v in self.headers if n == name), "")


@attrs.frozen(kw_only=True)
class ModelUpstream:
    """Where the model's server is."""

    base_url: str
    """Without the models' own paths, that is without `/v1`."""
    credential: Credential | None = None
    """None: the upstream wants none, and gets none."""
    silence_seconds: float = SILENCE_SECONDS

    def line(self) -> "UpstreamLine":
        """Return a line for one session, which is to be closed."""
        limits = httpx.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=KEEP_ALIVE_SECONDS,
        )
        http = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)
        return UpstreamLine(self, http)


@attrs.frozen
class UpstreamLine:
    """One session's connections and cookies."""

    _upstream: ModelUpstream
    _http: httpx.AsyncHTTPTransport
    _jar: httpx.Cookies = attrs.field(factory=httpx.Cookies, init=False)

    @asynccontextmanager
    async def ask(
        self,
        method: str,
        target: bytes,
        *,
        dialect: Dialect,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
    ) -> AsyncGenerator[UpstreamAnswer]:
        """Pass a request on; leaving the block cancels what still comes.

        `target` is path and query as they were sent, below the upstream's address.

        Raises:
            UpstreamFailed: No answer came.
        """
        request = self._request(method, target, dialect, headers, body)
        try:
            answer = await self._http.handle_async_request(request)
        except httpx.TransportError as fault:
            raise self._failed(fault) from fault
        answer.request = request
        try:
            self._keep_cookies(answer)
            yield self._answer(answer)
        finally:
            with anyio.CancelScope(shield=True):
                await answer.aclose()

    async def aclose(self) -> None:
        """Close its connections and forget its cookies."""
        await self._http.aclose()

    def cover(self) -> Cover:
        """Return what covers the real credential in an answer's body."""
        credential = self._upstream.credential
        return Cover(credential.secret if credential else "")

    def _request(
        self,
        method: str,
        target: bytes,
        dialect: Dialect,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
    ) -> httpx.Request:
        url = httpx.URL(self._upstream.base_url)
        base = url.raw_path.rstrip(b"/")
        passed = [(n, v) for n, v in headers if n.lower() not in _NOT_PASSED_ON]
        # Compressed, neither usage nor a repeated credential could be seen.
        passed.append((b"accept-encoding", b"identity"))
        if self._upstream.credential is not None:
            passed.append(self._upstream.credential.header(dialect))
        if body or method in {"POST", "PUT", "PATCH"}:
            passed.append((b"content-length", str(len(body)).encode()))
        seconds = {
            "connect": CONNECT_SECONDS,
            "pool": CONNECT_SECONDS,
            "write": SEND_SECONDS,
            "read": self._upstream.silence_seconds,
        }
        request = httpx.Request(
            method,
            url,
            headers=[(b"host", url.netloc), *passed],
            stream=httpx.ByteStream(body),
            # The target is the caller's own bytes: no URL is made of them.
            extensions={"target": base + target, "timeout": seconds},
        )
        self._jar.set_cookie_header(request)
        return request

    def _keep_cookies(self, answer: httpx.Response) -> None:
        self._jar.extract_cookies(answer)
        if len(list(self._jar.jar)) > COOKIES_MAX:
            self._jar.clear()

    def _answer(self, answer: httpx.Response) -> UpstreamAnswer:
        encoding = answer.headers.get("content-encoding", "identity").strip().lower()
        dropped = _NOT_PASSED_BACK
        if encoding in _DECODED:
            dropped = dropped | {b"content-encoding", b"content-length"}
        elif encoding not in {"", "identity"}:
            reason = f"its answer is in the encoding {encoding[:40]!r}"
            raise UpstreamFailed(CallEnd.UPSTREAM_FAILED, reason)
        cover = self.cover()
        kind = answer.headers.get("content-type", "")
        return UpstreamAnswer(
            status=answer.status_code,
            headers=[
                (name.lower(), cover.covered(value))
                for name, value in answer.headers.raw
                if name.lower() not in dropped
            ],
            is_stream=kind.partition(";")[0].strip().lower() == "text/event-stream",
            pieces=self._pieces(answer, is_decoded=encoding in _DECODED),
        )

    async def _pieces(
        self, answer: httpx.Response, *, is_decoded: bool
    ) -> AsyncIterator[bytes]:
        cover = self.cover()
        try:
            if is_decoded:
                async for piece in answer.aiter_bytes():
                    yield cover.feed(piece)
            else:
                async for piece in answer.aiter_raw():
                    yield cover.feed(piece)
        except httpx.DecodingError as fault:
            raise UpstreamFailed(CallEnd.CUT, "its answer cannot be decoded") from fault
        except httpx.TransportError as fault:
            raise self._failed(fault, has_begun=True) from fault
        yield cover.end()

    def _failed(
        self, fault: httpx.TransportError, *, has_begun: bool = False
    ) -> UpstreamFailed:
        """Tell what broke, without a word that an upstream or its address chose."""
        if isinstance(fault, httpx.ReadTimeout):
            seconds = self._upstream.silence_seconds
            return UpstreamFailed(
                CallEnd.SILENT, f"the model's server said nothing for {seconds:g} s"
            )
        if has_begun:
            return UpstreamFailed(
                CallEnd.CUT, "the model's server broke off its answer"
            )
        if isinstance(fault, httpx.ConnectError | httpx.ConnectTimeout):
            return UpstreamFailed(
                CallEnd.UNREACHABLE, "the model's server cannot be reached"
            )
        return UpstreamFailed(
            CallEnd.CUT, "the model's server closed the connection without an answer"
        )


def is_address(url: str) -> bool:
    """Return whether a model's server can be there: http or https, and a host."""
    parts = urlsplit(url)
    return (
        parts.scheme in {"http", "https"}
        and bool(parts.hostname)
        and not (parts.username or parts.password or parts.query or parts.fragment)
    )
