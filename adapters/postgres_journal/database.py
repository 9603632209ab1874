# SPDX-License-Identifier: Apache-2.0
"""The database: how it is reached and recognised, and what may be wrong with it.

All of ours is in one schema. A schema with tables of another program is left alone,
one of a newer version is not touched. The password is in no message: what a server
says is told in its first line alone, with the password covered.
"""

import select
import time
from collections.abc import Callable
from typing import Final, LiteralString, TypeVar

import attrs
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from ...ports.required.journal import JournalTooNew, JournalUnusable
from .migrations import MIGRATIONS

Connection = psycopg.Connection[tuple[object, ...]]

CONNECT_SECONDS_MAX: Final = 10
RECONNECT_SECONDS_MAX: Final = 15.0
RECONNECT_PAUSE_SECONDS: Final = 0.25
STATEMENT_SECONDS_MAX: Final = 30
LOCK_SECONDS_MAX: Final = 10
"""How long to wait for another writer that is at the same stream."""
TRIES_MAX: Final = 6
"""How often a statement is tried that the server gave up by itself."""
REASON_CHARACTERS_MAX: Final = 200
COVERED: Final = "…"

_KEEPALIVE: Final = {
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""So that a server that is cut off is noticed, also by who only listens."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Database:
    """Where the journal is."""

    url: str
    """`postgresql://user@host:port/database`, or libpq's `key=value` words."""
    password: str = attrs.field(default="", repr=False)
    schema: str = "livery"
    patience_seconds: float = RECONNECT_SECONDS_MAX
    """How long a lost server is looked for before those who ask are told."""

    @property
    def where(self) -> str:
        """The place as it is told: without user and password.

        Raises:
            JournalUnusable: The URL cannot be read.
        """
        words = _surroundings() | self._words()
        host = words.get("host") or words.get("hostaddr", "")
        port = words.get("port", "")
        place = f"{host}:{port}" if port and host else host or "localhost"
        # One that is not named has its user's name.
        name = words.get("dbname") or words.get("user", "")
        return f"PostgreSQL {place}, database {name}"

    def open_link(self) -> "Link":
        """Open a link.

        Raises:
            JournalUnusable: It cannot be had.
        """
        link = Link(database=self)
        link.open()
        return link

    def connect(self) -> Connection:
        """Open a connection of our ways: each statement is a transaction.

        Raises:
            JournalUnusable: It cannot be had.
        """
        words = _KEEPALIVE | {"application_name": "livery"} | self._words()
        try:
            connection = psycopg.connect(
                make_conninfo("", **words),
                autocommit=True,
                connect_timeout=CONNECT_SECONDS_MAX,
            )
            connection.execute(_settings())
        except psycopg.Error as error:
            raise self.unusable(error) from None
        return connection

    def prepare(self, connection: Connection) -> int:
        """Bring the schema to our format, whatever older one or none is there.

        Returns that format.

        Raises:
            JournalUnusable, JournalTooNew: As they say; nothing was changed.
        """
        try:
            if self._format(connection) == len(MIGRATIONS):
                return len(MIGRATIONS)
            with connection.transaction():
                # Of several processes that come at once, the others wait for one.
                connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtext(%s))",
                    (f"livery {self.schema}",),
                )
                for statements in MIGRATIONS[self._format(connection) :]:
                    for statement in statements:
                        connection.execute(self.sql(statement))
                connection.execute(self.sql(_SET_FORMAT), (len(MIGRATIONS),))
        except psycopg.Error as error:
            raise self.unusable(error) from None
        return len(MIGRATIONS)

    def sql(self, statement: LiteralString) -> sql.Composed:
        """Return the statement with `{s}` as the name of our schema."""
        return sql.SQL(statement).format(s=sql.Identifier(self.schema))

    def unusable(self, error: psycopg.Error) -> JournalUnusable:
        """Return the failure that says what is wrong and what to do about it."""
        state = error.sqlstate or ""
        told = error.diag.message_primary or str(error)
        said = _SAID.get(state) or _SAID.get(state[:2])
        reason, advice = said or (self._first_line(told), _OTHER_ADVICE)
        if not state:
            reason, advice = self._last_line(told), _REACH_ADVICE
        return self.said(reason, advice)

    def said(self, reason: str, advice: str) -> JournalUnusable:
        """Return the failure with this reason."""
        return JournalUnusable(where=self.where, reason=reason, advice=advice)

    def damaged(self, what: str) -> JournalUnusable:
        """Return the failure of a database that holds what nobody wrote."""
        return self.said(what, "Restore the database from a copy, or use a new schema.")

    def _words(self) -> dict[str, str]:
        try:
            words = conninfo_to_dict(self.url)
        except psycopg.ProgrammingError:
            # What the library says quotes the URL.
            raise JournalUnusable(
                where="PostgreSQL",
                reason="its URL cannot be read",
                advice="Write it as postgresql://user@host:port/database.",
            ) from None
        if self.password:
            words["password"] = self.password
        return {name: str(word) for name, word in words.items() if word is not None}

    def _first_line(self, text: str) -> str:
        return self._covered(text.strip().partition("\n")[0])

    def _last_line(self, text: str) -> str:
        # What begins with a tab is libpq's guess about the line before it.
        lines = [line for line in text.strip().split("\n") if line[:1] != "\t"]
        return self._covered(lines[-1])

    def _covered(self, text: str) -> str:
        password = self._words().get("password", "")
        shown = text.replace(password, COVERED) if password else text
        return shown.strip()[:REASON_CHARACTERS_MAX]

    def _format(self, connection: Connection) -> int:
        row = connection.execute(_FIND, (self.schema,)).fetchone()
        assert row is not None, "an aggregate has a row"
        tables, ours = row
        if not ours:
            if tables:
                raise self.said(
                    f"its schema {self.schema} has tables of another program",
                    "Name another schema ([journal] schema).",
                )
            return 0
        row = connection.execute(self.sql(_FORMAT)).fetchone()
        found = row[0] if row is not None else None
        if not isinstance(found, int) or found < 1:
            raise self.damaged(f"it has format {found}, which never was")
        if found > len(MIGRATIONS):
            raise JournalTooNew(where=self.where, found=found, known=len(MIGRATIONS))
        return found


@attrs.define(kw_only=True)
class Link:
    """A connection that is opened again when the server was lost."""

    database: Database
    _connection: Connection | None = attrs.field(default=None, init=False)
    _lost_at: float | None = attrs.field(default=None, init=False)

    @property
    def is_down(self) -> bool:
        """Whether the server was not there when it was looked for last."""
        return self._lost_at is not None

    def open(self) -> None:
        """Connect now.

        Raises:
            JournalUnusable: It cannot be had.
        """
        self._connection = self.database.connect()

    def run(self, act: Callable[[Connection], T], *, changes: bool) -> T:
        """Return what `act` comes to, over a connection that works.

        What `changes` something is not done again when nobody knows whether it was.

        Raises:
            JournalUnusable: The server is not there, or says no.
        """
        for attempt in range(1, TRIES_MAX + 1):
            connection = self._connected()
            try:
                return act(connection)
            except psycopg.Error as error:
                # One that is read-only stays it: the primary may be elsewhere by now.
                lost = connection.closed or error.sqlstate == _READ_ONLY
                if lost:
                    self.close()
                # With a code the server itself said that nothing was done.
                undone = error.sqlstate in _GIVEN_UP if error.sqlstate else not changes
                if attempt == TRIES_MAX or not (undone and (lost or error.sqlstate)):
                    raise self.database.unusable(error) from None
        raise AssertionError("the loop returns or raises")

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        if self._connection is not None and _has_ended(self._connection):
            self.close()
        while self._connection is None:
            try:
                self._connection = self.database.connect()
            except JournalUnusable:
                now = time.monotonic()
                if self._lost_at is None:
                    self._lost_at = now
                # Who asks later, while it is still away, is told at once.
                if now - self._lost_at >= self.database.patience_seconds:
                    raise
                time.sleep(RECONNECT_PAUSE_SECONDS)
        self._lost_at = None
        return self._connection


def _surroundings() -> dict[str, str]:
    """What libpq takes where the URL says nothing: PGHOST and so on."""
    return {
        one.keyword.decode(): one.val.decode(errors="replace")
        for one in Conninfo.get_defaults()
        if one.val is not None and one.val != one.compiled
    }


def _settings() -> sql.Composed:
    """What was committed is on disk, also where a database is set up otherwise."""
    return sql.SQL("""
        SET statement_timeout = {statement};
        SET lock_timeout = {lock};
        SET default_transaction_isolation = 'read committed';
        SET client_encoding = 'UTF8';
        SELECT set_config('synchronous_commit', 'on', false)
            WHERE current_setting('synchronous_commit') = 'off'
    """).format(
        statement=sql.Literal(f"{STATEMENT_SECONDS_MAX}s"),
        lock=sql.Literal(f"{LOCK_SECONDS_MAX}s"),
    )


def _has_ended(connection: Connection) -> bool:
    """Whether the server has ended a connection over which nothing was asked.

    Nothing else comes over one that does not listen; so nothing is sent in vain, of
    which nobody would know whether it was done.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


_READ_ONLY: Final = "25006"
_GIVEN_UP: Final = frozenset({"40001", "40P01", "57P01", "57P03", _READ_ONLY})
"""Codes of a race or deadlock that was lost, of a server that was shut down, and of one
that is no primary any more."""

_FIND: Final = """
    SELECT count(*), count(*) FILTER (WHERE c.relname = 'installation')
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind = 'r'
"""
_FORMAT: Final = "SELECT format FROM {s}.installation"
_SET_FORMAT: Final = "UPDATE {s}.installation SET format = %s"

_REACH_ADVICE: Final = (
    "See whether the server runs, and whether [journal] names it, its user and its"
    " password rightly."
)
_OTHER_ADVICE: Final = "Look at the server's log."
_RIGHTS_ADVICE: Final = (
    "Give the user the right to create the schema, or to use it and all in it."
)
_SAID: Final = {
    _READ_ONLY: ("it is read-only", "Name the primary server, and no standby."),
    "42501": ("its user may not do that", _RIGHTS_ADVICE),
    "53100": (
        "the disk of its server is full",
        "Make room; nothing has to be started again.",
    ),
    "53300": (
        "its server has no connection left",
        "Raise its max_connections: each process needs three.",
    ),
    "55P03": (
        f"another writer has held a stream for {LOCK_SECONDS_MAX} s",
        "See what the server is busy with (pg_stat_activity), and try again.",
    ),
    "57014": (
        f"a statement was cancelled, after {STATEMENT_SECONDS_MAX} s or by hand",
        "See what the server is busy with (pg_stat_activity), and try again.",
    ),
}
"""What is said of a code, or of a class of codes."""
