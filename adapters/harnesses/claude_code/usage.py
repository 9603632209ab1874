# SPDX-License-Identifier: Apache-2.0
"""Tokens, in the words of the Responses API, from the best source that there is."""

from collections.abc import Iterable, Mapping
from typing import Final

from ....domain.digests import Json
from .events import NOTHING, object_at, whole_at
from .stream import Event
from .trace import Trace
from .transcripts import usage_of

_OF_MODELS: Final[Mapping[str, str]] = {
    "input_tokens": "inputTokens",
    "cache_creation_input_tokens": "cacheCreationInputTokens",
    "cache_read_input_tokens": "cacheReadInputTokens",
    "output_tokens": "outputTokens",
}


def to_usage(trace: Trace, records: Iterable[Event]) -> Mapping[str, Json] | None:
    """Return what the run used, subagents included; None when nobody told it.

    The last result's count by model covers the whole process; without it, the
    results are summed; without any, the transcript's messages.
    """
    result = trace.results[-1] if trace.results else NOTHING
    models = object_at(result, "modelUsage")
    if models:
        names = _OF_MODELS
        counts = [model for model in models.values() if isinstance(model, Mapping)]
    else:
        names = {name: name for name in _OF_MODELS}
        counts = [object_at(one, "usage") for one in trace.results]
    summed = _sums(counts, names)
    if not any(summed.values()):
        told = usage_of(records)
        if told is None:
            return None
        summed = dict(told)
    cached = summed["cache_read_input_tokens"]
    read = summed["input_tokens"] + summed["cache_creation_input_tokens"] + cached
    written = summed["output_tokens"]
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": _thinking(result, models)},
        "total_tokens": read + written,
    }


def _sums(
    counts: Iterable[Mapping[str, Json]], names: Mapping[str, str]
) -> dict[str, int]:
    found = dict.fromkeys(_OF_MODELS, 0)
    for count in counts:
        for name, theirs in names.items():
            found[name] += whole_at(count, theirs) or 0
    return found


def _thinking(result: Mapping[str, Json], models: Mapping[str, Json]) -> int:
    if models:
        return sum(
            whole_at(model, "thinkingTokens") or 0
            for model in models.values()
            if isinstance(model, Mapping)
        )
    details = object_at(object_at(result, "usage"), "output_tokens_details")
    return whole_at(details, "thinking_tokens") or 0
