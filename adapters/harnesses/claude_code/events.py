# SPDX-License-Identifier: Apache-2.0
"""Looking into events that anybody may have written: each look has a default."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from ....domain.digests import Json
from ....ports.provided.json_texts import finite
from .stream import Event, clean

NOTHING: Final[Mapping[str, Json]] = {}


def text_at(event: Mapping[str, Json], key: str) -> str:
    """Return the text under a key; empty when there is none."""
    value = event.get(key)
    return clean(value) if isinstance(value, str) else ""


def object_at(event: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    """Return the object under a key; an empty one when there is none."""
    value = event.get(key)
    return value if isinstance(value, Mapping) else NOTHING


def list_at(event: Mapping[str, Json], key: str) -> Sequence[Json]:
    """Return the list under a key; an empty one when there is none."""
    value = event.get(key)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def whole_at(event: Mapping[str, Json], key: str) -> int | None:
    """Return the whole number, 0 or more, under a key."""
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else None


def number_at(event: Mapping[str, Json], key: str) -> float | None:
    """Return the number, 0 or more, under a key."""
    number = finite(event.get(key))
    return number if number is not None and number >= 0 else None


def time_of(event: Event) -> float | None:
    """Return when an event was, in Unix seconds."""
    try:
        return datetime.fromisoformat(text_at(event, "timestamp")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def blocks_of(event: Event) -> list[Mapping[str, Json]]:
    """Return the content blocks of a message; a plain text is one block."""
    message = object_at(event, "message")
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        block for block in list_at(message, "content") if isinstance(block, Mapping)
    ]


def text_of_result(block: Mapping[str, Json]) -> str:
    """Return what a tool gave back, as text; what is none is named by its kind."""
    content = block.get("content")
    if isinstance(content, str):
        return clean(content)
    parts: list[str] = []
    for part in list_at(block, "content"):
        if isinstance(part, Mapping):
            is_text = part.get("type") == "text"
            kind = text_at(part, "type") or "unknown"
            parts.append(text_at(part, "text") if is_text else f"[{kind}]")
    return "\n".join(parts)


def written(value: Json) -> str:
    """Return JSON text of a value that was read from JSON."""
    try:
        return clean(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return '{"livery": "nested too deeply to be written"}'
