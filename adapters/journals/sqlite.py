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
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Final, TypeVar, cast

import attrs

from ...ports.required.journal import History, JournalUnusable, Stream, StreamMoved
from .database_thread import DatabaseThread
from .sqlite_file import LOCK_SECONDS_MAX, JournalFile
from .sqlite_reads import Looked, Read, Reader
from .sqlite_writes import Writer
from .waiting import Name, Waiting
from .writes import Forget, Write, append_of, from_text, name_of, to_text

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
                file=file,
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
class SqliteJournal:
    """A journal in one file; `open_sqlite_journal` makes it."""

    file: JournalFile
    writes: DatabaseThread[Connection, Write, int]
    reads: DatabaseThread[Connection, Read, object]
    reader: Reader
    waiting: Waiting
    lookout: "Lookout"
    written: "Written"

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        """Write `events`, all or none, and return the stream's new version.

        When it is cancelled it was done or not by the time it ends.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
            JournalUnusable: As it says; or an event is too large to be kept.
        """
        where = str(self.file.path)
        write = append_of(stream, events, expected=expected_version, where=where)
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
            # What this process wrote last is not looked up again: if another one was
            # here since, the lookout finds that, as it finds what comes later.
            version = after
            if self.written.version(name) != after:
                version = await self._read(
                    lambda connection: self.reader.version(connection, name)
                )
            while version <= after:
                self.lookout.look_soon()
                version = await waiter.next_version()
        return version

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        """Remove the stream with all its events.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
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

    async def _read(self, read: Callable[[Connection], T]) -> T:
        # The thread carries answers of all kinds; this read gives a T.
        return cast(T, await self.reads.ask(read))


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
        match seen:
            case JournalUnusable():
                self.waiting.tell_all(seen)
            case Looked(versions=versions):
                for name, version in versions.items():
                    self.waiting.tell(name, version)
            case _:
                raise AssertionError(f"a look gave {seen!r}")
        if self.waiting.names():
            self.look_soon()
