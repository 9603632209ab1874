# SPDX-License-Identifier: Apache-2.0
"""What journals in databases share: one thread that writes, and one that reads.

What a database does of its own is its writer, its reader, and how it hears that
another process has written.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar, cast

import attrs

from ...ports.required.journal import Event, History, Stream, StreamMoved
from .database_thread import Connection, DatabaseThread
from .waiting import Name, Waiting
from .writes import Forget, Write, append_of, from_text, name_of, to_text

E = TypeVar("E")
T = TypeVar("T")
L = TypeVar("L", bound=Connection)
"""What a thread works over."""
C = TypeVar("C")
"""A connection of the database."""
R = TypeVar("R", contravariant=True)


class StreamReader(Protocol[R]):
    """Reads streams over a connection; raises `JournalUnusable` where it cannot."""

    def history(self, connection: R, stream: Name, after: int) -> History[Event]:
        """Return the events behind version `after`."""
        ...

    def open_keys(self, connection: R, category: str) -> tuple[str, ...]:
        """Return the keys of a category's open streams."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class DatabaseJournal(Generic[L, C]):
    """A `Journal` over two threads, but for `moved`."""

    where: str
    """The place, as it is told."""
    writes: DatabaseThread[L, Write, int]
    reads: DatabaseThread[L, Callable[[C], object], object]
    reader: StreamReader[C]
    waiting: Waiting

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        """Write `events`, all or none, and return the stream's new version.

        When it is cancelled it was done or not by the time it ends.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
            LeaseLost: This process was taken for dead.
            JournalUnusable: As it says; or an event is too large to be kept.
        """
        write = append_of(stream, events, expected=expected_version, where=self.where)
        return await self._write(stream, write)

    async def read(self, stream: Stream[E], *, after: int = 0) -> History[E]:
        """Return the events behind version `after`; none for an unknown stream."""
        name, behind = name_of(stream), max(after, 0)
        history = await self._read(
            lambda connection: self.reader.history(connection, name, behind)
        )
        # Only events of E were appended: `append` takes the same Stream[E].
        return cast(History[E], history)

    async def open_streams(self, category: str) -> tuple[str, ...]:
        """Return the keys of the category's streams that have not ended (`ENDS`)."""
        name = to_text(category)
        keys = await self._read(
            lambda connection: self.reader.open_keys(connection, name)
        )
        return tuple(map(from_text, keys))

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        """Remove the stream with all its events.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
            LeaseLost: This process was taken for dead.
        """
        forget = Forget(stream=name_of(stream), expected=expected_version)
        await self._write(stream, forget)

    async def _write(self, stream: Stream[E], write: Write) -> int:
        try:
            return await self.writes.ask(write)
        except StreamMoved as moved:
            raise attrs.evolve(
                moved, category=stream.category, key=stream.key
            ) from None

    async def _read(self, read: Callable[[C], T]) -> T:
        # The thread carries answers of all kinds; this read gives a T.
        return cast(T, await self.reads.ask(read))
