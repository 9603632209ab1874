# SPDX-License-Identifier: Apache-2.0
"""Those who wait for a stream to move, by the stream's name."""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import attrs

from ...ports.required.journal import JournalUnusable

Name = tuple[str, str]
"""A stream's category and key."""


@attrs.frozen
class Looked:
    """What a look found: where streams stand that may have moved."""

    versions: Mapping[Name, int]


@attrs.define(eq=False)
class Waiter:
    """One who waits; wakes as often as the stream is told to have moved."""

    _told: "int | JournalUnusable | None" = attrs.field(default=None, init=False)
    _woken: "asyncio.Future[None] | None" = attrs.field(default=None, init=False)

    def tell(self, told: "int | JournalUnusable") -> None:
        """Wake with the stream's version, or with why nobody can know it."""
        self._told = told
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def next_version(self) -> int:
        """Return the stream's version when it is told the next time.

        Raises:
            JournalUnusable: The journal could not be looked at.
        """
        if self._told is None:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        told, self._told = self._told, None
        if isinstance(told, JournalUnusable):
            raise attrs.evolve(told)
        assert told is not None, "who is woken was told"
        return told


@attrs.define
class Waiting:
    """All who wait. Whoever left has left nothing behind."""

    _waiters: dict[Name, list[Waiter]] = attrs.field(
        factory=dict[Name, list[Waiter]], init=False
    )
    _newcomers: set[Name] = attrs.field(factory=set[Name], init=False)
    """Streams that somebody began to wait at, and that nobody has looked at since."""

    @contextmanager
    def at(self, stream: Name) -> Generator[Waiter]:
        """Wait at a stream; what is told from now on is heard."""
        waiter = Waiter()
        self._waiters.setdefault(stream, []).append(waiter)
        self._newcomers.add(stream)
        try:
            yield waiter
        finally:
            others = self._waiters[stream]
            others.remove(waiter)
            if not others:
                del self._waiters[stream]
                self._newcomers.discard(stream)

    def names(self) -> tuple[Name, ...]:
        """Return the streams that somebody waits at."""
        return tuple(self._waiters)

    def newcomers(self) -> bool:
        """Tell whether somebody waits who did not at the last time of asking."""
        came = bool(self._newcomers)
        self._newcomers.clear()
        return came

    def tell(self, stream: Name, version: int) -> None:
        """Wake those who wait at the stream."""
        for waiter in self._waiters.get(stream, ()):
            waiter.tell(version)

    def take_look(self, seen: object) -> None:
        """Wake those who wait where a look, or its failure, says."""
        match seen:
            case JournalUnusable():
                self.tell_all(seen)
            case Looked(versions=versions):
                for name, version in versions.items():
                    self.tell(name, version)
            case _:
                raise AssertionError(f"a look gave {seen!r}")

    def tell_all(self, failure: JournalUnusable) -> None:
        """Wake everybody with a failure."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.tell(failure)
