# SPDX-License-Identifier: Apache-2.0
"""Digests: what makes two requests the same request.

A request's digest is that of its parsed body with defaults filled in. Key order,
spacing, the way a whole number is written and the path it came by do not count.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NewType, TypeAlias

import attrs

from .refusals import Refusal

Json: TypeAlias = (
    "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
)

RequestDigest = NewType("RequestDigest", str)
"""sha256, hexadecimal, of a request's canonical JSON."""


@attrs.frozen
class NotJson(Refusal):
    """A value that JSON cannot write: NaN, an infinity, or no JSON type."""

    kind: ClassVar[str] = "not_json"
    message: ClassVar[str] = "The body cannot be written as JSON: {found}."

    found: str


def canonical(value: Json) -> str:
    """Return the one JSON text of `value`: sorted keys, no spaces, 1.0 as 1.

    Raises:
        NotJson: `value` holds NaN, an infinity or something that is not JSON.
    """
    try:
        text = _written(value)
        if _MAY_HOLD_A_FLOAT.search(text) is None:
            return text
        return _written(json.loads(text, parse_float=_number))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(found=str(error)) from error


def digest_of(value: Json) -> RequestDigest:
    """Return the digest of the canonical text; raises `NotJson` as that does."""
    text = canonical(value).encode("utf-8", "surrogatepass")
    return RequestDigest(hashlib.sha256(text).hexdigest())


_written: Final[Callable[[Json], str]] = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,  # What goes round is a RecursionError all the same.
    separators=(",", ":"),
    sort_keys=True,
).encode
_MAY_HOLD_A_FLOAT: Final = re.compile(r"[0-9][.e]")
"""A float has a digit before its point or its exponent; so have a few strings."""


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number
