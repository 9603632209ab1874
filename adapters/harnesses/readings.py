# SPDX-License-Identifier: Apache-2.0
"""What harnesses read out of a capture in the same way: outcome, message, bundle.

The bundle of observations always has the invocation, and a gap for each thing that
the harness could not see.
"""

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from ...domain.activations import Outcome
from ...domain.digests import Json
from ...ports.provided.how_it_ended import is_out_of_memory, to_words
from ...ports.required.harness import Capture, Observations, Reading
from ...ports.required.sandbox import (
    Exited,
    ExitUnknown,
    Lost,
    NotStarted,
    Output,
    Signalled,
    TimedOut,
)

INVOCATION_ID: Final = "root"
MESSAGE_BYTES_MAX: Final = 64 * 1024
"""How much of the end of an output becomes the assistant's message."""
STDERR_CHARACTERS_MAX: Final = 300

MODEL_CALLS_NOT_OBSERVED: Final = "model_calls_not_observed"
TOOL_CALLS_NOT_OBSERVED: Final = "tool_calls_not_observed"
OUTPUT_CUT: Final = "output_cut"
END_NOT_OBSERVED: Final = "end_not_observed"

INVOCATION_STATUS: Final[Mapping[Outcome, str]] = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.OOM: "failed",
    Outcome.INCOMPLETE: "incomplete",
    Outcome.TIMEOUT: "incomplete",
    Outcome.CANCELLED: "incomplete",
    Outcome.SANDBOX_ERROR: "unknown",
}


def outcome_of_run(capture: Capture) -> Outcome:
    """Return how an activation that has a run ended, by the evidence.

    A command that could not be started is no work of the agent's, so that is the
    sandbox's failure.
    """
    if capture.stopped:
        return Outcome.CANCELLED
    match capture.how:
        case Exited(code=0):
            return Outcome.COMPLETED
        case Exited() | Signalled():
            return Outcome.FAILED
        case TimedOut():
            return Outcome.TIMEOUT
        case Lost():
            if is_out_of_memory(capture.how):
                return Outcome.OOM
            return Outcome.SANDBOX_ERROR
        case NotStarted() | ExitUnknown() | None:
            return Outcome.SANDBOX_ERROR
        case _:
            assert_never(capture.how)


def outcome_without_run(capture: Capture) -> Outcome:
    """Return how an activation that runs nothing ended."""
    if capture.stopped:
        return Outcome.CANCELLED
    return Outcome.COMPLETED if capture.how is None else outcome_of_run(capture)


def reading_without_run(source: str, capture: Capture, told: str) -> Reading:
    """Return what a harness that runs nothing and calls no model has to tell."""
    outcome = outcome_without_run(capture)
    output = (message(told),)
    return Reading(
        outcome=outcome,
        output=output,
        model=source,
        reason=reason_of(capture, outcome),
        observations=observed(source, capture, outcome, conversation=output, gaps=()),
    )


def reason_of(capture: Capture, outcome: Outcome) -> str:
    """Return why it did not complete, with the last line of standard error."""
    if outcome is Outcome.COMPLETED:
        return ""
    if outcome is Outcome.CANCELLED:
        return capture.reason or "the activation was stopped"
    if capture.how is None:
        return capture.reason or "the command was not run"
    ended = f"the command {to_words(capture.how)}"
    lines = capture.stderr.kept.decode(errors="replace").strip().splitlines()
    last = lines[-1].strip()[:STDERR_CHARACTERS_MAX] if lines else ""
    return "; ".join(filter(None, (ended, last, capture.reason)))


def message(text: str) -> dict[str, Json]:
    """Return the assistant's message, an item of a Responses object's output."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def end_of(output: Output) -> tuple[str, int]:
    """Return the end of an output as text, and how many bytes before it are cut."""
    kept = output.tail if output.dropped else output.head + output.tail
    last = kept[-MESSAGE_BYTES_MAX:]
    cut = output.size - len(last)
    text = last.decode(errors="replace")
    return (f"[{cut} bytes before this are left out]\n{text}" if cut else text), cut


def observed(
    source: str,
    capture: Capture,
    outcome: Outcome,
    *,
    conversation: Iterable[Mapping[str, Json]],
    gaps: Iterable[tuple[str, str]],
) -> Observations:
    """Return the bundle with the one invocation; a gap is a code and its detail."""
    completed = outcome is Outcome.COMPLETED
    invocation: dict[str, Json] = {
        "kind": "agent_invocation",
        "invocation_id": INVOCATION_ID,
        "parent_invocation_id": None,
        "spawned_by_tool_call_id": None,
        "status": INVOCATION_STATUS[outcome],
        "duration_ms": None if capture.how is None else capture.duration_seconds * 1000,
        "error_type": None if completed else outcome.value,
        "model_calls": [],
        "conversation": [dict(item) for item in conversation],
    }
    return Observations(
        source=source,
        records=(invocation,),
        gaps=tuple(
            {"code": code, "invocation_id": INVOCATION_ID, "detail": detail}
            for code, detail in gaps
        ),
    )
