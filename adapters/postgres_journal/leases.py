# SPDX-License-Identifier: Apache-2.0
"""Leases: which processes live, on any host, by a row each that they renew.

A lease that was not renewed in time may be taken away by who asks; its row is gone
then, and with it the right of its process to write, in the same transaction that a
write is. So a process that was said to be dead never writes again, whatever it
believes itself. Times are those of the database's clock alone.
"""

import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Final, cast

import attrs

from ...domain.claims import Holder
from .database import Connection, Database

RENEWALS: Final = 4
"""How often a lease is renewed within its time."""


@attrs.define(kw_only=True, eq=False)
class Lease:
    """The lease of this process; `fence` is higher than that of any earlier one."""

    holder: Holder
    fence: int
    seconds: float
    _lost: threading.Event = attrs.field(factory=threading.Event, init=False)

    @property
    def is_lost(self) -> bool:
        """Whether it was seen to be taken away."""
        return self._lost.is_set()

    def lose(self) -> None:
        """Note that it was taken away."""
        self._lost.set()


@attrs.frozen(kw_only=True)
class Leases:
    """The statements about leases."""

    database: Database

    def enter(self, connection: Connection, seconds: float) -> Lease:
        """Enter this process among the living, and remove who was not heard of."""
        connection.execute(self.database.sql(_SWEEP))
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
        row = connection.execute(self.database.sql(_ENTER), (name, seconds)).fetchone()
        assert row is not None, "an insert tells what it made"
        fence = cast(int, row[0])  # The column is a number.
        return Lease(holder=Holder(name), fence=fence, seconds=seconds)

    def renew(self, connection: Connection, lease: Lease) -> bool:
        """Renew the lease, and tell whether it was still there."""
        words = (lease.fence,)
        return connection.execute(self.database.sql(_RENEW), words).rowcount == 1

    def leave(self, connection: Connection, lease: Lease) -> bool:
        """Give the lease back, so that others need not wait for its end."""
        words = (lease.fence,)
        return connection.execute(self.database.sql(_LEAVE), words).rowcount == 1

    def alive(self, connection: Connection, holder: Holder) -> bool:
        """Tell whether the holder lives; a lease that was over is taken away."""
        words = {"holder": holder}
        row = connection.execute(self.database.sql(_ALIVE), words).fetchone()
        return row is not None and row[0] is True

    def belonging(
        self, connection: Connection, owner: str, mark: str
    ) -> tuple[str, str]:
        """Return whose the journal is, and their mark: the first who asked."""
        connection.execute(self.database.sql(_CLAIM), (owner, mark))
        row = connection.execute(self.database.sql(_OWNER)).fetchone()
        assert row is not None, "the schema is made with that row"
        return str(row[0]), str(row[1])


@attrs.frozen
class PostgresHolders:
    """The processes on one journal; `own` is this one."""

    lease: Lease
    ask: Callable[[Holder], Awaitable[bool]]
    """Asks the database whether a holder lives."""

    """Asks the database whether a holder lives."""

    @property
    def own(self) -> Holder:
        """The name of this process; no other has or had it."""
        return self.lease.holder

    async def alive(self, holder: Holder) -> bool:
        """Whether that process lives.

        Raises:
            JournalUnusable: The database cannot be asked.
        """
        if holder == self.own:
            return True
        return await self.ask(holder)


_CLAIM: Final = """
    UPDATE {s}.installation SET owner = %s, mark = %s WHERE owner IS NULL
"""
_OWNER: Final = "SELECT owner, mark FROM {s}.installation"
_SWEEP: Final = """
    DELETE FROM {s}.leases
    WHERE renewed_at < clock_timestamp() - make_interval(secs => seconds)
"""
_ENTER: Final = """
    INSERT INTO {s}.leases (holder, seconds, renewed_at)
    VALUES (%s, %s, clock_timestamp()) RETURNING fence
"""
_RENEW: Final = "UPDATE {s}.leases SET renewed_at = clock_timestamp() WHERE fence = %s"
_LEAVE: Final = "DELETE FROM {s}.leases WHERE fence = %s"
_ALIVE: Final = """
    WITH over AS (
        DELETE FROM {s}.leases
        WHERE holder = %(holder)s
            AND renewed_at < clock_timestamp() - make_interval(secs => seconds)
        RETURNING 1
    )
    SELECT EXISTS (SELECT 1 FROM {s}.leases WHERE holder = %(holder)s)
        AND NOT EXISTS (SELECT 1 FROM over)
"""
