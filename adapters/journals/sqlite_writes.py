# SPDX-License-Identifier: Apache-2.0
"""Writing to the SQLite journal: a batch of appends in one transaction.

Each append has its own check of the version that it expects; one that lost its
race is answered so, and the others go on. All that was written is committed once,
or nothing of it is.

Python lets go of its lock in each step of a statement and has to win it back, up to
five milliseconds a time from a busy event loop. So a batch takes few steps, whatever
its size: statements take many rows.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import attrs

from ...ports.required.journal import StreamMoved
from .sqlite_file import JournalFile
from .waiting import Name
from .writes import Append, Forget, Write

HEADS_MAX: Final = 4096
"""How many streams' places are remembered between batches."""
ROWS_SIZES: Final = (128, 64, 32, 16, 8, 4, 2, 1)
"""How many rows a statement takes; a few sizes, so that all stay prepared."""

T = TypeVar("T")
Row = tuple[object, ...]


@attrs.define
class _Head:
    id: int
    version: int


@attrs.define(kw_only=True)
class Writer:
    """Writes batches over one connection."""

    file: JournalFile
    _heads: dict[Name, _Head] = attrs.field(factory=dict[Name, _Head], init=False)
    _next_id: int | None = attrs.field(default=None, init=False)
    _outside: object = attrs.field(default=None, init=False)
    """SQLite's count of other writers' commits, as of the last batch."""
    _identity: tuple[int, int] | None = attrs.field(default=None, init=False)

    def connect(self) -> sqlite3.Connection:
        """Make the file where there is none, and open it."""
        self.file.make()
        connection = self.file.connect()
        self._identity = self.file.identity()
        return connection

    def run(
        self, connection: sqlite3.Connection, works: Sequence[Write]
    ) -> list[int | Exception]:
        """Return each write's new version, or how it lost its race.

        Raises:
            JournalUnusable: Nothing of the batch was written.
        """
        if self.file.identity() != self._identity:
            raise self.file.replaced()
        return self.file.patiently(connection, lambda: self._all(connection, works))

    def _all(
        self, connection: sqlite3.Connection, works: Sequence[Write]
    ) -> list[int | Exception]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._look(connection, works)
            batch = _Batch(connection=connection)
            answers = [self._one(batch, work) for work in works]
            batch.flush()
            connection.execute("COMMIT")
        except BaseException:
            self._forget_heads()  # They say what was not committed.
            raise
        return answers

    def _one(self, batch: "_Batch", work: Write) -> int | Exception:
        head = self._heads.get(work.stream)
        found = 0 if head is None else head.version
        if found != work.expected:
            category, key = work.stream
            return StreamMoved(
                category=category, key=key, expected=work.expected, found=found
            )
        match work:
            case Forget():
                if head is not None:
                    batch.remove(head.id)
                    del self._heads[work.stream]
                return 0
            case Append(records=()):
                return found
            case Append():
                if head is None:
                    head = self._begin(batch, work.stream)
                head.version += len(work.records)
                batch.add(head.id, head.version, work)
                return head.version

    def _begin(self, batch: "_Batch", stream: Name) -> _Head:
        assert self._next_id is not None, "it was looked up for the batch"
        head = _Head(id=self._next_id, version=0)
        self._next_id += 1
        self._heads[stream] = head
        batch.begin(head.id, stream)
        return head

    def _look(self, connection: sqlite3.Connection, works: Sequence[Write]) -> None:
        """Know where each stream of the batch stands."""
        (outside,) = connection.execute("PRAGMA data_version").fetchone()
        if outside != self._outside or len(self._heads) > HEADS_MAX:
            self._forget_heads()
            self._outside = outside
        if self._next_id is None:
            (last,) = connection.execute("SELECT max(id) FROM streams").fetchone()
            self._next_id = (last or 0) + 1
        unknown = {work.stream for work in works if work.stream not in self._heads}
        for names in _in_sizes(list(unknown)):
            self._look_up(connection, names)

    def _look_up(self, connection: sqlite3.Connection, names: Sequence[Name]) -> None:
        rows = [(number, *name) for number, name in enumerate(names)]
        (found,) = connection.execute(
            _SQL_HEADS[len(rows)], [value for row in rows for value in row]
        ).fetchone()
        for line in (found or "").split():
            number, id_, version = line.split(":")
            self._heads[names[int(number)]] = _Head(int(id_), int(version))

    def _forget_heads(self) -> None:
        self._heads.clear()
        self._next_id = None


@attrs.define(kw_only=True)
class _Batch:
    """What a transaction is going to write, gathered so that few steps do it."""

    connection: sqlite3.Connection
    _begun: dict[int, Name] = attrs.field(factory=dict[int, Name], init=False)
    _stands: dict[int, tuple[int, bool]] = attrs.field(
        factory=dict[int, tuple[int, bool]], init=False
    )
    """Streams by id: their version and whether they are open."""
    _events: list[Row] = attrs.field(factory=list[Row], init=False)
    _removed: list[Row] = attrs.field(factory=list[Row], init=False)

    def begin(self, stream: int, name: Name) -> None:
        """Add a stream that was not there."""
        self._begun[stream] = name

    def add(self, stream: int, version: int, append: Append) -> None:
        """Add an append's records, after which the stream is at `version`."""
        self._stands[stream] = (version, append.stays_open)
        first = version - len(append.records) + 1
        for its_version, record in enumerate(append.records, first):
            self._events.append((stream, its_version, record.kind, record.body))

    def remove(self, stream: int) -> None:
        """Remove a stream, with what this batch may have added to it."""
        if stream in self._stands:
            self.flush()
        self._removed.append((stream,))

    def flush(self) -> None:
        """Write what was added so far."""
        begun: list[Row] = []
        moved: list[Row] = []
        for stream, (version, is_open) in self._stands.items():
            if stream in self._begun:
                begun.append((stream, *self._begun[stream], version, is_open))
            else:
                moved.append((stream, version, is_open))
        # First of all: a name that is free again may have been begun anew.
        self._write(_SQL_REMOVE_EVENTS, self._removed)
        self._write(_SQL_REMOVE, self._removed)
        self._write(_SQL_BEGIN, begun)
        self._write(_SQL_MOVE, moved)
        self._write(_SQL_EVENTS, self._events)
        for written in (self._begun, self._stands, self._events, self._removed):
            written.clear()

    def _write(self, statements: dict[int, str], rows: Sequence[Row]) -> None:
        for some in _in_sizes(rows):
            values = [value for row in some for value in row]
            self.connection.execute(statements[len(some)], values)


def _in_sizes(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut `rows` into pieces of `ROWS_SIZES`."""
    start = 0
    for size in ROWS_SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def _for_rows(statement: str, columns: int) -> dict[int, str]:
    """Return the statement for each number of rows, with `{rows}` filled in."""
    row = f"({', '.join('?' * columns)})"
    return {size: statement.format(rows=", ".join([row] * size)) for size in ROWS_SIZES}


# CROSS JOIN keeps SQLite from scanning the streams for the names.
_SQL_HEADS: Final = _for_rows(
    "WITH wanted (number, category, key) AS (VALUES {rows})"
    " SELECT group_concat(number || ':' || id || ':' || version, ' ')"
    " FROM wanted CROSS JOIN streams USING (category, key)",
    3,
)
_SQL_BEGIN: Final = _for_rows(
    "INSERT INTO streams (id, category, key, version, is_open) VALUES {rows}", 5
)
_SQL_MOVE: Final = _for_rows(
    "WITH moved (id, version, is_open) AS (VALUES {rows})"
    " UPDATE streams SET version = moved.version, is_open = moved.is_open"
    " FROM moved WHERE streams.id = moved.id",
    3,
)
_SQL_REMOVE_EVENTS: Final = _for_rows(
    "DELETE FROM events WHERE stream IN (VALUES {rows})", 1
)
_SQL_REMOVE: Final = _for_rows("DELETE FROM streams WHERE id IN (VALUES {rows})", 1)
_SQL_EVENTS: Final = _for_rows(
    "INSERT INTO events (stream, version, kind, body) VALUES {rows}", 4
)
