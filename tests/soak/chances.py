# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with a message, decided from a seed, and counted when it has.

Each hop throws dice of its own, so what happens on one does not depend on how busy
another is.
"""

import random
from collections import Counter
from enum import StrEnum
from typing import Final

import attrs


class FaultKind(StrEnum):
    """What a network, or a proxy in it, does to a message."""

    REFUSE = "refuse"
    """The connection is closed before anything was passed on."""
    DROP = "drop"
    """The request is taken and never passed on; after a while the connection is closed."""
    CUT_REQUEST = "cut request"
    """A part of the request is passed on, then both connections are closed."""
    CUT_REPLY = "cut reply"
    """The request is carried out; a part of the reply comes back."""
    STALL = "stall"
    """Nothing moves for a while, either before the request or before the reply."""
    SLOW = "slow"
    """The reply comes in small pieces."""
    DUPLICATE = "duplicate"
    """The request is passed on twice; the other reply is dropped."""


SECONDS: Final = {
    FaultKind.DROP: (1.0, 20.0),
    FaultKind.STALL: (0.5, 8.0),
    FaultKind.SLOW: (1.0, 8.0),
    FaultKind.DUPLICATE: (0.0, 3.0),
}
"""Between which bounds a fault lasts, or how much later the duplicate comes."""


@attrs.frozen
class Fault:
    """One thing that goes wrong."""

    kind: FaultKind
    seconds: float = 0.0
    part: float = 0.0
    """From 0 to 1: how far into the message, or which of two ways."""


@attrs.define
class Chances:
    """The dice of one hop."""

    hop: str
    share: float
    """Of the messages, with which something goes wrong."""
    seed: int
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    """What may go wrong."""
    pace: float = 1.0
    """By how much longer, or shorter, faults last."""
    counted: Counter[FaultKind] = attrs.field(factory=Counter[FaultKind])
    """What went wrong."""
    messages: int = 0
    """How many requests came."""
    under_way: int = 0
    """How many duplicates are still to come, or to be answered."""
    _dice: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._dice = random.Random(f"{self.seed} {self.hop}")

    def next(self, *, can_repeat: bool) -> Fault | None:
        """Return what goes wrong with the next message; most often nothing does.

        What cannot be repeated is not duplicated.
        """
        self.messages += 1
        if self._dice.random() >= self.share:
            return None
        kinds = [k for k in self.kinds if can_repeat or k is not FaultKind.DUPLICATE]
        if not kinds:
            return None
        kind = self._dice.choice(kinds)
        seconds = self._dice.uniform(*SECONDS.get(kind, (0.0, 0.0))) * self.pace
        return Fault(kind, seconds, self._dice.random())

    def note(self, fault: Fault) -> None:
        """Count what has happened."""
        self.counted[fault.kind] += 1
