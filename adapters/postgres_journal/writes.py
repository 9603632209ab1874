# SPDX-License-Identifier: Apache-2.0
"""Writing to the PostgreSQL journal: a batch of appends in one statement.

Each append has its own check of the version that it expects; one that lost its race is
answered so, and the others go on. The whole batch is refused when the lease of this
process was taken away. Streams are taken in the order of their names, so that two
batches never wait for each other.
"""

from collections.abc import Sequence
from typing import Final, cast

import attrs

from ...ports.required.journal import LeaseLost, StreamMoved
from ..journals.writes import Append, Write
from .database import Connection, Database, Link
from .leases import Lease

NAME_CHARACTERS_MAX: Final = 2000
"""What an index of PostgreSQL takes, with room to spare."""


@attrs.frozen(kw_only=True)
class Writer:
    """Writes batches over a link of its own."""

    database: Database
    lease: Lease | None = None

    def run(self, link: Link, works: Sequence[Write]) -> list[int | Exception]:
        """Return each write's new version, or how it lost its race.

        Raises:
            LeaseLost: Another process has taken over what this one had.
            JournalUnusable: Nothing of the batch was written; or, where the server was
                lost in the middle of it, nobody can tell.
        """
        answers: list[int | Exception] = [self._too_long(work) for work in works]
        order = sorted(
            (number for number, work in enumerate(works) if _fits(work)),
            key=lambda number: works[number].stream,
        )
        batch = [works[number] for number in order]
        versions = link.run(
            lambda connection: self._all(connection, batch), changes=True
        )
        for number, version in zip(order, versions, strict=True):
            answers[number] = (
                version if version >= 0 else _moved(works[number], version)
            )
        return answers

    def _all(self, connection: Connection, batch: Sequence[Write]) -> list[int]:
        if not batch:
            return []
        appends = [work if isinstance(work, Append) else None for work in batch]
        records = [record for work in appends if work for record in work.records]
        row = connection.execute(
            self.database.sql(_WRITE),
            (
                None if self.lease is None else self.lease.fence,
                self.database.schema,
                [work.stream[0] for work in batch],
                [work.stream[1] for work in batch],
                [work.expected for work in batch],
                [None if work is None else work.stays_open for work in appends],
                [0 if work is None else len(work.records) for work in appends],
                [record.kind for record in records],
                [record.body for record in records],
            ),
        ).fetchone()
        assert row is not None, "a function has a value"
        if row[0] is None:
            assert self.lease is not None, "without one there is nothing to lose"
            self.lease.lose()
            raise LeaseLost(holder=self.lease.holder)
        return cast("list[int]", row[0])  # As the function is declared.

    def _too_long(self, work: Write) -> Exception:
        return self.database.said(
            f"the name of a stream has more than {NAME_CHARACTERS_MAX} characters:"
            f" {work.stream[1][:40]}…",
            "Use shorter ids.",
        )


def _fits(work: Write) -> bool:
    return sum(map(len, work.stream)) <= NAME_CHARACTERS_MAX


def _moved(work: Write, answer: int) -> StreamMoved:
    category, key = work.stream
    return StreamMoved(
        category=category, key=key, expected=work.expected, found=-1 - answer
    )


_WRITE: Final = """
    SELECT {s}.write(%s::bigint, %s, %s::text[], %s::text[], %s::integer[],
        %s::boolean[], %s::integer[], %s::text[], %s::text[])
"""
