# SPDX-License-Identifier: Apache-2.0
"""Those who wait for a stream to move, by the stream's name."""

from collections.abc import Generator
from contextlib import contextmanager

import anyio
import attrs

from ...ports.required.journal import JournalUnusable

Name = tuple[str, str]
"""A stream's category and key."""


@attrs.define(eq=False)
class Waiter:
    """One who waits; wakes as often as the stream is told to have moved."""

    _woken: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _told: "int | JournalUnusable" = attrs.field(default=0, init=False)

    def tell(self, told: "int | JournalUnusable") -> None:
        """Wake with the stream's version, or with why nobody can know it."""
        self._told = told
        self._woken.set()

    async def next_version(self) -> int:
        """Return the stream's version when it is told the next time.

        Raises:
            JournalUnusable: The journal could not be looked at.
        """
        await self._woken.wait()
        self._woken = anyio.Event()
        if isinstance(self._told, JournalUnusable):
            raise attrs.evolve(self._told)
        return self._told


@attrs.define
class Waiting:
    """All who wait. Whoever left has left nothing behind."""

    _waiters: dict[Name, list[Waiter]] = attrs.field(
        factory=dict[Name, list[Waiter]], init=False
    )

    @contextmanager
    def at(self, stream: Name) -> Generator[Waiter]:
        """Wait at a stream; what is told from now on is heard."""
        waiter = Waiter()
        self._waiters.setdefault(stream, []).append(waiter)
        try:
            yield waiter
        finally:
            others = self._waiters[stream]
            others.remove(waiter)
            if not others:
                del self._waiters[stream]

    def names(self) -> tuple[Name, ...]:
        """Return the streams that somebody waits at."""
        return tuple(self._waiters)

    def tell(self, stream: Name, version: int) -> None:
        """Wake those who wait at the stream."""
        for waiter in self._waiters.get(stream, ()):
            waiter.tell(version)

    def tell_all(self, failure: JournalUnusable) -> None:
        """Wake everybody with a failure."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.tell(failure)
