# SPDX-License-Identifier: Apache-2.0
"""Reading the PostgreSQL journal: each answer by one statement, so of one moment.

What is read is checked: a stream's events are all there, in order, and each is an event
that this version knows.
"""

from collections.abc import Callable, Sequence
from typing import Final, cast

import attrs

from ...ports.required.journal import Event, History, JournalUnusable
from ..journals.records import Unreadable, events_of
from ..journals.waiting import Looked, Name
from .database import Connection, Database, Link

Read = Callable[[Connection], object]


@attrs.frozen(kw_only=True)
class Reader:
    """Reads over a link of its own."""

    database: Database

    def run(self, link: Link, reads: Sequence[Read]) -> list[object]:
        """Return what each read gives, or how it failed; the others go on.

        When the server is not there, nobody waits for it once more.
        """
        answers: list[object] = []
        for read in reads:
            if link.is_down and answers and isinstance(answers[-1], JournalUnusable):
                answers.append(attrs.evolve(answers[-1]))
            else:
                answers.append(self._one(link, read))
        return answers

    def history(
        self, connection: Connection, stream: Name, after: int
    ) -> History[Event]:
        """Return the events behind version `after`.

        Raises:
            JournalUnusable: Something is missing, or no event that we know.
        """
        words = {"category": stream[0], "key": stream[1], "after": after}
        rows = connection.execute(self.database.sql(_HISTORY), words).fetchall()
        if not rows:
            return History((), 0)
        # The statement gives these columns; there is a row without an event where
        # nothing is behind `after`.
        found = cast("list[tuple[int, int | None, str, str]]", rows)
        version = found[0][0]
        events = [(its, kind, body) for _, its, kind, body in found if its is not None]
        try:
            read = events_of(
                events, where="/".join(stream), after=after, version=version
            )
        except Unreadable as unreadable:
            raise self.database.damaged(unreadable.reason) from unreadable
        return History(read, version)

    def open_keys(self, connection: Connection, category: str) -> tuple[str, ...]:
        """Return the keys of a category's open streams, the oldest first."""
        rows = connection.execute(self.database.sql(_OPEN), (category,)).fetchall()
        return tuple(str(key) for (key,) in rows)

    def versions(self, connection: Connection, streams: Sequence[Name]) -> Looked:
        """Return where streams stand; 0 where there is none."""
        names = [name for name, _ in streams], [key for _, key in streams]
        rows = connection.execute(self.database.sql(_VERSIONS), names).fetchall()
        found = cast("list[tuple[str, str, int]]", rows)
        return Looked({(category, key): version for category, key, version in found})

    def _one(self, link: Link, read: Read) -> object:
        try:
            return link.run(read, changes=False)
        except Exception as failure:  # It answers this read and no other.
            return failure


_HISTORY: Final = """
    SELECT s.version, e.version, e.kind, e.body
    FROM {s}.streams s
        LEFT JOIN {s}.events e ON e.stream = s.id AND e.version > %(after)s
    WHERE s.category = %(category)s AND s.key = %(key)s ORDER BY e.version
"""
_OPEN: Final = "SELECT key FROM {s}.streams WHERE category = %s AND is_open ORDER BY id"
_VERSIONS: Final = """
    SELECT wanted.category, wanted.key, coalesce(s.version, 0)
    FROM unnest(%s::text[], %s::text[]) AS wanted (category, key)
        LEFT JOIN {s}.streams s
            ON s.category = wanted.category AND s.key = wanted.key
"""
