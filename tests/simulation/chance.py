# SPDX-License-Identifier: Apache-2.0
"""Chance that a seed decides, for each question apart.

What happens to one sandbox does not depend on how often others were asked, so that
a story stays the same when tasks wake in another order.
"""

import hashlib
from collections import Counter
from typing import TypeVar

import attrs

T = TypeVar("T")


@attrs.define
class Chance:
    """Draws by the name of what is asked."""

    seed: int
    only: frozenset[str] | None = None
    """The mishaps that may happen this time, by their names; None: any."""
    mishaps: list[tuple[str, str]] = attrs.field(
        factory=list[tuple[str, str]], init=False
    )
    """What went wrong, in order: the kind and the name of each."""
    _asked: Counter[str] = attrs.field(factory=Counter[str], init=False)

    def number(self, question: str) -> float:
        """Return the next number in [0, 1) for this question."""
        asked = self._asked[question] = self._asked.get(question, 0) + 1
        word = f"{self.seed}/{question}/{asked}"
        digest = hashlib.sha256(word.encode()).digest()
        return int.from_bytes(digest[:7]) / 2**56

    def between(self, question: str, low: float, high: float) -> float:
        """Return a number from `low` to `high`."""
        return low + (high - low) * self.number(question)

    def happens(self, question: str, share: float) -> bool:
        """Tell whether something happens that does so in this share of cases."""
        return self.number(question) < share

    def mishap(self, question: str, share: float, *kinds: str) -> str | None:
        """Return what goes wrong here, one of `kinds`, in this share of cases."""
        number = self.number(question)
        if number >= share:
            return None
        name = f"{question}/{self._asked[question]}"
        if self.only is not None and name not in self.only:
            return None
        kind = kinds[int(number / share * len(kinds))]
        self.mishaps.append((kind, name))
        return kind

    def one_of(self, question: str, *choices: T) -> T:
        """Return one of the choices."""
        return choices[int(self.number(question) * len(choices))]
