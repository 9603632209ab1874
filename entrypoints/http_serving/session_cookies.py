# SPDX-License-Identifier: Apache-2.0
"""The cookie that names a session: signed like that of Starlette's SessionMiddleware.

It is set again on every reply, so that a client that takes a reply's cookies for all
there are keeps it. A cookie of another make, or one that is too old, is as good as none.
"""

import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import cached_property
from typing import Final, cast

import attrs
from itsdangerous import BadSignature, TimestampSigner
from starlette.requests import Request
from starlette.responses import Response

MAX_AGE_SECONDS: Final = 14 * 24 * 3600

_VISITOR: Final = "session_id"


@attrs.frozen
class Visitor:
    """Who asks, as far as the cookie tells."""

    visitor: str
    session: str | None = None
    """The session that the cookie names."""


@attrs.frozen
class SessionCookies:
    """Reads and sets the cookie of one server."""

    name: str
    _secret: str = attrs.field(repr=False)
    key: str = attrs.field(kw_only=True)
    """What the payload calls the session."""

    def read(self, request: Request) -> Visitor:
        """Return who asks; somebody new without a cookie of ours."""
        value = request.cookies.get(self.name)
        found = self._payload(value or "")
        visitor, session = found.get(_VISITOR), found.get(self.key)
        return Visitor(
            visitor if isinstance(visitor, str) else str(uuid.uuid4()),
            session if isinstance(session, str) else None,
        )

    def set(self, response: Response, visitor: Visitor) -> None:
        """Set the cookie on a reply."""
        payload: dict[str, str] = {_VISITOR: visitor.visitor}
        if visitor.session is not None:
            payload[self.key] = visitor.session
        value = self._signer.sign(b64encode(json.dumps(payload).encode())).decode()
        response.headers["vary"] = "Cookie"
        response.headers.append(
            "set-cookie",
            f"{self.name}={value}; path=/; Max-Age={MAX_AGE_SECONDS}; httponly;"
            " samesite=lax",
        )

    def _payload(self, value: str) -> Mapping[str, object]:
        try:
            text, signed = self._signer.unsign(value, return_timestamp=True)
            found: object = json.loads(b64decode(text))
        except (BadSignature, ValueError):
            return {}
        # Asked for `max_age`, the signer takes one that is from later than now for a
        # forgery, and so is each of another host, or of before a clock was set back.
        if self._signer.get_timestamp() - signed.timestamp() > MAX_AGE_SECONDS:
            return {}
        return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}

    @cached_property
    def _signer(self) -> TimestampSigner:
        return TimestampSigner(self._secret)
