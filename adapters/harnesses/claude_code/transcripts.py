# SPDX-License-Identifier: Apache-2.0
"""The program's own transcript as a second source.

Its records carry the ids of the events on standard output, so what both tell is
counted once. It is there when standard output was cut, ended in the middle, or fell
silent while the program went on; and it alone tells each message's final usage.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ....domain.digests import Json
from .events import blocks_of, object_at, text_at, time_of, whole_at
from .stream import Event

TRANSCRIPT: Final = "transcript.jsonl"
"""What it is called among the artifacts."""

_USAGE: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)


def merged(events: Sequence[Event], records: Iterable[Event]) -> tuple[Event, ...]:
    """Return the events with those that the transcript alone has, by their time."""
    known = {text_at(event, "uuid") for event in events}
    added = [
        _as_event(record)
        for record in records
        if _is_told(record) and text_at(record, "uuid") not in known
    ]
    if not added:
        return tuple(events)
    return tuple(_by_time([*events, *added]))


def usage_of(records: Iterable[Event]) -> Mapping[str, int] | None:
    """Return the sum over the messages of the model, each counted once."""
    last: dict[str, Mapping[str, Json]] = {}
    for record in records:
        message = object_at(record, "message")
        if record.get("type") == "assistant" and text_at(message, "stop_reason"):
            last[text_at(message, "id")] = object_at(message, "usage")
    if not last:
        return None
    return {
        name: sum(whole_at(usage, name) or 0 for usage in last.values())
        for name in _USAGE
    }


def _is_told(record: Event) -> bool:
    """Tell whether a record is an event; the prompt itself, a plain text, is none."""
    if record.get("type") == "assistant":
        return True
    if record.get("type") != "user" or record.get("isMeta") is True:
        return False
    return any(block.get("type") == "tool_result" for block in blocks_of(record))


def _as_event(record: Event) -> Event:
    return {
        **record,
        "tool_use_result": record.get("toolUseResult"),
        "error": record.get("error"),
        "is_api_error_message": record.get("isApiErrorMessage"),
    }


def _by_time(events: list[Event]) -> list[Event]:
    """Sort by time; what has none stays behind what came before it."""
    keyed: list[tuple[float, int, Event]] = []
    last = 0.0
    for number, event in enumerate(events):
        time = time_of(event)
        last = last if time is None else time
        keyed.append((last, number, event))
    keyed.sort(key=lambda one: one[:2])
    return [event for _, _, event in keyed]
