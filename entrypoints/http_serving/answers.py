# SPDX-License-Identifier: Apache-2.0
"""What a server answers when something is not as asked.

The texts of conflicts are NeMo Gym's where it has some, for whoever matches them;
beside each stands our own stable `kind`, and the session's state.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from ...domain.digests import Json
from ...domain.refusals import Refusal
from ...domain.tasks import BadName
from ...ports.required.faults import Fault
from ...ports.required.harness import RequestRefused
from ..http_statuses import status_of
from .bodies import BodyRefused, wrong_value

log = logging.getLogger(__name__)

CONFLICT: Final = 409
UNREADABLE: Final = 422
SERVER_ERROR: Final = 500
RETRY_SECONDS: Final = 5
"""When a client that is told to come back later should do so."""
REQUEST_ROOT: Final = "responses_create_params"
"""How a harness calls the body of an activation when it names a field."""
_COME_BACK: Final = (429, 503)

Texts = Mapping[type[Exception], str]
"""What a refusal is called on a route."""

KINDS: Final[Mapping[int, str]] = {
    401: "unauthorized",
    404: "path_unknown",
    405: "method_not_allowed",
    408: "body_too_slow",
    413: "body_too_long",
}
"""What is refused before a handler is reached, by its status."""
_OTHER_KIND: Final = "refused"


def refused(
    status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return what a client is told that does not get what it asks for."""
    return JSONResponse({"detail": detail, "kind": kind}, status, headers=headers)


def refused_by_http(error: HTTPException) -> JSONResponse:
    """Return the answer to what Starlette refuses, or we as it does."""
    kind = KINDS.get(error.status_code, _OTHER_KIND)
    return refused(error.status_code, kind, error.detail, error.headers)


class JsonAnswer(JSONResponse):
    """An answer with words of others, of a model say.

    Half of a surrogate pair in them goes out as the escape that stands for it: the text
    was cut there by somebody else, and the answer is none the worse.
    """

    def render(self, content: Any) -> bytes:
        """Return the content as JSON."""
        text = json.dumps(
            content, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        return text.encode("utf-8", "backslashreplace")


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
    return refused(status, error.kind, masked(str(error)), headers)


def place_of(field: str) -> tuple[str | int, ...]:
    """Return where in a body a field is that a harness names."""
    plain = field.removeprefix(f"{REQUEST_ROOT}.")
    parts = plain.replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdecimal() else part for part in parts if part)


def _at(found: Json, place: tuple[str | int, ...]) -> Json:
    for step in place:
        if isinstance(found, Mapping) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return None
    return found
