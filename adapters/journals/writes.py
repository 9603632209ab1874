# SPDX-License-Identifier: Apache-2.0
"""What is asked of a database that keeps a journal: appends and removals.

Streams are named by texts that every database keeps, whatever their keys are made of.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import attrs

from ...ports.required.journal import ENDS, JournalUnusable, Stream
from .records import Record, to_record
from .waiting import Name

EVENT_CHARACTERS_MAX: Final = 32 * 1024 * 1024
TEXTS_MAX: Final = 4096
"""How many names are remembered with their texts: a stream is written to a few times
within its episode."""

E = TypeVar("E")


@attrs.frozen(kw_only=True)
class Append:
    """Asks for records to be written at the end of a stream."""

    stream: Name
    expected: int
    records: tuple[Record, ...]
    stays_open: bool


@attrs.frozen(kw_only=True)
class Forget:
    """Asks for a stream to be removed."""

    stream: Name
    expected: int


Write = Append | Forget


def append_of(
    stream: Stream[E], events: Sequence[E], *, expected: int, where: str
) -> Append:
    """Return what writes `events` to the stream in the journal that is at `where`.

    Raises:
        JournalUnusable: An event is too large to be kept.
    """
    records = tuple(map(to_record, events))
    for record in records:
        if len(record.body) > EVENT_CHARACTERS_MAX:
            raise JournalUnusable(
                where=where,
                reason=f"an event of kind {record.kind} has {len(record.body)}"
                f" characters, and {EVENT_CHARACTERS_MAX} is the most",
                advice="Keep large content as an artifact.",
            )
    return Append(
        stream=name_of(stream),
        expected=expected,
        records=records,
        stays_open=not events or type(events[-1]) not in ENDS,
    )


def name_of(stream: Stream[E]) -> Name:
    """Return the stream's name as texts that can be kept."""
    return to_text(stream.category), to_text(stream.key)


@lru_cache(maxsize=TEXTS_MAX)
def to_text(name: str) -> str:
    """Return `name` as a text that can be kept and carried, whatever is in it."""
    if _AS_IT_IS.fullmatch(name):
        return name  # Nearly all are, and quoting costs ten times as much as looking.
    return quote(name, safe=_PLAIN, errors="surrogatepass")


def from_text(text: str) -> str:
    """Return the name that `to_text` made the text of."""
    return unquote(text, errors="surrogatepass")


_AS_IT_IS: Final = re.compile(r"[A-Za-z0-9_./-]*")
_PLAIN: Final = "/ :;,+@=!#$&()*[]{}<>|^?'"
"""What stands for itself besides letters, digits and `_.-~`."""
