# SPDX-License-Identifier: Apache-2.0
"""Time and fresh names, as arguments of the world."""

from typing import Protocol

from ...domain.deciders import Instant


class Clock(Protocol):
    """Tells the time and waits for it."""

    def now(self) -> Instant:
        """Return the wall clock's time in Unix seconds; it may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long by the monotonic clock; at once when not positive."""
        ...


class Ids(Protocol):
    """Makes names that nobody has used before."""

    def fresh(self, prefix: str) -> str:
        """Return `prefix`, a hyphen and 32 hexadecimal digits."""
        ...
