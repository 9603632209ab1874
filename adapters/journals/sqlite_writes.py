# SPDX-License-Identifier: Apache-2.0
"""Writing to the SQLite journal: a batch of appends in one transaction.

Each append has its own check of the version that it expects; one that lost its
race is answered so, and the others go on. All that was written is committed once,
or nothing of it is.

Python lets go of its lock in each step of a statement and has to win it back, up to
five milliseconds a time from a busy event loop: that is what a batch costs most, for
the loop as for the thread. So a batch is one step, as long as this process is the only
one that writes (docs/decisions/0073-a-batch-in-one-statement.md), and otherwise few,
whatever its size: statements take many rows.
"""

import sqlite3
import time
from collections.abc import Sequence
from typing import Final

import attrs

from ...ports.required.journal import StreamMoved
from .sqlite_batches import SQL_AT_ONCE, Batch, Head, for_rows, in_sizes
from .sqlite_file import JournalFile
from .waiting import Name
from .writes import Append, Forget, Write

HEADS_MAX: Final = 4096
"""How many streams' places are remembered between batches."""
FILE_LOOK_SECONDS: Final = 0.02
"""How long a batch relies on the look of another one that the file is still there."""


@attrs.define(kw_only=True)
class Writer:
    """Writes batches over one connection."""

    file: JournalFile
    _heads: dict[Name, Head] = attrs.field(factory=dict[Name, Head], init=False)
    """Where streams stand: true as long as no other writer commits."""
    _next_id: int | None = attrs.field(default=None, init=False)
    _outside: object = attrs.field(default=None, init=False)
    """SQLite's count of other writers' commits, as of the last batch."""
    _alone: bool = attrs.field(default=False, init=False)
    """Whether no other writer was seen since the batch before the last."""
    _identity: tuple[int, int] | None = attrs.field(default=None, init=False)
    _look_at_file_from: float = attrs.field(default=0.0, init=False)

    def connect(self) -> sqlite3.Connection:
        """Make the file where there is none, and open it."""
        self.file.make()
        connection = self.file.connect()
        for statement in SQL_AT_ONCE:
            connection.execute(statement)
        self._identity = self.file.identity()
        return connection

    def run(
        self, connection: sqlite3.Connection, works: Sequence[Write]
    ) -> list[int | Exception]:
        """Return each write's new version, or how it lost its race.

        Raises:
            JournalUnusable: Nothing of the batch was written.
        """
        now = time.monotonic()
        if now > self._look_at_file_from:
            if self.file.identity() != self._identity:
                raise self.file.replaced()
            self._look_at_file_from = now + FILE_LOOK_SECONDS
        return self.file.patiently(connection, lambda: self._all(connection, works))

    def _all(
        self, connection: sqlite3.Connection, works: Sequence[Write]
    ) -> list[int | Exception]:
        try:
            answers = self._at_once(connection, works) if self._alone else None
            return self._in_steps(connection, works) if answers is None else answers
        except BaseException:
            self._forget()  # Nobody knows what was committed.
            raise

    def _at_once(
        self, connection: sqlite3.Connection, works: Sequence[Write]
    ) -> list[int | Exception] | None:
        """Write the batch in one step, if all is as it is known here.

        None: it is not, and nothing was written.
        """
        # What is expected to be there and is not known may well be there.
        self._look_up(connection, [work for work in works if work.expected])
        batch, answers = self._gathered(connection, works)
        if not batch.write_at_once(self._outside):
            return None
        self._note(batch)
        return answers

    def _in_steps(
        self, connection: sqlite3.Connection, works: Sequence[Write]
    ) -> list[int | Exception]:
        connection.execute("BEGIN IMMEDIATE")
        self._look(connection, works)
        batch, answers = self._gathered(connection, works)
        batch.write_in_steps()
        connection.execute("COMMIT")
        self._note(batch)
        return answers

    def _gathered(
        self, connection: sqlite3.Connection, works: Sequence[Write]
    ) -> tuple[Batch, list[int | Exception]]:
        """Return what is to be written, and the answers once it is."""
        assert self._next_id is not None, "it was looked up for the first batch"
        batch = Batch(connection=connection, next_id=self._next_id)
        return batch, [self._one(batch, work) for work in works]

    def _note(self, batch: Batch) -> None:
        """Know where the streams stand that a batch wrote, once it is committed."""
        self._next_id = batch.next_id
        for stream, head in batch.heads.items():
            self._heads.pop(stream, None)
            if head is not None:
                self._heads[stream] = head  # The last one: it is in use.
        while len(self._heads) > HEADS_MAX:
            del self._heads[next(iter(self._heads))]

    def _one(self, batch: Batch, work: Write) -> int | Exception:
        name = work.stream
        head = batch.heads[name] if name in batch.heads else self._heads.get(name)
        found = 0 if head is None else head.version
        if found != work.expected:
            category, key = name
            return StreamMoved(
                category=category, key=key, expected=work.expected, found=found
            )
        match work:
            case Forget():
                if head is None:
                    batch.expect_absent(name)
                else:
                    batch.remove(name, head)
                return 0
            case Append(records=()):
                if head is None:
                    batch.expect_absent(name)
                return found
            case Append():
                return batch.add(head, work)

    def _look(self, connection: sqlite3.Connection, works: Sequence[Write]) -> None:
        """Know where each stream of the batch stands."""
        (outside,) = connection.execute("PRAGMA data_version").fetchone()
        self._alone = outside == self._outside
        if not self._alone:
            self._forget()
            self._outside = outside
        if self._next_id is None:
            (last,) = connection.execute("SELECT max(id) FROM streams").fetchone()
            self._next_id = (last or 0) + 1
        self._look_up(connection, works)

    def _forget(self) -> None:
        self._heads.clear()
        self._next_id = None
        self._alone = False

    def _look_up(self, connection: sqlite3.Connection, works: Sequence[Write]) -> None:
        unknown = {work.stream for work in works if work.stream not in self._heads}
        for names in in_sizes(list(unknown)):
            rows = [(number, *name) for number, name in enumerate(names)]
            (found,) = connection.execute(
                _SQL_HEADS[len(rows)], [value for row in rows for value in row]
            ).fetchone()
            for line in (found or "").split():
                number, id_, version = line.split(":")
                self._heads[names[int(number)]] = Head(int(id_), int(version))


# CROSS JOIN keeps SQLite from scanning the streams for the names.
_SQL_HEADS: Final = for_rows(
    "WITH wanted (number, category, key) AS (VALUES {rows})"
    " SELECT group_concat(number || ':' || id || ':' || version, ' ')"
    " FROM wanted CROSS JOIN streams USING (category, key)",
    3,
)
