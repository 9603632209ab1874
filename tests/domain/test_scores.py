# SPDX-License-Identifier: Apache-2.0
"""Scores: infrastructure is never a score, and the agent's fault is never masked."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.domain.activations import Outcome
from livery.domain.failures import (
    AGENT_REQUEST_FAILED,
    CANCELLED,
    PROVIDER_OOM_KILLED,
    PROVIDER_UNAVAILABLE,
    REASON_CHARACTERS_MAX,
    SESSION_LOST,
    VERIFIER_ERROR,
    FailureKind,
)
from livery.domain.scores import (
    Evidence,
    GraderEnd,
    GraderEvidence,
    judge,
)

BROKEN_OUTCOMES = (Outcome.CANCELLED, Outcome.SANDBOX_ERROR, Outcome.OOM)
AGENTS_OUTCOMES = tuple(each for each in Outcome if each not in BROKEN_OUTCOMES)
BROKEN_GRADERS = (GraderEnd.LOST, GraderEnd.OUT_OF_MEMORY, GraderEnd.NOT_STARTED)

REWARDS = st.one_of(st.none(), st.floats())
GRADERS = st.builds(
    GraderEvidence,
    end=st.sampled_from(GraderEnd),
    marked=st.booleans(),
    reward=REWARDS,
    reason=st.text(max_size=5),
)
EVIDENCE = st.builds(
    Evidence,
    outcome=st.sampled_from(Outcome),
    upstream_failed=st.booleans(),
    grader=st.one_of(st.none(), GRADERS),
    reason=st.one_of(st.text(max_size=5), st.just("x" * 3000)),
)


def readable(reward: float | None) -> bool:
    return reward is not None and math.isfinite(reward)


def infrastructure_failed(evidence: Evidence) -> bool:
    """Say so in other words than the code does."""
    grader = evidence.grader
    return (
        evidence.outcome in BROKEN_OUTCOMES
        or evidence.upstream_failed
        or grader is None
        or grader.end in BROKEN_GRADERS
        or (
            grader.end is GraderEnd.ENDED
            and grader.marked
            and not readable(grader.reward)
        )
    )


@pytest.mark.case("FC-248")
@given(evidence=EVIDENCE)
def test_masked_is_what_the_infrastructure_failed_and_nothing_else(
    evidence: Evidence,
) -> None:
    verdict = judge(evidence)

    assert verdict.masked is infrastructure_failed(evidence)


@pytest.mark.case("FC-247")
@pytest.mark.case("FC-248")
@given(evidence=EVIDENCE)
def test_a_masked_sample_has_no_reward_and_names_what_failed(
    evidence: Evidence,
) -> None:
    verdict = judge(evidence)

    assert (verdict.failure_kind is not None) is verdict.masked
    assert math.isfinite(verdict.reward)
    if verdict.masked:
        assert verdict.reward == 0.0
        assert verdict.failure_reason
        assert len(verdict.failure_reason) <= REASON_CHARACTERS_MAX


@given(evidence=EVIDENCE)
def test_a_reward_other_than_0_was_given_under_the_graders_mark(
    evidence: Evidence,
) -> None:
    verdict = judge(evidence)

    if verdict.reward != 0.0:
        assert evidence.grader is not None
        assert evidence.grader.marked
        assert evidence.grader.end is GraderEnd.ENDED
        assert verdict.reward == evidence.grader.reward


@pytest.mark.parametrize("outcome", AGENTS_OUTCOMES)
@given(reward=st.floats(allow_nan=False, allow_infinity=False))
def test_what_an_agent_left_is_graded_however_it_ended(
    outcome: Outcome, reward: float
) -> None:
    grader = GraderEvidence(end=GraderEnd.ENDED, marked=True, reward=reward)

    verdict = judge(Evidence(outcome=outcome, grader=grader))

    assert (verdict.reward, verdict.masked) == (reward, False)


@pytest.mark.parametrize("end", [GraderEnd.ENDED, GraderEnd.TIMED_OUT])
@pytest.mark.parametrize("reward", [None, 1.0])
def test_work_that_ends_or_hangs_its_grader_gets_0_and_is_measured(
    end: GraderEnd, reward: float | None
) -> None:
    grader = GraderEvidence(end=end, marked=False, reward=reward)

    verdict = judge(Evidence(outcome=Outcome.COMPLETED, grader=grader))

    assert (verdict.reward, verdict.masked) == (0.0, False)
    assert verdict.failure_reason


@pytest.mark.case("FC-247")
@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        (Evidence(outcome=Outcome.CANCELLED), CANCELLED),
        (Evidence(outcome=Outcome.SANDBOX_ERROR), SESSION_LOST),
        (Evidence(outcome=Outcome.OOM), PROVIDER_OOM_KILLED),
        (
            Evidence(outcome=Outcome.FAILED, upstream_failed=True),
            AGENT_REQUEST_FAILED,
        ),
        (Evidence(outcome=Outcome.COMPLETED), VERIFIER_ERROR),
        *(
            (
                Evidence(
                    outcome=Outcome.COMPLETED,
                    grader=GraderEvidence(end=end, marked=True, reward=reward),
                ),
                kind,
            )
            for end, reward, kind in (
                (GraderEnd.LOST, 1.0, PROVIDER_UNAVAILABLE),
                (GraderEnd.OUT_OF_MEMORY, 1.0, PROVIDER_OOM_KILLED),
                (GraderEnd.NOT_STARTED, 1.0, VERIFIER_ERROR),
                (GraderEnd.ENDED, None, VERIFIER_ERROR),
                (GraderEnd.ENDED, math.nan, VERIFIER_ERROR),
                (GraderEnd.ENDED, math.inf, VERIFIER_ERROR),
            )
        ),
    ],
)
def test_each_boundary_that_fails_is_named(
    evidence: Evidence, kind: FailureKind
) -> None:
    verdict = judge(evidence)

    assert (verdict.masked, verdict.failure_kind) == (True, kind)


def test_the_reason_that_was_seen_is_told() -> None:
    assert judge(
        Evidence(outcome=Outcome.CANCELLED, reason="Ctrl-C")
    ).failure_reason == ("Ctrl-C")
