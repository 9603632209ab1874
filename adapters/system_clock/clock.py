# SPDX-License-Identifier: Apache-2.0
"""Time as this machine tells it, and ids that nobody can guess."""

import os
import secrets
import time
from typing import Final

import anyio
import attrs
from anyio.lowlevel import checkpoint

from ...domain.deciders import Instant

ID_BYTES: Final = 16
DRAWN_AT_ONCE: Final = 256


@attrs.frozen
class SystemClock:
    """The clock of this machine and of the running event loop."""

    def now(self) -> Instant:
        """Return the wall clock's time in Unix seconds; it may jump."""
        return Instant(time.time())

    def monotonic(self) -> float:
        """Return seconds since some moment; never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait that long; at once when not positive, or not a number."""
        if seconds > 0:
            await anyio.sleep(seconds)
        else:
            await checkpoint()


@attrs.define
class RandomIds:
    """Ids with 128 random bits.

    Those are taken from the system many at a time: Python lets go of its lock each
    time, and a busy process wins it back late. A forked child takes its own.
    """

    _left: list[str] = attrs.field(factory=list[str], init=False)
    _process: int = attrs.field(default=0, init=False)

    def fresh(self, prefix: str) -> str:
        """Return `prefix`, a hyphen and 32 hexadecimal digits."""
        process = os.getpid()
        if not self._left or self._process != process:
            drawn = secrets.token_hex(ID_BYTES * DRAWN_AT_ONCE)
            width = 2 * ID_BYTES
            self._left = [drawn[at : at + width] for at in range(0, len(drawn), width)]
            self._process = process
        return f"{prefix}-{self._left.pop()}"
