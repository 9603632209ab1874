# SPDX-License-Identifier: Apache-2.0
"""The secret values that this process knows, and how text is rid of them.

A secret is found by its value, never by the name of a field: a harmless
`max_output_tokens` stays as it is, and a secret under an odd key does not. The
spellings that quoting gives it (JSON, Python, URL, base64) are found too. What
`masked` returns is for the eye; nothing may parse it again.
"""

import base64
import json
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import ClassVar
from urllib.parse import quote, quote_plus

import attrs

from ..required.faults import Fault

MASK = "***"
SECRETS_MAX = 65_536


@attrs.frozen
class SecretsFull(Fault):
    """No more secrets can be watched for, so no more may be used."""

    kind: ClassVar[str] = "secrets_full"
    message: ClassVar[str] = (
        "{known} secret values are in use at once, which is the most there may be."
        " Close sessions, or start another process."
    )
    can_retry: ClassVar[bool] = True

    known: int


@attrs.define
class SecretValues:
    """A table of secret values, each counted as often as it was added."""

    values_max: int = SECRETS_MAX
    _counts: Counter[str] = attrs.field(init=False, factory=Counter[str], repr=False)
    _spellings: dict[str, tuple[str, ...]] = attrs.field(
        init=False, factory=dict[str, tuple[str, ...]], repr=False
    )

    def add(self, value: str) -> None:
        """Watch for `value` until it was forgotten as often as it was added.

        Raises:
            SecretsFull: `values_max` others are watched for.
        """
        if not value:
            return
        if value not in self._counts and len(self._counts) >= self.values_max:
            raise SecretsFull(known=len(self._counts))
        self._counts[value] += 1
        if value not in self._spellings:
            self._spellings[value] = _spellings_of(value)

    def forget(self, value: str) -> None:
        """Undo one `add`; a value that nobody added is no mistake."""
        if self._counts[value] > 1:
            self._counts[value] -= 1
            return
        del self._counts[value]
        self._spellings.pop(value, None)

    @contextmanager
    def watching(self, value: str) -> Generator[None, None, None]:
        """Watch for `value` inside the block."""
        self.add(value)
        try:
            yield
        finally:
            self.forget(value)

    def masked(self, text: str) -> str:
        """Return `text` with every secret in it covered, overlapping ones whole."""
        spans = sorted(self._spans(text))
        if not spans:
            return text
        pieces: list[str] = []
        shown = 0
        end = 0
        for start, stop in spans:
            if start >= end:
                pieces += [text[shown:start], MASK]
            end = max(end, stop)
            shown = end
        return "".join((*pieces, text[shown:]))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for spellings in tuple(self._spellings.values()):
            for spelling in spellings:
                start = text.find(spelling)
                while start >= 0:
                    yield start, start + len(spelling)
                    start = text.find(spelling, start + 1)


def _spellings_of(value: str) -> tuple[str, ...]:
    raw = value.encode(errors="surrogatepass")
    return tuple(
        {
            value,
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            repr(value)[1:-1],
            repr(raw)[2:-1],
            quote(raw, safe=""),
            quote(raw),
            quote_plus(raw),
            base64.b64encode(raw).decode(),
            base64.urlsafe_b64encode(raw).decode(),
        }
    )
