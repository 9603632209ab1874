# SPDX-License-Identifier: Apache-2.0
"""What an action of an app is: a tool, and what it does to the office."""

import sqlite3
from collections.abc import Callable, Mapping
from typing import cast

import attrs

from ....domain.digests import Json
from ....ports.required.apps import Tool, ToolRefused, ToolResult
from . import tables
from .tables import Row

Words = Mapping[str, Json]


@attrs.frozen(kw_only=True)
class Desk:
    """The office, while one action is at it."""

    connection: sqlite3.Connection
    me: str
    now: str
    files: Mapping[str, bytes] = attrs.field(factory=dict[str, bytes])
    """What the workspace holds under the paths that were given."""

    def rows(self, table: str) -> list[tuple[int, dict[str, Json]]]:
        """Return the rows of a table."""
        return list(tables.rows_of(self.connection, table))

    def row(self, table: str, id: Json, word: str) -> tuple[int, dict[str, Json]]:
        """Return a row by its id; raises `ToolRefused` when there is none."""
        for number, row in self.rows(table):
            if number == id:
                return number, row
        raise ToolRefused(f"There is no {word} {id}.")

    def add(self, table: str, row: Row) -> int:
        """Add a row."""
        return tables.insert(self.connection, table, row)

    def change(self, table: str, id: int, changed: Row) -> None:
        """Change a row."""
        tables.update(self.connection, table, id, changed)

    def drop(self, table: str, id: int) -> None:
        """Remove a row."""
        tables.remove(self.connection, table, id)

    def check_people(self, emails: Json) -> list[str]:
        """Return the addresses; raises `ToolRefused` for who is not in the office."""
        known = {str(row["email"]) for _, row in self.rows("people")}
        given = [str(one) for one in emails] if isinstance(emails, list) else []
        for email in given:
            if email not in known:
                raise ToolRefused(f"Nobody here has the address {email}.")
        return given

    def text_of(self, path: str) -> str:
        """Return the text of a file of the workspace; raises `ToolRefused`."""
        try:
            return self.files[path].decode()
        except UnicodeDecodeError:
            raise ToolRefused(f"{path} is no text file.") from None


Act = Callable[[Desk, Words], ToolResult]


@attrs.frozen
class Action:
    """A tool and what it does."""

    tool: Tool
    act: Act


def action(
    name: str,
    description: str,
    act: Act,
    needed: Mapping[str, Json],
    optional: Mapping[str, Json] | None = None,
    attached: tuple[str, ...] = (),
) -> Action:
    """Return the action `APP ACTION`."""
    app, _, verb = name.partition(" ")
    return Action(
        Tool(
            app=app,
            action=verb,
            description=description,
            parameters={
                "type": "object",
                "properties": {**needed, **(optional or {})},
                "required": list(needed),
                "additionalProperties": False,
            },
            attached=frozenset(attached),
        ),
        act,
    )


def text(description: str) -> Json:
    """Return the schema of a text."""
    return {"type": "string", "description": description}


def texts(description: str) -> Json:
    """Return the schema of a list of texts."""
    return {"type": "array", "items": {"type": "string"}, "description": description}


def number(description: str) -> Json:
    """Return the schema of a number of a row."""
    return {"type": "integer", "description": description}


def flag(description: str) -> Json:
    """Return the schema of a truth value."""
    return {"type": "boolean", "description": description}


def choice(description: str, *words: str) -> Json:
    """Return the schema of one of some words."""
    return {"type": "string", "enum": list(words), "description": description}


def told(row: Row, id: int, *names: str) -> dict[str, Json]:
    """Return columns of a row for the model; all when none is named."""
    return {"id": id, **{name: row[name] for name in names or row}}


def listed(rows: list[dict[str, Json]]) -> ToolResult:
    """Return a list of rows for the model."""
    return ToolResult(told=cast("Json", {"found": rows}))
