# SPDX-License-Identifier: Apache-2.0
"""What conflicts are called on the agent server's routes: NeMo Gym's own texts."""

from typing import Final

from ...domain.agent_sessions import (
    EpisodeMismatch,
    SeedConflict,
    SessionIsClosed,
    SessionIsClosing,
    SessionUnknown,
)
from ..http_serving.answers import Texts

BOUND: Final = "agent_session_id is already bound to another seed request"
CLOSING: Final = "Agent session is closing"
CLOSED: Final = "Agent session is already closed"
UNKNOWN: Final = "Unknown or closing agent_session_id"
OTHER_EPISODE: Final = "episode_id does not match the seeded agent session"
OTHER_COOKIE: Final = "agent_session_id does not match the session cookie"

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
