# SPDX-License-Identifier: Apache-2.0
"""Reading the SQLite journal: each answer in one step of one statement.

So an answer is of one moment, and a busy event loop is waited for once
(`sqlite_writes.py` tells why). What is read is checked: a stream's events are all
there, in order, and each is an event that this version knows.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from ...ports.required.journal import Event, History
from .records import Unreadable, events_of
from .sqlite_file import JournalFile
from .waiting import Looked, Name

Read = Callable[[sqlite3.Connection], object]


@attrs.define(kw_only=True)
class Reader:
    """Reads over one connection of its own."""

    file: JournalFile
    _outside: object = attrs.field(default=None, init=False)

    def connect(self) -> sqlite3.Connection:
        """Open the file, which is there, for reading alone."""
        connection = self.file.connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def run(
        self, connection: sqlite3.Connection, reads: Sequence[Read]
    ) -> list[object]:
        """Return what each read gives, or how it failed; the others go on."""
        return [self._one(connection, read) for read in reads]

    def history(
        self, connection: sqlite3.Connection, stream: Name, after: int
    ) -> History[Event]:
        """Return the events behind version `after`.

        Raises:
            JournalUnusable: Something is missing, or no event that we know.
        """
        found = connection.execute(_SQL_HISTORY, (after, *stream)).fetchone()
        if found is None:
            return History((), 0)
        version, rows = found
        where = "/".join(stream)
        records: list[tuple[int, str, str]] = json.loads(rows)
        try:
            events = events_of(records, where=where, after=after, version=version)
        except Unreadable as unreadable:
            raise self.file.damaged(unreadable.reason) from unreadable
        return History(events, version)

    def open_keys(
        self, connection: sqlite3.Connection, category: str
    ) -> tuple[str, ...]:
        """Return the keys of a category's open streams, the oldest first."""
        (keys,) = connection.execute(_SQL_OPEN, (category,)).fetchone()
        return tuple(json.loads(keys))

    def version(self, connection: sqlite3.Connection, stream: Name) -> int:
        """Return where a stream stands; 0 when there is none."""
        found = connection.execute(_SQL_VERSION, stream).fetchone()
        return found[0] if found else 0

    def versions(
        self,
        connection: sqlite3.Connection,
        streams: Sequence[Name],
        *,
        newcomers: bool,
    ) -> "Looked":
        """Return where streams stand, 0 where there is none.

        Nothing is returned when nothing was written since the last look, unless there
        are `newcomers` among them, which no look was at before.
        """
        (outside,) = connection.execute("PRAGMA data_version").fetchone()
        if outside == self._outside and not newcomers:
            return Looked({})
        wanted = json.dumps(streams)
        (rows,) = connection.execute(_SQL_VERSIONS, (wanted,)).fetchone()
        self._outside = outside
        return Looked(
            {(category, key): version for category, key, version in json.loads(rows)}
        )

    def _one(self, connection: sqlite3.Connection, read: Read) -> object:
        try:
            return self.file.patiently(connection, lambda: read(connection))
        except Exception as failure:  # It answers this read and no other.
            return failure


_SQL_HISTORY: Final = """
    SELECT version, (
        SELECT json_group_array(json_array(version, kind, body)) FROM (
            SELECT version, kind, body FROM events
            WHERE stream = streams.id AND version > ? ORDER BY version
        )
    ) FROM streams WHERE category = ? AND key = ?
"""
_SQL_OPEN: Final = """
    SELECT json_group_array(key) FROM (
        SELECT key FROM streams WHERE category = ? AND is_open ORDER BY id
    )
"""
_SQL_VERSION: Final = "SELECT version FROM streams WHERE category = ? AND key = ?"
# A left join keeps SQLite from scanning the streams for the names.
_SQL_VERSIONS: Final = """
    SELECT json_group_array(
        json_array(wanted.value ->> 0, wanted.value ->> 1, coalesce(version, 0))
    )
    FROM json_each(?) AS wanted LEFT JOIN streams
    ON streams.category = wanted.value ->> 0 AND streams.key = wanted.value ->> 1
"""
