# SPDX-License-Identifier: Apache-2.0
"""The journal in PostgreSQL: for workers on any number of hosts.

One thread writes and one reads, each over a connection of its own; a third connection
listens, on the event loop, for what others write. Appends that wait at the same time
share a statement and its way to the disk. When an append raises `JournalUnusable` it
was not written, or, where the server was lost in the middle of it, may have been: who
reads next sees which.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import attrs

from ...domain.claims import Holder
from ...ports.required.journal import LeaseLost, Stream
from ..journals.database_journal import DatabaseJournal
from ..journals.database_thread import DatabaseThread
from ..journals.waiting import Name, Waiting
from ..journals.writes import Write, name_of
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
        name="journal-reader", connect=database.open_link, run=reader.run
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
            connect=database.open_link,
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
class PostgresJournal(DatabaseJournal[Link, Connection]):
    """A journal in one schema of a database; `open_postgres_journal` makes it."""

    reader: Reader
    leases: Leases
    lease: Lease | None = None

    @property
    def holders(self) -> PostgresHolders:
        """The processes on this journal, as this one sees them."""
        assert self.lease is not None, "it was opened with a lease"
        return PostgresHolders(self.lease, self._alive)

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        """Wait until the stream is not at version `after`, and return its version."""
        name = name_of(stream)
        with self.waiting.at(name) as waiter:
            version = await self._version(name)
            while version == after:
                version = await waiter.next_version()
                if version < after:  # Forgotten, or told before it was written.
                    version = await self._version(name)
        return version

    async def _version(self, name: Name) -> int:
        looked = await self._read(
            lambda connection: self.reader.versions(connection, (name,))
        )
        return looked.versions[name]

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
        return await DatabaseJournal[Link, Connection]._write(self, stream, write)
