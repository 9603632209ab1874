# SPDX-License-Identifier: Apache-2.0
"""The journal in PostgreSQL: for workers on any number of hosts.

One thread writes and one reads, each over a connection of its own; a third connection
listens, on the event loop, for what others write. Appends that wait at the same time
share a statement and its way to the disk. When an append raises `JournalUnusable` it
was not written, or, where the server was lost in the middle of it, may have been: who
reads next sees which.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import attrs

from ...domain.claims import Holder
from ...ports.required.journal import History, LeaseLost, Stream, StreamMoved
from ..journals.database_thread import DatabaseThread
from ..journals.waiting import Waiting
from ..journals.writes import Forget, Write, append_of, from_text, name_of, to_text
from .database import Connection, Database, Link
from .keeper import Keeper
from .leases import Lease, Leases, PostgresHolders
from .listener import Listener
from .reads import Read, Reader
from .writes import Writer

E = TypeVar("E")
T = TypeVar("T")


@asynccontextmanager
async def open_postgres_journal(
    database: Database,
    *,
    lease_seconds: float | None = None,
    on_lost: Callable[[], None] = lambda: None,
) -> AsyncGenerator["PostgresJournal"]:
    """Open the journal, and make its schema where there is none.

    With `lease_seconds` this process has a lease, which `holders` tells of; `on_lost`
    is called, on the event loop, when it was taken away.

    Raises:
        JournalUnusable, JournalTooNew: As they say; nothing was changed.
    """
    where, leases = database.where, Leases(database=database)
    reader, waiting = Reader(database=database), Waiting()
    reads = DatabaseThread[Link, Read, object](
        name="journal-reader", connect=reader.connect, run=reader.run
    )
    lease: Lease | None = None
    await reads.open()
    try:
        await reads.ask(database.prepare)
        if lease_seconds is not None:
            seconds = lease_seconds
            entered = await reads.ask(lambda link: leases.enter(link, seconds))
            lease = cast(Lease, entered)
        writer = Writer(database=database, lease=lease)
        writes = DatabaseThread[Link, Write, int](
            name="journal-writer",
            connect=writer.connect,
            run=writer.run,
            answered=lambda write, version: waiting.tell(write.stream, version),
        )
        await writes.open()
        listener = Listener(
            database=database, reads=reads, reader=reader, waiting=waiting
        )
        keeper = Keeper(leases=leases, lease=lease, reads=reads, on_lost=on_lost)
        try:
            listener.open()
            keeper.open()
            yield PostgresJournal(
                where=where,
                writes=writes,
                reads=reads,
                reader=reader,
                waiting=waiting,
                leases=leases,
                lease=lease,
            )
        finally:
            listener.close()
            await writes.aclose()
            await keeper.aclose()
    finally:
        await reads.aclose()


@attrs.frozen(kw_only=True, eq=False)
class PostgresJournal:
    """A journal in one schema of a database; `open_postgres_journal` makes it."""

    where: str
    writes: DatabaseThread[Link, Write, int]
    reads: DatabaseThread[Link, Read, object]
    reader: Reader
    waiting: Waiting
    leases: Leases
    lease: Lease | None = None

    @property
    def holders(self) -> PostgresHolders:
        """The processes on this journal, as this one sees them."""
        assert self.lease is not None, "it was opened with a lease"
        return PostgresHolders(self.lease, self._alive)

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

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        """Wait until the stream is past version `after`, and return its version."""
        name = name_of(stream)
        with self.waiting.at(name) as waiter:
            looked = await self._read(
                lambda connection: self.reader.versions(connection, (name,))
            )
            version = looked.versions[name]
            while version <= after:
                version = await waiter.next_version()
        return version

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        """Remove the stream with all its events.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
            LeaseLost: This process was taken for dead.
        """
        forget = Forget(stream=name_of(stream), expected=expected_version)
        await self._write(stream, forget)

    async def belongs_to(self, owner: str, mark: str) -> tuple[str, str]:
        """Return whose journal it is, and their mark: the first who asked."""
        return await self._read(
            lambda connection: self.leases.belonging(connection, owner, mark)
        )

    async def _alive(self, holder: Holder) -> bool:
        return await self._read(
            lambda connection: self.leases.alive(connection, holder)
        )

    async def _write(self, stream: Stream[E], write: Write) -> int:
        if self.lease is not None and self.lease.is_lost:
            raise LeaseLost(holder=self.lease.holder)
        try:
            return await self.writes.ask(write)
        except StreamMoved as moved:
            raise attrs.evolve(
                moved, category=stream.category, key=stream.key
            ) from None

    async def _read(self, read: Callable[[Connection], T]) -> T:
        # The thread carries answers of all kinds; this read gives a T.
        return cast(T, await self.reads.ask(read))
