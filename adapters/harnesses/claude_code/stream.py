# SPDX-License-Identifier: Apache-2.0
"""Reading the program's lines: one JSON object each, and whatever else comes.

What is no event is counted and let be: a line that was cut, bytes that are no text,
events of a kind that nobody knows yet. A complete event is never lost.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, cast

import attrs

from ....domain.digests import Json
from ....ports.provided.json_texts import no_number, to_number
from ....ports.required.sandbox import Output

Event: TypeAlias = Mapping[str, Json]

EVENTS_MAX: Final = 50_000
KINDS_MAX: Final = 50
"""Of unknown kinds of events, no more are told by name."""

TOLD: Final = frozenset({"assistant", "result", "system", "user"})
"""Kinds of events that tell something."""
_OTHERS: Final = frozenset(
    {
        "auth_status",
        "control_cancel_request",
        "control_request",
        "control_response",
        "keep_alive",
        "prompt_suggestion",
        "rate_limit_event",
        "stream_event",
        "tool_progress",
        "tool_use_summary",
    }
)
"""Known kinds that repeat what others tell."""


@attrs.frozen(kw_only=True)
class Stream:
    """What an output held."""

    events: tuple[Event, ...] = ()
    unknown: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """How often each kind came that nobody knows."""
    unreadable: int = 0
    """Lines that are no JSON object."""
    is_cut: bool = False
    """Whether the last line was not finished."""
    dropped: int = 0
    """Bytes in the middle that were not kept, and with them the lines around."""
    too_many: int = 0
    """Events beyond `EVENTS_MAX`."""


def read_stream(output: Output) -> Stream:
    """Return the events of an output, in their order."""
    found = _Found()
    if output.dropped:
        # The line at the cut is in neither half as a whole.
        head, _, _ = output.head.rpartition(b"\n")
        _, _, tail = output.tail.partition(b"\n")
        found.take(head, ends=True)
        found.take(tail, ends=False)
    else:
        found.take(output.head + output.tail, ends=False)
    return Stream(
        events=tuple(found.events),
        unknown=found.unknown,
        unreadable=found.unreadable,
        is_cut=found.is_cut,
        dropped=output.dropped,
        too_many=found.too_many,
    )


def clean(text: str) -> str:
    """Return a text that can be written: half surrogate pairs are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@attrs.define
class _Found:
    events: list[Event] = attrs.field(factory=list[Event])
    unknown: dict[str, int] = attrs.field(factory=dict[str, int])
    unreadable: int = 0
    is_cut: bool = False
    too_many: int = 0

    def take(self, content: bytes, *, ends: bool) -> None:
        for line, is_last in _lines(content):
            event = _event(line)
            if event is not None:
                self.add(event)
            elif is_last and not ends:
                self.is_cut = True
            else:
                self.unreadable += 1

    def add(self, event: Event) -> None:
        kind = str(event.get("type"))
        if kind in TOLD:
            if len(self.events) < EVENTS_MAX:
                self.events.append(event)
            else:
                self.too_many += 1
        elif kind not in _OTHERS:
            name = kind if kind in self.unknown else clean(kind)[:100]
            if len(self.unknown) < KINDS_MAX or name in self.unknown:
                self.unknown[name] = self.unknown.get(name, 0) + 1


def _lines(content: bytes) -> Iterator[tuple[bytes, bool]]:
    """Tell the lines, and whether each is a last one without its end."""
    begin = 0
    while begin < len(content):
        end = content.find(b"\n", begin)
        stop = len(content) if end < 0 else end
        line = content[begin:stop].strip()
        if line:
            yield line, end < 0
        begin = stop + 1


def _event(line: bytes) -> Event | None:
    try:
        found: object = json.loads(
            line.decode("utf-8", "replace"),
            parse_constant=no_number,
            parse_float=to_number,
        )
    except (ValueError, RecursionError):
        return None
    # JSON knows text keys alone.
    return cast("Event", found) if isinstance(found, dict) else None
