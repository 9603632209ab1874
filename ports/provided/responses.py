# SPDX-License-Identifier: Apache-2.0
"""The Responses object that answers an activation, built from what was read.

It has every field of the Responses API as NeMo Gym writes it, nulls included. What
the request set is echoed; what happened is told by `status` and `error`.
"""

from collections.abc import Mapping
from typing import Final

from ...domain.activations import Outcome
from ...domain.deciders import Instant
from ...domain.digests import Json
from ...domain.failures import clipped
from ..required.harness import Reading

MODEL_UNKNOWN: Final = "unknown"
"""What `model` says when neither harness nor request named one; it may not be null."""

_STATUS: Final[Mapping[Outcome, str]] = {
    Outcome.COMPLETED: "completed",
    Outcome.INCOMPLETE: "incomplete",
    Outcome.TIMEOUT: "incomplete",
    Outcome.CANCELLED: "cancelled",
    Outcome.FAILED: "failed",
    Outcome.SANDBOX_ERROR: "failed",
    Outcome.OOM: "failed",
}

_ECHOED: Final[Mapping[str, Json]] = {
    "background": None,
    "conversation": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": None,
    "moderation": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "reasoning": None,
    "safety_identifier": None,
    "service_tier": None,
    "temperature": None,
    "text": None,
    "tool_choice": "auto",
    "tools": (),
    "top_logprobs": None,
    "top_p": None,
    "truncation": None,
    "user": None,
}
"""Fields of the request that its answer repeats, and what they are when unset."""


def to_response(
    reading: Reading, parameters: Mapping[str, Json], id: str, at: Instant
) -> dict[str, Json]:
    """Return the Responses object of one activation, JSON-ready.

    `parameters` is the request, `at` the time of the answer in Unix seconds.
    """
    echoed = {name: _set(parameters, name, unset) for name, unset in _ECHOED.items()}
    asked = parameters.get("model")
    model = reading.model or (asked if isinstance(asked, str) else "")
    return {
        **echoed,
        "id": id,
        "created_at": float(at),
        "completed_at": None,
        "error": _error(reading),
        "incomplete_details": None,
        "metadata": _metadata(parameters.get("metadata")),
        "model": model or MODEL_UNKNOWN,
        "object": "response",
        "output": [dict(item) for item in reading.output],
        "status": _STATUS[reading.outcome],
        "usage": None if reading.usage is None else dict(reading.usage),
    }


def _set(parameters: Mapping[str, Json], name: str, unset: Json) -> Json:
    value = parameters.get(name)
    return (
        (list(unset) if isinstance(unset, tuple) else unset) if value is None else value
    )


def _error(reading: Reading) -> Json:
    if _STATUS[reading.outcome] != "failed":
        return None
    reason = reading.reason or f"the activation ended as {reading.outcome.value}"
    return {"code": "server_error", "message": clipped(reason)}


def _metadata(metadata: Json) -> Json:
    """Return it with text alone, which is all that a reader of answers accepts."""
    if not isinstance(metadata, Mapping):
        return None
    return {
        name: value if isinstance(value, str) else str(value)
        for name, value in metadata.items()
    }
