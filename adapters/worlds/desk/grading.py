# SPDX-License-Identifier: Apache-2.0
"""Grading: the office ended as the task wanted it, and nothing else was changed.

The end is held against the beginning. Each difference must be one of the wanted
changes, and each wanted change must be there once. A new row has the defaults of what
the apps write where the task says nothing.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from ....domain.digests import Json
from .desk_task import Change
from .tables import TABLES, WRITTEN, Row, Rows

TOLD_MAX: Final = 20
"""So many differences are told in words."""


@attrs.frozen
class Difference:
    """One row that is not as it was."""

    table: str
    id: int
    before: Row | None
    after: Row | None

    @property
    def words(self) -> str:
        """What became of the row."""
        if self.before is None:
            return f"{self.table} {self.id} is new"
        if self.after is None:
            return f"{self.table} {self.id} is gone"
        names = [n for n in self.before if self.before[n] != self.after[n]]
        return f"{self.table} {self.id} has another {', '.join(names)}"


def differences(before: Rows, after: Rows) -> tuple[Difference, ...]:
    """Return every row that differs, by table and id."""
    keys = sorted({*before, *after})
    return tuple(
        Difference(table, id, before.get((table, id)), after.get((table, id)))
        for table, id in keys
        if before.get((table, id)) != after.get((table, id))
    )


def faults(
    found: Sequence[Difference], wanted: Iterable[Change], *, me: str, now: str
) -> tuple[str, ...]:
    """Return what is missing and what is too much, a sentence each; none: it is done."""
    changes = list(wanted)
    shown_by = _paired(
        [
            [i for i, one in enumerate(found) if _is(one, change, me, now)]
            for change in changes
        ]
    )
    missing = [
        f"a change of {change.table}{'' if change.id is None else f' {change.id}'}"
        " is missing"
        for number, change in enumerate(changes)
        if number not in shown_by
    ]
    paired = {*shown_by.values()}
    extra = [
        f"{one.words}, which was not wanted"
        for i, one in enumerate(found)
        if i not in paired
    ]
    return (*missing, *extra)[:TOLD_MAX]


def _paired(fitting: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return a difference for as many of the wanted changes as can have one each.

    Several may fit one change, so the first that fits may be the only one that another
    change could have had: it is given up where whoever has it can have another.
    """
    shown_by: dict[int, int] = {}
    shows: dict[int, int] = {}
    for wanted in range(len(fitting)):
        asked_by: dict[int, int] = {}
        asking = deque([wanted])
        while asking:
            asker = asking.popleft()
            fresh = [i for i in fitting[asker] if i not in asked_by]
            asked_by.update(dict.fromkeys(fresh, asker))
            free = next((i for i in fresh if i not in shows), None)
            if free is None:
                asking.extend(shows[i] for i in fresh)
                continue
            given: int | None = free
            while given is not None:
                asker = asked_by[given]
                before = shown_by.get(asker)
                shows[given], shown_by[asker] = asker, given
                given = before
            break
    return shown_by


def _is(found: Difference, wanted: Change, me: str, now: str) -> bool:
    if found.table != wanted.table:
        return False
    if wanted.id is None:
        return (
            found.before is None
            and found.after is not None
            and _fits(found.after, _new(wanted, me, now))
        )
    if found.id != wanted.id or found.before is None:
        return False
    if wanted.values is None:
        return found.after is None
    return found.after is not None and _fits(
        found.after, {**found.before, **wanted.values}
    )


def _new(wanted: Change, me: str, now: str) -> Row:
    assert wanted.values is not None, "a new row has values"
    plain = {c.name: c.default for c in TABLES[wanted.table] if c.default is not None}
    by_apps: Row = {
        "author": me,
        "folder": "sent",
        "posted_at": now,
        "seen": True,
        "sender": me,
        "sent_at": now,
    }
    written = {name: by_apps[name] for name in WRITTEN.get(wanted.table, ())}
    return {**plain, **written, **wanted.values}


def _fits(row: Row, wanted: Row) -> bool:
    return all(
        name in wanted and _same(value, wanted[name]) for name, value in row.items()
    )


def _same(value: Json, wanted: Json) -> bool:
    if isinstance(wanted, Mapping) and "contains" in wanted:
        parts = wanted["contains"]
        assert isinstance(parts, list | tuple), "the task was checked"
        return all(_plain(str(part)) in _plain(str(value)) for part in parts)
    if isinstance(value, list) and isinstance(wanted, list | tuple):
        return sorted(map(_key, value)) == sorted(map(_key, wanted))
    if isinstance(value, str) and isinstance(wanted, str):
        return _plain(value) == _plain(wanted)
    return value == wanted


def _key(value: Json) -> str:
    if isinstance(value, Mapping):
        return "\0".join(f"{name}={_plain(str(value[name]))}" for name in sorted(value))
    return str(value).casefold()


def _plain(text: str) -> str:
    """Return the text as a reader takes it: blanks and case mean nothing."""
    return " ".join(text.split()).casefold()
