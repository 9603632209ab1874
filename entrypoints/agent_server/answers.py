# SPDX-License-Identifier: Apache-2.0
"""What the agent server answers when something is not as asked.

The texts of conflicts are NeMo Gym's, for whoever matches them; beside each stands our
own stable `kind`, and the session's state.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import JSONResponse

from ...domain.agent_sessions import (
    EpisodeMismatch,
    SeedConflict,
    SessionIsClosed,
    SessionIsClosing,
    SessionUnknown,
)
from ...domain.digests import Json
from ...domain.refusals import Refusal
from ...domain.tasks import BadName
from ...ports.required.faults import Fault
from ...ports.required.harness import RequestRefused
from ..http_statuses import status_of
from .bodies import BodyRefused, wrong_value
from .messages import place_of

log = logging.getLogger(__name__)

CONFLICT: Final = 409
UNREADABLE: Final = 422
SERVER_ERROR: Final = 500
RETRY_SECONDS: Final = 5
"""When a client that is told to come back later should do so."""
_COME_BACK: Final = (429, 503)

BOUND: Final = "agent_session_id is already bound to another seed request"
CLOSING: Final = "Agent session is closing"
CLOSED: Final = "Agent session is already closed"
UNKNOWN: Final = "Unknown or closing agent_session_id"
OTHER_EPISODE: Final = "episode_id does not match the seeded agent session"
OTHER_COOKIE: Final = "agent_session_id does not match the session cookie"

Texts = Mapping[type[Exception], str]
"""What a refusal is called on a route."""

SEEDING: Final[Texts] = {
    SeedConflict: BOUND,
    SessionIsClosing: CLOSING,
    SessionIsClosed: CLOSED,
}
ACTIVATING: Final[Texts] = {
    SessionUnknown: UNKNOWN,
    SessionIsClosing: UNKNOWN,
    SessionIsClosed: UNKNOWN,
}
CLOSING_IT: Final[Texts] = {EpisodeMismatch: OTHER_EPISODE}


def conflict(text: str, kind: str, state: str, reason: str = "") -> JSONResponse:
    """Return a conflict in NeMo Gym's words."""
    told = {"detail": text, "kind": kind, "state": state}
    return JSONResponse({**told, "reason": reason} if reason else told, CONFLICT)


def unreadable(refused: BodyRefused) -> JSONResponse:
    """Return what is wrong with a body."""
    mistakes = [mistake.told() for mistake in refused.mistakes]
    return JSONResponse({"detail": mistakes}, UNREADABLE)


def not_done(
    error: Refusal | Fault, *, found: Json = None, masked: Callable[[str], str] = str
) -> JSONResponse:
    """Return what a refusal or a fault comes to.

    `found` is the body that it is about; `masked` covers secrets.
    """
    if isinstance(error, RequestRefused):
        place = place_of(error.field)
        return unreadable(wrong_value(place, error.reason, _at(found, place)))
    if isinstance(error, BadName):
        return unreadable(wrong_value((error.field,), str(error), error.value))
    status = status_of(error)
    headers = {"retry-after": str(RETRY_SECONDS)} if status in _COME_BACK else None
    if status >= SERVER_ERROR:
        log.error("Answered with %d: %s", status, error)
    told = {"detail": masked(str(error)), "kind": error.kind}
    return JSONResponse(told, status, headers=headers)


def _at(found: Json, place: tuple[str | int, ...]) -> Json:
    for step in place:
        if isinstance(found, Mapping) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return None
    return found
