# SPDX-License-Identifier: Apache-2.0
"""The journal in a SQLite file: the default, for several processes on one host.

One thread writes and one reads, each over a connection of its own. Appends that
wait at the same time share a transaction and its way to the disk. When an append
raises `JournalUnusable` it was not written, or, where the disk broke in the middle
of it, may have been: who reads next sees which. After a full disk got room again
the same journal works on.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Final, TypeVar

import attrs

from ...ports.required.journal import Stream
from .database_journal import DatabaseJournal
from .database_thread import DatabaseThread
from .sqlite_file import LOCK_SECONDS_MAX, JournalFile
from .sqlite_reads import Read, Reader
from .sqlite_writes import Writer
from .waiting import Name, Waiting
from .writes import Write, name_of

LOOK_SECONDS: Final = 0.25
"""How often other processes are looked for, while somebody waits."""
WRITTEN_MAX: Final = 4096
"""How many streams are known by what was written to them last."""

E = TypeVar("E")
T = TypeVar("T")


@asynccontextmanager
async def open_sqlite_journal(
    path: Path, *, lock_seconds_max: float = LOCK_SECONDS_MAX
) -> AsyncGenerator["SqliteJournal"]:
    """Open the journal at `path`, and make it where there is none.

    Raises:
        JournalUnusable, JournalTooNew: As they say; nothing was changed.
    """
    file = JournalFile(path=path, lock_seconds_max=lock_seconds_max)
    writer, reader, waiting = Writer(file=file), Reader(file=file), Waiting()
    written = Written()

    def answered(write: Write, version: int) -> None:
        written.note(write.stream, version)
        waiting.tell(write.stream, version)

    writes = DatabaseThread[Connection, Write, int](
        name="journal-writer",
        connect=writer.connect,
        run=writer.run,
        answered=answered,
    )
    reads = DatabaseThread[Connection, Read, object](
        name="journal-reader", connect=reader.connect, run=reader.run
    )
    lookout = Lookout(reads=reads, reader=reader, waiting=waiting)
    await writes.open()
    try:
        await reads.open()
        try:
            yield SqliteJournal(
                where=str(path),
                writes=writes,
                reads=reads,
                reader=reader,
                waiting=waiting,
                lookout=lookout,
                written=written,
            )
        finally:
            lookout.close()
            await reads.aclose()
    finally:
        await writes.aclose()


@attrs.frozen(kw_only=True, eq=False)
class SqliteJournal(DatabaseJournal[Connection, Connection]):
    """A journal in one file; `open_sqlite_journal` makes it."""

    reader: Reader
    lookout: "Lookout"
    written: "Written"

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        """Wait until the stream is not at version `after`, and return its version."""
        name = name_of(stream)
        with self.waiting.at(name) as waiter:
            # What this process wrote last is not looked up again: if another one was
            # here since, the lookout finds that, as it finds what comes later.
            version = after
            if self.written.version(name) != after:
                version = await self._version(name)
            while version == after:
                self.lookout.look_soon()
                version = await waiter.next_version()
                if version < after:  # Forgotten, or looked at before it was written.
                    version = await self._version(name)
        return version

    async def _version(self, name: Name) -> int:
        return await self._read(
            lambda connection: self.reader.version(connection, name)
        )


@attrs.frozen
class Written:
    """The versions that this process wrote last, of the latest streams."""

    _versions: OrderedDict[Name, int] = attrs.field(
        factory=OrderedDict[Name, int], init=False
    )

    def note(self, stream: Name, version: int) -> None:
        """Note that the stream was written to here."""
        self._versions[stream] = version
        self._versions.move_to_end(stream)
        if len(self._versions) > WRITTEN_MAX:
            self._versions.popitem(last=False)

    def version(self, stream: Name) -> int | None:
        """Return the version that was written, where it is remembered."""
        return self._versions.get(stream)


@attrs.define(kw_only=True)
class Lookout:
    """Looks for what other processes wrote, as long as somebody waits."""

    reads: DatabaseThread[Connection, Read, object]
    reader: Reader
    waiting: Waiting
    _timer: asyncio.TimerHandle | None = attrs.field(default=None, init=False)
    _looking: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def look_soon(self) -> None:
        """See to it that there is a look within `LOOK_SECONDS`."""
        if self._timer is None and not self._looking and not self._closed:
            # A timer and no task: a task would need a group around the caller's
            # block, which would wrap all that is raised there.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if names := self.waiting.names():
            self._looking, newcomers = True, self.waiting.newcomers()
            self.reads.post(
                lambda connection: self.reader.versions(
                    connection, names, newcomers=newcomers
                ),
                self._seen,
            )

    def _seen(self, seen: object) -> None:
        self._looking = False
        self.waiting.take_look(seen)
        if self.waiting.names():
            self.look_soon()
