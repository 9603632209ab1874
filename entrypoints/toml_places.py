# SPDX-License-Identifier: Apache-2.0
"""On which line of a TOML text a key stands.

The standard library's reader tells no lines. A key stands where it first appears
when the text is read up to that line; so whatever TOML allows (dotted keys, inline
tables, arrays over several lines) is read by the one reader that knows it.
"""

import tomllib
from collections.abc import Iterator
from typing import cast

LINES_MAX = 2000
"""In a longer text no line is told; reading prefixes costs the square of it."""

Path = tuple[str | int, ...]


def line_of(text: str, path: Path) -> int | None:
    """Return the line, from 1, of `path` or of what it would stand in."""
    places = _places(text)
    for length in range(len(path), 0, -1):
        if (line := places.get(path[:length])) is not None:
            return line
    return None


def _places(text: str) -> dict[Path, int]:
    lines = text.splitlines(keepends=True)
    if len(lines) > LINES_MAX:
        return {}
    places: dict[Path, int] = {}
    unread = 1
    for end in range(1, len(lines) + 1):
        try:
            read = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue  # In the middle of a value: it stands where it began.
        for path in _paths(read):
            places.setdefault(path, unread)
        unread = end + 1
    return places


def _paths(value: object, at: Path = ()) -> Iterator[Path]:
    if at:
        yield at
    if isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            yield from _paths(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _paths(item, (*at, index))
