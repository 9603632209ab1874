# SPDX-License-Identifier: Apache-2.0
"""The `task_data` of a desk task, read strictly.

A task says how its office begins (the usual one and more rows, or rows alone), what is
to be changed in it, and how the agent reaches the apps. What is wrong is told with the
path of each field, all of it at once.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Final, cast

import attrs

from ....domain.digests import Json
from ....ports.required.apps import Reach
from ..strict import (
    Mistaken,
    below,
    is_list,
    is_object,
    shown,
    unknown,
    wrong,
)
from ..workspace_paths import clashes, to_relative_path
from .tables import TABLES, WRITTEN, Column, Kind, Row

USUAL: Final = "usual"
"""The office that ships, by its name in tasks."""
OFFICE_KEYS: Final = ("base", "me", "now")
KEYS: Final = ("office", "changes", "reach", "documentation", "files")


@attrs.frozen(kw_only=True)
class Office:
    """How an office begins."""

    me: str
    now: str
    rows: Mapping[str, tuple[Row, ...]]
    """By table; the first has the id 1."""


@attrs.frozen(kw_only=True)
class Change:
    """One difference between the beginning and the end of a task that was done."""

    table: str
    id: int | None = None
    """The row's; None for a new one."""
    values: Row | None = None
    """What the row has then; None: it is gone. A value may be `{"contains": [...]}`."""


@attrs.frozen(kw_only=True)
class DeskTask:
    """What the world knows of one task."""

    office: Office
    changes: tuple[Change, ...]
    reach: Reach
    documentation: str
    files: Mapping[str, str]
    """What lies in the workspace at the beginning."""


def to_desk_task(task_data: Mapping[str, object]) -> DeskTask:
    """Return the task that `task_data` describes; raises `Mistaken`."""
    found = [
        (below("task_data", name), unknown(name, KEYS))
        for name in task_data
        if name not in KEYS
    ]
    office = task_data.get("office")
    if is_object(office):
        found += _office_mistakes(office, "task_data.office")
    else:
        found.append(("task_data.office", wrong(office, "an object")))
    changes = task_data.get("changes", [])
    if is_list(changes):
        rows = _counts(office) if is_object(office) else {}
        for number, change in enumerate(changes):
            found += _change_mistakes(change, f"task_data.changes[{number}]", rows)
    else:
        found.append(("task_data.changes", wrong(changes, "a list")))
    reach = task_data.get("reach", Reach.MCP.value)
    if reach not in [*Reach]:
        known = ", ".join(f'"{way.value}"' for way in Reach)
        found.append(("task_data.reach", wrong(reach, f"one of {known}")))
    documentation = task_data.get("documentation", "office-docs")
    if (
        not isinstance(documentation, str)
        or not documentation.replace("-", "").isalnum()
    ):
        text = wrong(documentation, "letters, digits and hyphens")
        found.append(("task_data.documentation", text))
    given = task_data.get("files", {})
    found += _files_mistakes(given, "task_data.files")
    if found:
        raise Mistaken(found)
    return DeskTask(
        office=_office(cast("Mapping[str, Json]", office)),
        changes=tuple(map(_change, cast("list[Mapping[str, Json]]", changes))),
        reach=Reach(str(reach)),
        documentation=str(documentation),
        files=cast("Mapping[str, str]", given),
    )


@cache
def usual_office() -> Mapping[str, Json]:
    """Return the office that ships, as tasks write it."""
    text = (
        files(__name__.rpartition(".")[0])
        .joinpath("office.json")
        .read_text(encoding="utf-8")
    )
    return cast("Mapping[str, Json]", json.loads(text))


def _office(given: Mapping[str, Json]) -> Office:
    base: Mapping[str, Json] = {}
    if given.get("base") == USUAL:
        base = usual_office()
    rows = {
        table: tuple(
            cast("list[Row]", [*_rows(base.get(table)), *_rows(given.get(table))])
        )
        for table in TABLES
    }
    return Office(
        me=str(given.get("me", base.get("me"))),
        now=str(given.get("now", base.get("now"))),
        rows=rows,
    )


def _rows(value: Json) -> list[Json]:
    return list(value) if isinstance(value, list | tuple) else []


def _change(given: Mapping[str, Json]) -> Change:
    values = given.get("added", given.get("changed"))
    return Change(
        table=str(given["table"]),
        id=cast("int | None", given.get("id")),
        values=cast("Row | None", values),
    )


def _counts(office: Mapping[str, object]) -> dict[str, int]:
    """Return how many rows each table begins with."""
    base: Mapping[str, object] = {}
    if office.get("base") == USUAL:
        base = usual_office()
    return {
        table: sum(
            len(rows) for rows in (base.get(table), office.get(table)) if is_list(rows)
        )
        for table in TABLES
    }


def _files_mistakes(given: object, at: str) -> Iterator[tuple[str, str]]:
    if not is_object(given):
        yield at, wrong(given, "an object of {path: text}")
        return
    paths: list[str] = []
    for path, text in given.items():
        if not isinstance(text, str):
            yield below(at, path), wrong(text, "text")
        try:
            paths.append(to_relative_path(path))
        except ValueError as error:
            yield below(at, path), str(error)
    yield from ((at, told) for told in clashes(paths))


def _office_mistakes(given: Mapping[str, object], at: str) -> Iterator[tuple[str, str]]:
    known = (*OFFICE_KEYS, *TABLES)
    base = given.get("base")
    if base not in (None, USUAL):
        yield below(at, "base"), wrong(base, f'"{USUAL}", or left out')
    for name in ("me", "now"):
        text = given.get(name)
        if not isinstance(text, str) and not (text is None and base == USUAL):
            yield below(at, name), wrong(text, "text")
    for name, rows in given.items():
        if name not in known:
            yield below(at, name), unknown(name, known)
        elif name in TABLES:
            yield from _table_mistakes(rows, TABLES[name], below(at, name))


def _table_mistakes(
    rows: object, columns: tuple[Column, ...], at: str
) -> Iterator[tuple[str, str]]:
    if not is_list(rows):
        yield at, wrong(rows, "a list of rows")
        return
    for number, row in enumerate(rows):
        yield from _row_mistakes(row, columns, f"{at}[{number}]", whole=True)


def _row_mistakes(
    row: object, columns: tuple[Column, ...], at: str, *, whole: bool
) -> Iterator[tuple[str, str]]:
    if not is_object(row):
        yield at, wrong(row, "an object")
        return
    known = {column.name: column for column in columns}
    for name, value in row.items():
        if name not in known:
            yield below(at, name), unknown(name, known)
        elif not _fits(known[name].kind, value, whole=whole):
            yield (
                below(at, name),
                f"is {shown(value)}, must be {known[name].kind.value}",
            )
    for column in columns:
        if whole and column.default is None and column.name not in row:
            yield below(at, column.name), "missing; it must be there"


def _fits(kind: Kind, value: object, *, whole: bool) -> bool:
    if not whole and is_object(value):
        parts = value.get("contains")
        return set(value) == {"contains"} and _are_texts(parts)
    match kind:
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.FLAG:
            return isinstance(value, bool)
        case Kind.NAMES:
            return _are_texts(value)
        case Kind.FILES:
            return is_list(value) and all(
                is_object(one)
                and set(one) == {"name", "text"}
                and _are_texts([*one.values()])
                for one in value
            )


def _are_texts(value: object) -> bool:
    return is_list(value) and all(isinstance(one, str) for one in value)


def _change_mistakes(
    change: object, at: str, rows: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    if not is_object(change):
        yield at, wrong(change, "an object")
        return
    table = change.get("table")
    if not isinstance(table, str) or table not in TABLES:
        yield below(at, "table"), wrong(table, f"one of {', '.join(TABLES)}")
        return
    kinds = [word for word in ("added", "changed", "removed") if word in change]
    expected = {"added": {"table", "added"}, "changed": {"table", "id", "changed"}}
    keys = expected.get(kinds[0], {"table", "id", "removed"}) if kinds else set[str]()
    if len(kinds) != 1 or set(change) != keys:
        yield at, 'must have "table", and "added", or "id" and "changed" or "removed"'
        return
    if "id" in change:
        yield from _id_mistakes(
            change["id"], table, rows.get(table, 0), below(at, "id")
        )
    values, at = change[kinds[0]], below(at, kinds[0])
    if kinds[0] == "removed":
        if values is not True:
            yield at, wrong(values, "true")
        return
    yield from _row_mistakes(values, TABLES[table], at, whole=False)
    if kinds[0] == "added" and is_object(values):
        known = {*values, *WRITTEN.get(table, ())}
        for column in TABLES[table]:
            # No new row could ever be held to be the one that is wanted.
            if column.default is None and column.name not in known:
                yield below(at, column.name), "missing; it must be there"


def _id_mistakes(
    id: object, table: str, rows: int, at: str
) -> Iterator[tuple[str, str]]:
    if isinstance(id, bool) or not isinstance(id, int) or not 1 <= id <= rows:
        yield at, wrong(id, f"the number of one of the {rows} rows of {table}")
