# SPDX-License-Identifier: Apache-2.0
"""A journal in memory, for tests and for runs that nobody wants to go on with.

It keeps every promise of the port but durability, within one event loop.
"""

from collections.abc import Sequence
from typing import TypeVar, cast

import attrs
from anyio.lowlevel import checkpoint

from ...ports.required.journal import ENDS, History, Stream, StreamMoved
from .waiting import Name, Waiting

E = TypeVar("E")


@attrs.define
class MemoryJournal:
    """A journal that is gone with its process."""

    _streams: dict[Name, list[object]] = attrs.field(
        factory=dict[Name, list[object]], init=False
    )
    _waiting: Waiting = attrs.field(factory=Waiting, init=False)

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        """Keep `events`, all or none, and return the stream's new version.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
        """
        await checkpoint()
        self._check(stream, expected_version)
        if not events:
            return expected_version
        standing = self._streams.setdefault(_name(stream), [])
        standing.extend(events)
        self._waiting.tell(_name(stream), len(standing))
        return len(standing)

    async def read(self, stream: Stream[E], *, after: int = 0) -> History[E]:
        """Return the events behind version `after`; none for an unknown stream."""
        await checkpoint()
        standing = self._streams.get(_name(stream), [])
        # Only events of E were appended: `append` takes the same Stream[E].
        events = cast(list[E], standing[max(after, 0) :])
        return History(tuple(events), len(standing))

    async def open_streams(self, category: str) -> tuple[str, ...]:
        """Return the keys of the category's streams that have not ended (`ENDS`)."""
        await checkpoint()
        return tuple(
            key
            for (its_category, key), events in self._streams.items()
            if its_category == category and type(events[-1]) not in ENDS
        )

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        """Wait until the stream is not at version `after`, and return its version."""
        await checkpoint()
        name = _name(stream)
        with self._waiting.at(name) as waiter:
            version = len(self._streams.get(name, ()))
            while version == after:
                version = await waiter.next_version()
        return version

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        """Remove the stream with all its events.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
        """
        await checkpoint()
        self._check(stream, expected_version)
        self._streams.pop(_name(stream), None)
        self._waiting.tell(_name(stream), 0)

    def _check(self, stream: Stream[E], expected: int) -> None:
        found = len(self._streams.get(_name(stream), ()))
        if found != expected:
            raise StreamMoved(
                category=stream.category,
                key=stream.key,
                expected=expected,
                found=found,
            )


def _name(stream: Stream[E]) -> Name:
    return stream.category, stream.key
