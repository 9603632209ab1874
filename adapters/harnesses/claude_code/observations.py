# SPDX-License-Identifier: Apache-2.0
"""The bundle of observations: invocations, tool calls, compactions, the sandbox.

What could not be seen is a gap with a code, and a run of which everything was seen
has none.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ....domain.activations import Outcome
from ....domain.digests import Json
from ....ports.required.harness import Capture, Observations, ToolAccess
from ....ports.required.sandbox import Exited, ExitUnknown, Lost
from ..readings import (
    END_NOT_OBSERVED,
    INVOCATION_ID,
    INVOCATION_STATUS,
    OUTPUT_CUT,
    TOOL_CALLS_NOT_OBSERVED,
)
from .outcomes import Verdict
from .stream import Stream
from .trace import Compaction, Invocation, ToolCall, Trace

SUBAGENT_ANSWER_NOT_OBSERVED: Final = "subagent_not_observed"
TOOL_SERVER_UNREACHABLE: Final = "tool_server_unreachable"
TRANSCRIPT_NOT_OBSERVED: Final = "transcript_not_observed"
UNKNOWN_EVENTS: Final = "unknown_events"
UNREADABLE_OUTPUT: Final = "unreadable_output"
USAGE_NOT_OBSERVED: Final = "usage_not_observed"

_CALL_STATUS: Final[Mapping[Outcome, str]] = {
    Outcome.CANCELLED: "cancelled",
    Outcome.TIMEOUT: "timeout",
}
"""Of a tool call that was under way when the run ended so."""
_SANDBOX_OUTCOME: Final[Mapping[Outcome, str]] = {Outcome.INCOMPLETE: "completed"}


def observations_of(
    source: str,
    capture: Capture,
    trace: Trace,
    stream: Stream,
    verdict: Verdict,
    *,
    granted: tuple[ToolAccess, ...],
    transcript: Stream,
    has_usage: bool,
) -> Observations:
    """Return everything that was seen, and what was not."""
    gaps = _gaps(
        capture,
        trace,
        stream,
        verdict,
        granted=granted,
        transcript=transcript,
        has_usage=has_usage,
    )
    return Observations(
        source=source,
        records=(
            *(_invocation(one, capture, verdict) for one in trace.invocations.values()),
            *(_tool_call(one, capture, verdict) for one in trace.tool_calls.values()),
            *map(_compaction, trace.compactions),
            *_sandbox(capture, verdict),
        ),
        gaps=tuple(
            {"code": code, "invocation_id": INVOCATION_ID, "detail": detail}
            for code, detail in gaps
        ),
    )


def _invocation(
    one: Invocation, capture: Capture, verdict: Verdict
) -> Mapping[str, Json]:
    is_root = one.id == INVOCATION_ID
    status, duration, error = one.status, one.duration_ms, None
    if is_root:
        status = INVOCATION_STATUS[verdict.outcome]
        ran = capture.how is not None
        duration = capture.duration_seconds * 1000 if ran else None
        error = verdict.error_type
    return {
        "kind": "agent_invocation",
        "invocation_id": one.id,
        "parent_invocation_id": one.parent,
        "spawned_by_tool_call_id": one.spawned_by,
        "status": status,
        "duration_ms": duration,
        "error_type": error,
        "model_calls": [
            {"model_call_id": call, "model_ref": None, "response_id": None}
            for call in one.calls
        ],
        "conversation": [dict(item) for item in one.items],
    }


def _tool_call(
    call: ToolCall, capture: Capture, verdict: Verdict
) -> Mapping[str, Json]:
    status = call.status
    if not call.is_answered:
        status = _CALL_STATUS.get(verdict.outcome, "incomplete")
    known = call.started_at is not None and call.completed_at is not None
    duration = (call.completed_at or 0) - (call.started_at or 0)
    return {
        "kind": "tool_call",
        "invocation_id": call.invocation,
        "tool_call_id": call.id,
        "sandbox_id": capture.sandbox_id or None,
        "tool_name": call.name or None,
        "started_at": call.started_at,
        "completed_at": call.completed_at,
        "duration_ms": duration * 1000 if known else None,
        "timing_source": "harness" if call.started_at is not None else None,
        "status": status,
        "error_type": call.error_type,
    }


def _compaction(one: Compaction) -> Mapping[str, Json]:
    return {
        "kind": "context_compaction",
        "invocation_id": one.invocation,
        "observed_at": one.at,
        "trigger": one.trigger,
        "tokens_before": one.tokens_before,
        "tokens_after": one.tokens_after,
        "outcome": "completed",
        "summary": None,
        "first_kept_item_id": None,
        "before_model_call": None,
        "model_calls": [],
        "after_model_call": None,
    }


def _sandbox(capture: Capture, verdict: Verdict) -> Iterator[Mapping[str, Json]]:
    if capture.how is None:
        return
    outcome = verdict.outcome
    yield {
        "kind": "sandbox",
        "role": "agent",
        "provider": capture.provider or None,
        "sandbox_id": capture.sandbox_id or None,
        "outcome": _SANDBOX_OUTCOME.get(outcome, outcome.value),
        "exit_code": capture.how.code if isinstance(capture.how, Exited) else None,
        "wall_time_s": capture.duration_seconds,
        "cpu_time_s": None,
        "peak_memory_mib": None,
        "resource_usage_source": None,
        "error_type": verdict.error_type,
    }


def _gaps(
    capture: Capture,
    trace: Trace,
    stream: Stream,
    verdict: Verdict,
    *,
    granted: tuple[ToolAccess, ...],
    transcript: Stream,
    has_usage: bool,
) -> Iterator[tuple[str, str]]:
    if capture.how is None:
        return
    left_out = stream.dropped or stream.too_many or stream.is_cut
    if left_out:
        told = f"{stream.dropped} bytes and {stream.too_many} events are left out"
        if stream.is_cut:
            told += ", and the last line was not finished"
        yield OUTPUT_CUT, told
    if stream.unreadable:
        yield UNREADABLE_OUTPUT, f"{stream.unreadable} lines are no JSON object"
    if stream.unknown:
        kinds = ", ".join(f"{name}: {n}" for name, n in sorted(stream.unknown.items()))
        yield UNKNOWN_EVENTS, kinds[:500]
    if isinstance(capture.how, Lost) or (
        isinstance(capture.how, ExitUnknown) and capture.ended_early is None
    ):
        yield END_NOT_OBSERVED, verdict.reason or capture.how.reason
    if not trace.has_begun:
        yield TOOL_CALLS_NOT_OBSERVED, "the program told nothing of what it did"
    lacks = bool(transcript.dropped or transcript.too_many)
    if trace.has_begun and (left_out or not trace.results):
        if not transcript.events:
            told = "there is no transcript to fill what is missing"
            yield TRANSCRIPT_NOT_OBSERVED, told
        elif lacks:
            yield (
                TRANSCRIPT_NOT_OBSERVED,
                (
                    f"{transcript.dropped} bytes and {transcript.too_many} events of the"
                    " transcript are left out too"
                ),
            )
    if trace.root.calls and not has_usage:
        yield USAGE_NOT_OBSERVED, "neither a result nor the transcript tells the usage"
    elif trace.root.calls and lacks and not trace.results:
        yield USAGE_NOT_OBSERVED, "a part of the transcript, which told it, is left out"
    for invocation in trace.invocations.values():
        if invocation.id != INVOCATION_ID and invocation.last_told != "model":
            yield SUBAGENT_ANSWER_NOT_OBSERVED, f"{invocation.id} told no answer"
    yield from _unreachable(trace, granted)


def _unreachable(
    trace: Trace, granted: tuple[ToolAccess, ...]
) -> Iterator[tuple[str, str]]:
    needed = {access.name for access in granted if access.required}
    for name, status in trace.servers.items():
        if status == "failed" and name not in needed:
            yield TOOL_SERVER_UNREACHABLE, f"the tool server {name} was not reached"
