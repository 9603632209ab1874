# SPDX-License-Identifier: Apache-2.0
"""What conflicts are called on the resources server's routes: NeMo Gym's own texts."""

from typing import Final

from starlette.responses import JSONResponse

from ...domain.refusals import Refusal
from ...domain.resources_sessions import (
    ResourcesConflict,
    ResourcesNotUsable,
    ResourcesPhase,
    ResourcesSessionId,
)
from ..http_serving.answers import conflict

BOUND: Final = "resources_session_id is already bound to another episode or task"
CLOSED: Final = "Resources session is already closed: {session}"
OTHER_EPISODE: Final = "episode_id does not match the seeded resources session"
UNKNOWN: Final = "Unknown or closing resources session"

CONFLICTS: Final = (ResourcesConflict, ResourcesNotUsable)
_ENDED: Final = (ResourcesPhase.CLOSING, ResourcesPhase.CLOSED)


def told(
    error: Refusal, session: ResourcesSessionId, phase: ResourcesPhase
) -> JSONResponse:
    """Return the answer to a conflict."""
    return conflict(_text(error, session), error.kind, phase)


def unknown() -> JSONResponse:
    """Return the answer to a cookie that names no open session."""
    return conflict(UNKNOWN, "session_unknown", ResourcesPhase.ABSENT)


def _text(error: Refusal, session: ResourcesSessionId) -> str:
    if isinstance(error, ResourcesConflict) and error.field == "seed":
        return BOUND
    if isinstance(error, ResourcesConflict) and error.field == "episode":
        return OTHER_EPISODE
    if isinstance(error, ResourcesNotUsable) and error.phase in _ENDED:
        return CLOSED.format(session=session)
    return str(error)
