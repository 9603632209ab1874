# SPDX-License-Identifier: Apache-2.0
"""What participants in this process call what goes wrong."""

import pytest

from livery.domain.agent_sessions import SessionUnknown
from livery.domain.claims import BornExpired
from livery.domain.deciders import Instant
from livery.domain.failures import (
    AGENT_RUN_ERROR,
    PROVIDER_UNAVAILABLE,
    REQUEST_REFUSED,
    SESSION_LOST,
    FailureKind,
)
from livery.domain.refusals import Refusal
from livery.ports.provided.in_process_agent import _failed
from livery.ports.provided.in_process_resources import _failed as resources_failed
from livery.ports.provided.sandbox_programs import RuntimeMissing
from livery.ports.required.faults import Fault
from livery.ports.required.harness import RequestRefused
from livery.ports.required.participants import ParticipantFailed
from livery.ports.required.sandbox import SandboxFailed, SandboxLost


@pytest.mark.parametrize(
    ("error", "kind", "terminal"),
    [
        (SandboxLost("p", "s", "gone"), SESSION_LOST, False),
        (SandboxFailed("p", "s", "exec", "cut"), PROVIDER_UNAVAILABLE, False),
        (RequestRefused("h", "input", "no"), REQUEST_REFUSED, True),
        (SessionUnknown(phase="absent"), REQUEST_REFUSED, True),  # type: ignore[arg-type]
        (RuntimeMissing("python3", "none"), AGENT_RUN_ERROR, True),
    ],
)
def test_a_failure_has_its_kind(
    error: Fault | Refusal, kind: FailureKind, terminal: bool
) -> None:
    failed = _failed("activate", error)

    assert (failed.failure_kind, failed.terminal) == (kind, terminal)
    assert failed.reason == str(error)


def test_a_sandbox_that_came_too_late_is_asked_for_again() -> None:
    late = BornExpired(sandbox="s", at=Instant(2.0), expires_at=Instant(1.0))

    failed = resources_failed("seed", late)

    assert (failed.failure_kind, failed.terminal) == (SESSION_LOST, False)


def test_a_participant_s_own_failure_stays_as_it_is() -> None:
    told = ParticipantFailed("agent", "seed", AGENT_RUN_ERROR, "x", terminal=True)

    assert _failed("activate", told) is told
