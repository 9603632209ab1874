# SPDX-License-Identifier: Apache-2.0
"""Failure words: where an episode failed, how, and whether trying again can help.

The stages and kinds are NeMo Gym's vocabulary; kinds of our own are written
`livery:…`, which its readers accept.
"""

from enum import StrEnum
from typing import Final, NewType

import attrs

REASON_CHARACTERS_MAX: Final = 2000

FailureKind = NewType("FailureKind", str)


class Stage(StrEnum):
    """Where in the episode it failed."""

    ADMISSION = "admission"
    SEED = "seed"
    AGENT = "agent"
    VERIFICATION = "verification"
    CLEANUP = "cleanup"


TRANSPORT_UNREACHABLE: Final = FailureKind("transport_unreachable")
TRANSPORT_PEER_DROP: Final = FailureKind("transport_peer_drop")
TRANSPORT_TIMEOUT: Final = FailureKind("transport_timeout")
AGENT_RUN_ERROR: Final = FailureKind("agent_run_error")
AGENT_REQUEST_FAILED: Final = FailureKind("agent_request_failed")
AGENT_TIMEOUT: Final = FailureKind("agent_timeout")
VERIFIER_ERROR: Final = FailureKind("verifier_error")
PROVIDER_UNAVAILABLE: Final = FailureKind("provider_unavailable")
PROVIDER_QUOTA_EXHAUSTED: Final = FailureKind("provider_quota_exhausted")
PROVIDER_OOM_KILLED: Final = FailureKind("provider_oom_killed")
SESSION_LOST: Final = FailureKind("session_lost")
SESSION_EXPIRED: Final = FailureKind("session_expired")
SESSION_RELEASE_FAILED: Final = FailureKind("session_release_failed")
CANCELLED: Final = FailureKind("cancelled")
SHUTDOWN: Final = FailureKind("shutdown")
PERSISTENCE_FAILED: Final = FailureKind("persistence_failed")
INTERRUPTED: Final = FailureKind("livery:interrupted")
"""The run was cut off and could not be taken over; another attempt can help."""
REQUEST_REFUSED: Final = FailureKind("livery:request_refused")
"""A rule said no to what was asked; the same request will be refused again."""
QUEUE_TIMEOUT: Final = FailureKind("livery:queue_timeout")


def clipped(text: str) -> str:
    """Return `text`, or its beginning and how much of it is missing."""
    if len(text) <= REASON_CHARACTERS_MAX:
        return text
    note = f" [… cut, {len(text)} characters in all]"
    return text[: REASON_CHARACTERS_MAX - len(note)] + note


@attrs.frozen(kw_only=True)
class Failure:
    """Why an episode has no result."""

    stage: Stage
    kind: FailureKind
    reason: str = attrs.field(converter=clipped)
    """At most `REASON_CHARACTERS_MAX` characters, a cut told at its end."""
    terminal: bool
    """Whether trying again cannot help."""
