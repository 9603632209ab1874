# SPDX-License-Identifier: Apache-2.0
"""Scoring truth: who is at fault, decided from evidence, in one place.

An infrastructure failure is never a score: the sample is masked and says why.
A fault of the agent is never masked: it is a measured reward, 0 if need be.
The grader vouches for its own end with a mark that is fresh for each run. Without
the mark the graded work ended the grader early or hung it, which is the agent's;
with the mark but without a readable reward the grader itself is broken.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from .activations import Outcome
from .digests import Json
from .failures import (
    AGENT_REQUEST_FAILED,
    CANCELLED,
    PROVIDER_OOM_KILLED,
    PROVIDER_UNAVAILABLE,
    SESSION_LOST,
    VERIFIER_ERROR,
    FailureKind,
    clipped,
)


class GraderEnd(StrEnum):
    """How the grader's command ended, as the sandbox told."""

    ENDED = "ended"
    """By itself or by a signal of its own making."""
    TIMED_OUT = "timed out"
    LOST = "lost"
    """The sandbox ended under it."""
    UNSEEN = "unseen"
    """Nobody saw how it ended, each time it was tried, in sandboxes that lived on:
    nothing but the graded work was there to end what supervised it."""
    NO_WORK = "no work"
    """The agent left nothing that can be taken out of its sandbox and graded: it ended
    or removed what that needs, or its workspace is larger than is taken out."""
    OUT_OF_MEMORY = "out of memory"
    """The sandbox's own memory limit ended the sandbox."""
    NOT_STARTED = "not started"


@attrs.frozen(kw_only=True)
class GraderEvidence:
    """What was seen of the grader."""

    end: GraderEnd
    marked: bool = False
    """Whether its output ended with this run's mark."""
    reward: float | None = None
    """What it gave, read as the task says; None when unreadable."""
    reason: str = ""
    details: Mapping[str, Json] = attrs.field(factory=dict[str, Json])
    """What else it told, for the result; no part of the verdict."""


@attrs.frozen(kw_only=True)
class Evidence:
    """All that a verdict rests on."""

    outcome: Outcome
    """How the activation ended."""
    upstream_failed: bool = False
    """Whether the model's side failed, by the gateway's own record."""
    provider_failure: str = ""
    """How the sandbox's provider hindered the agent's tool calls, if it did."""
    grader: GraderEvidence | None = None
    """None when there was nothing left to grade."""
    reason: str = ""


@attrs.frozen(kw_only=True)
class Verdict:
    """The reward and whether it measures the agent."""

    reward: float
    masked: bool = False
    failure_kind: FailureKind | None = None
    failure_reason: str | None = None


REWARD_OF_NOTHING: Final = 0.0


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict that the evidence supports, and no more."""
    if (nothing := unmeasured(evidence)) is not None:
        return nothing
    if evidence.grader is None:
        return _masked(VERIFIER_ERROR, evidence.reason or "nothing was graded")
    return _of_grader(evidence.grader)


def unmeasured(evidence: Evidence) -> Verdict | None:
    """Return the verdict on a turn that says nothing of the agent, whatever is graded.

    None for every other.
    """
    if evidence.outcome is Outcome.CANCELLED:
        return _masked(CANCELLED, evidence.reason or "the activation was cancelled")
    if evidence.outcome is Outcome.SANDBOX_ERROR:
        return _masked(SESSION_LOST, evidence.reason or "the agent's sandbox was lost")
    if evidence.outcome is Outcome.OOM:
        return _masked(
            PROVIDER_OOM_KILLED, evidence.reason or "the sandbox ran out of memory"
        )
    if evidence.upstream_failed:
        return _masked(AGENT_REQUEST_FAILED, evidence.reason or "the model failed")
    if evidence.provider_failure:
        return _masked(PROVIDER_UNAVAILABLE, evidence.provider_failure)
    return None


def _of_grader(grader: GraderEvidence) -> Verdict:
    match grader.end:
        case GraderEnd.LOST:
            return _masked(PROVIDER_UNAVAILABLE, grader.reason or "grader lost")
        case GraderEnd.OUT_OF_MEMORY:
            return _masked(PROVIDER_OOM_KILLED, grader.reason or "out of memory")
        case GraderEnd.NOT_STARTED:
            return _masked(VERIFIER_ERROR, grader.reason or "grader not started")
        case GraderEnd.TIMED_OUT:
            return Verdict(
                reward=REWARD_OF_NOTHING, failure_reason="the grader timed out"
            )
        case GraderEnd.UNSEEN:
            return Verdict(
                reward=REWARD_OF_NOTHING,
                failure_reason="what supervised the grader was ended, each time",
            )
        case GraderEnd.NO_WORK:
            return Verdict(
                reward=REWARD_OF_NOTHING,
                failure_reason=clipped(grader.reason or "no work could be taken out"),
            )
        case GraderEnd.ENDED:
            return _of_ended_grader(grader)


def _of_ended_grader(grader: GraderEvidence) -> Verdict:
    if not grader.marked:
        return Verdict(
            reward=REWARD_OF_NOTHING,
            failure_reason="the grader was ended before its end mark",
        )
    if grader.reward is None or not math.isfinite(grader.reward):
        return _masked(VERIFIER_ERROR, grader.reason or "the reward is unreadable")
    return Verdict(reward=grader.reward)


def _masked(kind: FailureKind, reason: str) -> Verdict:
    return Verdict(
        reward=REWARD_OF_NOTHING,
        masked=True,
        failure_kind=kind,
        failure_reason=clipped(reason),
    )
