# SPDX-License-Identifier: Apache-2.0
"""What one transaction of the SQLite journal writes, gathered: in one statement, or in
a few steps that take many rows (`sqlite_writes.py` tells when).
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, TypeVar

import attrs

from .waiting import Name
from .writes import Append

ROWS_SIZES: Final = (128, 64, 32, 16, 8, 4, 2, 1)
"""How many rows a statement takes; a few sizes, so that all stay prepared."""
ROWS_AT_ONCE_MAX: Final = 48
"""How many rows a batch has at most that is one statement."""
CHARACTERS_AT_ONCE_MAX: Final = 256 * 1024
"""How much such a batch says at most: SQLite copies it once more on the way."""
ROWS_FILLED: Final = 4
"""To a multiple of it such a batch is filled with rows that say nothing: statements stay
prepared, each with what it wrote last."""

T = TypeVar("T")
Row = tuple[object, ...]


@attrs.frozen
class Head:
    """Where a stream stands."""

    id: int
    version: int


@attrs.define(kw_only=True)
class Batch:
    """What a transaction is going to write, gathered so that few steps do it."""

    connection: sqlite3.Connection
    next_id: int
    """Of the next stream that is begun."""
    heads: dict[Name, Head | None] = attrs.field(
        factory=dict[Name, Head | None], init=False
    )
    """Where the streams stand that this batch writes; None: it removes it."""
    _begun: dict[int, Name] = attrs.field(factory=dict[int, Name], init=False)
    _stands: dict[int, tuple[int, bool]] = attrs.field(
        factory=dict[int, tuple[int, bool]], init=False
    )
    """Streams by id: their version and whether they are open."""
    _events: list[tuple[int, int, str, str]] = attrs.field(
        factory=list[tuple[int, int, str, str]], init=False
    )
    _absent: list[Name] = attrs.field(factory=list[Name], init=False)
    _removed: list[Row] = attrs.field(factory=list[Row], init=False)

    def expect_absent(self, stream: Name) -> None:
        """Have the batch written at once only if there is no such stream."""
        self._absent.append(stream)

    def add(self, head: Head | None, append: Append) -> int:
        """Add an append's records; return at what version the stream is after them."""
        if head is None:
            head = Head(id=self.next_id, version=0)
            self.next_id += 1
            self._begun[head.id] = append.stream
        id_, before = head.id, head.version
        for version, record in enumerate(append.records, before + 1):
            self._events.append((id_, version, record.kind, record.body))
        version = before + len(append.records)
        self.heads[append.stream] = Head(id_, version)
        self._stands[id_] = (version, append.stays_open)
        return version

    def remove(self, stream: Name, head: Head) -> None:
        """Remove a stream, with what this batch may have added to it."""
        if self._stands.pop(head.id, None) is not None:
            self._events = [event for event in self._events if event[0] != head.id]
        if self._begun.pop(head.id, None) is None:
            self._removed.append((head.id,))
        self.heads[stream] = None

    def write_at_once(self, outside: object) -> bool:
        """Write what was added as a transaction of one statement, or nothing of it.

        Nothing is written when another writer has committed since its count was
        `outside`, when a stream is there that was to be absent or begun, and when
        there is nothing to write or very much; then it returns False. What is too
        many rows for one statement is a few, in a transaction.
        """
        said = sum(len(body) for _, _, _, body in self._events)
        if not (self._events or self._removed) or said > CHARACTERS_AT_ONCE_MAX:
            return False
        rows = self._rows_at_once()
        before = self.connection.total_changes
        try:
            if len(rows) <= ROWS_AT_ONCE_MAX:
                self._insert(rows, outside)
            else:
                self.connection.execute("BEGIN IMMEDIATE")
                for start in range(0, len(rows), ROWS_AT_ONCE_MAX):
                    self._insert(rows[start : start + ROWS_AT_ONCE_MAX], outside)
                self.connection.execute("COMMIT")
        except sqlite3.IntegrityError:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            return False
        return self.connection.total_changes != before

    def _rows_at_once(self) -> list[Row]:
        rows: list[Row]
        rows = [(id_, None, None, None, None, None, None) for (id_,) in self._removed]
        rows += [(None, *name, None, None, None, None) for name in self._absent]
        names = {head.id: name for name, head in self.heads.items() if head}
        for id_, version, kind, body in self._events:
            last, is_open = self._stands[id_]
            stays = is_open if version == last else None
            rows.append((id_, *names[id_], version, stays, kind, body))
        return rows

    def _insert(self, rows: list[Row], outside: object) -> None:
        rows += [(None,) * COLUMNS_AT_ONCE] * (-len(rows) % ROWS_FILLED)
        values = [*(value for row in rows for value in row), outside]
        # Of one row of values: `execute` lets go of Python's lock once more.
        self.connection.executemany(_at_once(len(rows)), (values,))

    def write_in_steps(self) -> None:
        """Write what was added, in the transaction that has been begun."""
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

    def _write(self, statements: dict[int, str], rows: Sequence[Row]) -> None:
        for some in in_sizes(rows):
            values = [value for row in some for value in row]
            self.connection.execute(statements[len(some)], values)


def in_sizes(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut `rows` into pieces of `ROWS_SIZES`."""
    start = 0
    for size in ROWS_SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def for_rows(statement: str, columns: int) -> dict[int, str]:
    """Return the statement for each number of rows, with `{rows}` filled in."""
    return {size: statement.format(rows=_rows(size, columns)) for size in ROWS_SIZES}


def _rows(count: int, columns: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * count)


_SQL_BEGIN: Final = for_rows(
    "INSERT INTO streams (id, category, key, version, is_open) VALUES {rows}", 5
)
_SQL_MOVE: Final = for_rows(
    "WITH moved (id, version, is_open) AS (VALUES {rows})"
    " UPDATE streams SET version = moved.version, is_open = moved.is_open"
    " FROM moved WHERE streams.id = moved.id",
    3,
)
_SQL_REMOVE_EVENTS: Final = for_rows(
    "DELETE FROM events WHERE stream IN (VALUES {rows})", 1
)
_SQL_REMOVE: Final = for_rows("DELETE FROM streams WHERE id IN (VALUES {rows})", 1)
_SQL_EVENTS: Final = for_rows(
    "INSERT INTO events (stream, version, kind, body) VALUES {rows}", 4
)
SQL_AT_ONCE: Final = (
    # A view of the connection's own, and what writing to it does: the file knows
    # nothing of them.
    """CREATE TEMP VIEW batch AS SELECT
        0 AS stream, '' AS category, '' AS key, 0 AS version, 0 AS is_open,
        '' AS kind, '' AS body""",
    """CREATE TEMP TRIGGER batch_written INSTEAD OF INSERT ON batch BEGIN
        SELECT raise(ABORT, 'the stream is there') WHERE NEW.stream IS NULL
            AND EXISTS (
                SELECT 1 FROM streams WHERE category = NEW.category AND key = NEW.key
            );
        DELETE FROM events WHERE NEW.version IS NULL AND stream = NEW.stream;
        DELETE FROM streams WHERE NEW.version IS NULL AND id = NEW.stream;
        INSERT INTO streams (id, category, key, version, is_open)
            SELECT NEW.stream, NEW.category, NEW.key, NEW.version, NEW.is_open
            WHERE NEW.is_open IS NOT NULL
            ON CONFLICT (id) DO UPDATE
            SET version = excluded.version, is_open = excluded.is_open;
        INSERT INTO events (stream, version, kind, body)
            SELECT NEW.stream, NEW.version, NEW.kind, NEW.body
            WHERE NEW.version IS NOT NULL;
    END""",
)
"""What `_at_once` writes to. A row is an event, the last one of a stream with whether
that stays open; or, without a version, a stream to be removed; or, without a stream's
id either, a name that must be free. Those come first, and are begun anew by what comes
after them; in another order the batch would be refused, since names are unique."""

COLUMNS_AT_ONCE: Final = 7


@cache
def _at_once(rows: int) -> str:
    return (
        f"INSERT INTO batch SELECT * FROM (VALUES {_rows(rows, COLUMNS_AT_ONCE)})"
        " WHERE (SELECT data_version FROM pragma_data_version) = ?"
    )
