# SPDX-License-Identifier: Apache-2.0
"""JSON as it is kept in events, and as other programs wrote it."""

import json
import math
from collections.abc import Callable
from typing import Final, cast

from ...domain.digests import Json

_ESCAPE: Final = "\\u"

to_json: Final[Callable[[Json], str]] = json.JSONEncoder(
    ensure_ascii=False,
    check_circular=False,  # What goes round is a RecursionError all the same.
).encode
"""Return the JSON text of a value; `json.dumps` would make an encoder each time."""


def from_json(text: str | bytes) -> Json:
    """Return the value of another program's JSON text; it can be written down again.

    Half a character, as programs leave it that cut texts, is replaced.

    Raises:
        ValueError: It is no JSON, NaN and infinities included, or nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "replace")
    try:
        found = json.loads(text, parse_constant=no_number, parse_float=to_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if _ESCAPE in text:
        # UTF-8 has no way to write half a character, and an escape has.
        written = to_json(found)
        whole = written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        found = found if whole == written else json.loads(whole)
    return cast("Json", found)


def finite(value: object) -> float | None:
    """Return a value as a number; None for what is none, not finite, or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def no_number(word: str) -> object:
    """Refuse a word that Python's reader takes for a number; raises `ValueError`."""
    raise ValueError(f"{word} is not JSON")


def to_number(word: str) -> float:
    """Return the number of a JSON text; raises `ValueError` where it is an infinity."""
    if math.isfinite(number := float(word)):
        return number
    raise ValueError(f"{word[:40]} is beyond what a number can be")
