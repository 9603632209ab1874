# SPDX-License-Identifier: Apache-2.0
"""Time as this machine tells it, and ids that nobody can guess."""

import secrets
import time
from typing import Final

import anyio
import attrs
from anyio.lowlevel import checkpoint

from ...domain.deciders import Instant

ID_BYTES: Final = 16


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


@attrs.frozen
class RandomIds:
    """Ids with 128 random bits."""

    def fresh(self, prefix: str) -> str:
        """Return `prefix`, a hyphen and 32 hexadecimal digits."""
        return f"{prefix}-{secrets.token_hex(ID_BYTES)}"
