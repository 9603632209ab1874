# SPDX-License-Identifier: Apache-2.0
"""Failure words: a reason is short, and says when it was cut."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from livery.domain import failures
from livery.domain.failures import (
    CANCELLED,
    REASON_CHARACTERS_MAX,
    Failure,
    Stage,
    clipped,
)

NEMO_GYM_KINDS = frozenset(
    [
        "transport_unreachable",
        "transport_peer_drop",
        "transport_timeout",
        "transport_local_resource",
        "agent_run_error",
        "agent_request_failed",
        "agent_timeout",
        "agent_command_not_allowed",
        "judge_failed",
        "judge_unparseable",
        "verifier_error",
        "provider_unavailable",
        "provider_quota_exhausted",
        "provider_oom_killed",
        "session_lost",
        "session_expired",
        "session_release_failed",
        "cancelled",
        "kill_shaped",
        "shutdown",
        "persistence_failed",
        "cohort_incomplete",
    ]
)


@given(length=st.integers(0, 3 * REASON_CHARACTERS_MAX))
@example(length=REASON_CHARACTERS_MAX)
@example(length=REASON_CHARACTERS_MAX + 1)
def test_a_reason_is_whole_or_says_how_long_it_was(length: int) -> None:
    text = "".join(chr(97 + number % 26) for number in range(length))

    told = clipped(text)

    assert len(told) <= REASON_CHARACTERS_MAX
    if length <= REASON_CHARACTERS_MAX:
        assert told == text
    else:
        assert text.startswith(told[: told.index(" [")])
        assert str(length) in told


def test_a_failures_reason_is_cut_when_it_is_made() -> None:
    failure = Failure(
        stage=Stage.SEED, kind=CANCELLED, reason="x" * 9000, terminal=False
    )

    assert len(failure.reason) == REASON_CHARACTERS_MAX


@pytest.mark.case("FC-247")
def test_kinds_are_nemo_gyms_or_carry_our_name() -> None:
    kinds = [
        value
        for name, value in vars(failures).items()
        if name.isupper() and isinstance(value, str)
    ]

    assert len(kinds) >= 18
    assert len(set(kinds)) == len(kinds)
    for kind in kinds:
        assert kind in NEMO_GYM_KINDS or kind.startswith("livery:")


def test_stages_are_nemo_gyms() -> None:
    assert [stage.value for stage in Stage] == [
        "admission",
        "seed",
        "agent",
        "verification",
        "cleanup",
    ]
