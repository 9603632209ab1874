# SPDX-License-Identifier: Apache-2.0
"""The tables of an office: their columns, and rows as values that can be compared."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import attrs

from ....domain.digests import Json

Row = Mapping[str, Json]
Rows = Mapping[tuple[str, int], Row]
"""All rows of an office, by table and id."""

WRITTEN: Final[Mapping[str, frozenset[str]]] = {
    "mail": frozenset({"folder", "sender", "seen", "sent_at"}),
    "messages": frozenset({"author", "posted_at"}),
    "comments": frozenset({"author"}),
}
"""Columns that the apps fill in by themselves in a new row."""
PAGE_BYTES: Final = 1024
"""Small: an office is a few dozen rows, and there is one for each episode."""


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    NAMES = "names"
    """A list of texts whose order means nothing."""
    FILES = "files"
    """A list of objects with `name` and `text`."""
    FLAG = "flag"


@attrs.frozen
class Column:
    """A column of a table."""

    name: str
    kind: Kind = Kind.TEXT
    default: Json = None
    """What a row has that does not say; None: it must say."""


TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "people": (Column("email"), Column("name"), Column("team", default="")),
    "mail": (
        Column("folder", default="inbox"),
        Column("sender"),
        Column("to", Kind.NAMES),
        Column("cc", Kind.NAMES, default=()),
        Column("subject"),
        Column("body"),
        Column("files", Kind.FILES, default=()),
        Column("seen", Kind.FLAG, default=False),
        Column("sent_at"),
    ),
    "drive": (
        Column("path"),
        Column("text"),
        Column("shared_with", Kind.NAMES, default=()),
    ),
    "calendar": (
        Column("title"),
        Column("starts"),
        Column("ends"),
        Column("place", default=""),
        Column("attendees", Kind.NAMES, default=()),
    ),
    "channels": (Column("name"), Column("members", Kind.NAMES, default=())),
    "messages": (
        Column("channel"),
        Column("author"),
        Column("text"),
        Column("posted_at"),
    ),
    "tickets": (
        Column("title"),
        Column("body", default=""),
        Column("status", default="open"),
        Column("priority", default="normal"),
        Column("assignee", default=""),
    ),
    "comments": (Column("ticket"), Column("author"), Column("text")),
}


def create(connection: sqlite3.Connection) -> None:
    """Create the tables."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    for table, columns in TABLES.items():
        listed = ", ".join(f'"{column.name}" NOT NULL' for column in columns)
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {listed})")
    connection.execute("CREATE TABLE office (me NOT NULL, now NOT NULL)")


def insert(
    connection: sqlite3.Connection, table: str, row: Row, id: int | None = None
) -> int:
    """Add a row with its defaults filled in; return its id."""
    columns = TABLES[table]
    names = ", ".join(f'"{column.name}"' for column in columns)
    marks = ", ".join("?" for _ in columns)
    values = [_written(column, row.get(column.name)) for column in columns]
    done = connection.execute(
        f"INSERT INTO {table} (id, {names}) VALUES (?, {marks})", [id, *values]
    )
    assert done.lastrowid is not None, "a row has an id"
    return done.lastrowid


def update(connection: sqlite3.Connection, table: str, id: int, changed: Row) -> None:
    """Change columns of a row."""
    for column in TABLES[table]:
        if column.name in changed:
            connection.execute(
                f'UPDATE {table} SET "{column.name}" = ? WHERE id = ?',
                [_written(column, changed[column.name]), id],
            )


def remove(connection: sqlite3.Connection, table: str, id: int) -> None:
    """Remove a row."""
    connection.execute(f"DELETE FROM {table} WHERE id = ?", [id])


def rows_of(
    connection: sqlite3.Connection, table: str
) -> Iterator[tuple[int, dict[str, Json]]]:
    """Tell the rows of a table, by id."""
    columns = TABLES[table]
    for id, *values in connection.execute(f"SELECT * FROM {table} ORDER BY id"):
        yield (
            id,
            {c.name: _read(c, value) for c, value in zip(columns, values, strict=True)},
        )


def all_rows(connection: sqlite3.Connection) -> Rows:
    """Return every row of an office."""
    return {
        (table, id): row for table in TABLES for id, row in rows_of(connection, table)
    }


def _written(column: Column, value: Json) -> str | int:
    if value is None:
        value = column.default
    match column.kind:
        case Kind.TEXT:
            return str(value)
        case Kind.FLAG:
            return int(value is True)
        case Kind.NAMES:
            assert isinstance(value, list | tuple), "the task was checked"
            return json.dumps(sorted(map(str, value)))
        case Kind.FILES:
            return json.dumps(value)


def _read(column: Column, value: str | int) -> Json:
    match column.kind:
        case Kind.TEXT:
            return value
        case Kind.FLAG:
            return bool(value)
        case Kind.NAMES | Kind.FILES:
            found: Json = json.loads(str(value))
            return found
