# SPDX-License-Identifier: Apache-2.0
"""How a run ended, by all the evidence: receipt, exit, result, error, gateway.

The program's own word is one witness among several: it reports success for a model
that failed, exits with 0 when it was interrupted, and may not exit at all.
"""

import re
from collections.abc import Mapping
from typing import Final

import attrs

from ....domain.activations import Outcome
from ....domain.digests import Json
from ....ports.provided.how_it_ended import to_words
from ....ports.required.harness import Capture, EarlyEnd, ToolAccess
from ....ports.required.model_access import CallEnd
from ....ports.required.sandbox import (
    Exited,
    ExitUnknown,
    Lost,
    NotStarted,
    Signalled,
    TimedOut,
)
from ..readings import outcome_of_run, reason_of
from .events import blocks_of, list_at, text_at, whole_at
from .stream import Event
from .trace import Trace

REASON_CHARACTERS_MAX: Final = 500

_TOO_LONG: Final = re.compile(
    r"prompt is too long|context.{0,20}(length|window)|maximum context|too many tokens"
    r"|input (is )?too long|exceeds? the (context|maximum)",
    re.IGNORECASE,
)
_TOO_LONG_STATUSES: Final = (400, 422)

_NOT_THERE: Final = frozenset({"failed", "pending"})
"""What the program says, when it begins, of a tool server that the model does not have."""


@attrs.frozen(kw_only=True)
class Verdict:
    """How it ended and why."""

    outcome: Outcome
    error_type: str | None = None
    reason: str = ""
    upstream_failed: bool = False
    """Whether the model's side failed, so that the work measures nothing."""


COMPLETED: Final = Verdict(outcome=Outcome.COMPLETED)


def verdict_of(
    capture: Capture,
    trace: Trace,
    *,
    max_turns: int | None,
    granted: tuple[ToolAccess, ...],
) -> Verdict:
    """Return how the run ended."""
    if capture.stopped:
        return _plain(capture, Outcome.CANCELLED)
    how = capture.how
    if isinstance(how, Lost | NotStarted) or how is None:
        return _plain(capture, outcome_of_run(capture))
    if missing := _missing_servers(trace, granted):
        return Verdict(
            outcome=Outcome.SANDBOX_ERROR,
            error_type="tool_server_unreachable",
            reason=f"required tool servers were not reached: {', '.join(missing)}",
        )
    result = trace.results[-1] if trace.results else None
    if result is not None:
        return _by_result(capture, trace, result)
    if isinstance(how, TimedOut) or capture.ended_early is not None:
        return _out_of_time(capture, trace)
    if isinstance(how, ExitUnknown):
        return _plain(capture, Outcome.SANDBOX_ERROR)
    return _without_result(capture, trace, max_turns)


def _by_result(capture: Capture, trace: Trace, result: Event) -> Verdict:
    subtype = text_at(result, "subtype")
    terminal = text_at(result, "terminal_reason")
    if subtype == "error_max_turns" or terminal == "max_turns":
        return _incomplete("max_turns", _told(result) or "the turn limit was reached")
    if subtype == "error_max_budget_usd" or terminal == "budget_exhausted":
        return _incomplete("budget", _told(result) or "the budget was used up")
    if subtype == "success":
        if result.get("is_error") is True:
            status = whole_at(result, "api_error_status")
            return _failed_model(capture, status, _told(result))
        return _by_success(capture, trace)
    what = terminal or subtype or "unknown_result"
    told = _told(result) or "the program gave no reason"
    return Verdict(outcome=Outcome.FAILED, error_type=what, reason=f"{what}: {told}")


def _by_success(capture: Capture, trace: Trace) -> Verdict:
    how = capture.how
    if not trace.root.calls:
        # It took the prompt for a command of its own, or made its answer up.
        return Verdict(
            outcome=Outcome.FAILED,
            error_type="model_not_asked",
            reason="the program answered without asking the model",
            upstream_failed=True,
        )
    if (isinstance(how, Exited) and how.code) or isinstance(how, Signalled):
        return Verdict(
            outcome=Outcome.FAILED, error_type="exit", reason=_end_of(capture)
        )
    # A program that was ended because it did not end, or whose end nobody saw,
    # had told its result before.
    return COMPLETED


def _out_of_time(capture: Capture, trace: Trace) -> Verdict:
    """Tell whose time ran out: the model's, when its answer was waited for."""
    silent = capture.ended_early is EarlyEnd.SILENCE
    waits = silent and trace.has_begun and trace.root.last_told != "model"
    failing = trace.is_retrying or (_all_calls_failed(capture) and not trace.root.calls)
    reason = _end_of(capture)
    if waits or failing:
        reason += "; the model's answer was waited for"
    return Verdict(
        outcome=Outcome.TIMEOUT,
        error_type="stalled" if silent else "timeout",
        reason=reason,
        upstream_failed=waits or failing,
    )


def _without_result(capture: Capture, trace: Trace, max_turns: int | None) -> Verdict:
    if trace.failures:
        failure = trace.failures[-1]
        texts = [text_at(block, "text") for block in blocks_of(failure)]
        status = whole_at(failure, "api_error_status")
        return _failed_model(capture, status, "; ".join(filter(None, texts)))
    reason = _end_of(capture)
    if not trace.has_begun and capture.how != Exited(0):
        # The program itself did not come up: no work of the agent's.
        return Verdict(
            outcome=Outcome.SANDBOX_ERROR, error_type="not_begun", reason=reason
        )
    if max_turns is not None and len(trace.root.calls) >= max_turns:
        return _incomplete("max_turns", f"the turn limit was reached; {reason}")
    if trace.is_retrying or _all_calls_failed(capture):
        return _failed_model(capture, None, reason)
    if capture.how == Exited(0):
        return _incomplete("result_missing", "the program told no result")
    return Verdict(outcome=Outcome.FAILED, error_type="exit", reason=reason)


def _failed_model(capture: Capture, status: int | None, told: str) -> Verdict:
    """Tell whose failure it was: the gateway's word goes before the text's."""
    words = f"status {status}" if status is not None else "no status"
    reason = _clipped(f"the model's side failed, {words}: {told or 'no reason'}")
    seen = _last_call(capture)
    if seen is CallEnd.NOT_FORWARDED:
        # Beyond a bound on the session's calls, which the agent used up.
        return _incomplete("model_bound", reason)
    if seen is CallEnd.CONTEXT_LENGTH or (
        (seen is None or not seen.is_infrastructure) and _is_too_long(status, told)
    ):
        # What the agent made too long is its own doing.
        return Verdict(
            outcome=Outcome.INCOMPLETE, error_type="context_length", reason=reason
        )
    return Verdict(
        outcome=Outcome.FAILED,
        error_type="model_error" if status is None else f"model_error_{status}",
        reason=reason,
        upstream_failed=True,
    )


def _is_too_long(status: int | None, told: str) -> bool:
    if status == 413:
        return True
    known = status is None or status in _TOO_LONG_STATUSES
    return known and bool(_TOO_LONG.search(told))


def _last_call(capture: Capture) -> CallEnd | None:
    """Return how the last call of the conversation came out, where it was seen."""
    record = capture.model
    calls = [] if record is None else [c for c in record.entries if not c.is_side]
    return calls[-1].end if calls else None


def _missing_servers(trace: Trace, granted: tuple[ToolAccess, ...]) -> list[str]:
    if not trace.has_begun:
        return []
    return [
        access.name
        for access in granted
        if access.required and trace.servers.get(access.name) in _NOT_THERE
    ]


def _all_calls_failed(capture: Capture) -> bool:
    record = capture.model
    return record is not None and 0 < record.calls <= record.failures


def _plain(capture: Capture, outcome: Outcome) -> Verdict:
    return Verdict(
        outcome=outcome, error_type=outcome.value, reason=reason_of(capture, outcome)
    )


def _incomplete(what: str, reason: str) -> Verdict:
    return Verdict(outcome=Outcome.INCOMPLETE, error_type=what, reason=_clipped(reason))


def _end_of(capture: Capture) -> str:
    assert capture.how is not None, "it ran"
    if capture.ended_early is EarlyEnd.SILENCE:
        return "the program fell silent and was ended"
    lines = capture.stderr.kept.decode(errors="replace").strip().splitlines()
    last = lines[-1].strip() if lines else ""
    ended = f"the program {to_words(capture.how)}"
    return _clipped("; ".join(filter(None, (ended, last, capture.reason))))


def _told(result: Mapping[str, Json]) -> str:
    told = text_at(result, "result")
    errors = [error for error in list_at(result, "errors") if isinstance(error, str)]
    return "; ".join(filter(None, (told, *errors)))


def _clipped(text: str) -> str:
    cut = len(text) - REASON_CHARACTERS_MAX
    return text if cut <= 0 else f"{text[:REASON_CHARACTERS_MAX]} [{cut} more]"
