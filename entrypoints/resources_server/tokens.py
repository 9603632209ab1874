# SPDX-License-Identifier: Apache-2.0
"""The token of each session: what an agent shows, and what tells nothing to it.

A token is made of the session's id with the deployment's secret, so it is the same
after a restart; it holds no word that could be read out of it.
"""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Iterable

import attrs

from ...domain.resources_sessions import ResourcesSessionId

TOKEN_CHARACTERS = 40
AUTHORIZATION = "Authorization"
BEARER = "Bearer "


@attrs.frozen
class SessionTokens:
    """The tokens of the sessions that this process serves."""

    _secret: str = attrs.field(repr=False)
    header: str = AUTHORIZATION
    """Carries the token; with `Bearer ` before it where it is `Authorization`."""
    _sessions: dict[str, ResourcesSessionId] = attrs.field(
        factory=dict[str, ResourcesSessionId], init=False, repr=False
    )

    def __len__(self) -> int:
        """Return how many sessions are known by a token."""
        return len(self._sessions)

    def token(self, session: ResourcesSessionId) -> str:
        """Return the session's token, and know it from now on."""
        token = self._made(session)
        self._sessions[token] = session
        return token

    def headers(self, session: ResourcesSessionId) -> dict[str, str]:
        """Return the headers that carry the session's token."""
        return {self.header: f"{self._scheme}{self.token(session)}"}

    def shown(self, value: str | None) -> ResourcesSessionId | None:
        """Return whose token the header's value carries."""
        if value is None or not value.startswith(self._scheme):
            return None
        return self.session(value[len(self._scheme) :])

    def learn(self, sessions: Iterable[ResourcesSessionId]) -> None:
        """Know the tokens of sessions that another process has seeded."""
        for session in sessions:
            self.token(session)

    def session(self, token: str | None) -> ResourcesSessionId | None:
        """Return whose token it is."""
        return None if token is None else self._sessions.get(token)

    def forget(self, session: ResourcesSessionId) -> None:
        """Know the session's token no more."""
        self._sessions.pop(self._made(session), None)

    @property
    def _scheme(self) -> str:
        return BEARER if self.header.lower() == AUTHORIZATION.lower() else ""

    def _made(self, session: ResourcesSessionId) -> str:
        digest = hmac.new(
            self._secret.encode(), f"session {session}".encode(), hashlib.sha256
        ).digest()
        return urlsafe_b64encode(digest).decode()[:TOKEN_CHARACTERS]
