# SPDX-License-Identifier: Apache-2.0
"""One row of a file of tasks, read strictly.

A key twice in one object, a number that is not finite, and text that UTF-8 cannot
write are mistakes anywhere in a row; each is told with the path of its field.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from ...domain.digests import Json
from ...domain.tasks import Task, TaskId

Mistakes = tuple[tuple[str, str], ...]
"""The path of a field, empty for the whole row, and what is wrong there."""

_OWN: Final = ("responses_create_params", "task_data")
_FIRST_KEY: Final = re.compile(r"task_data\.([A-Za-z0-9_-]+)")
_BOM: Final = b"\xef\xbb\xbf"


@attrs.frozen(kw_only=True)
class Row:
    """A task, and which keys of its data stood beside `task_data`."""

    task: Task
    beside: frozenset[str] = frozenset()

    def placed(self, mistake: str) -> str:
        """Return a mistake in the task's data with its path in the row."""
        first = _FIRST_KEY.match(mistake)
        if first is not None and first.group(1) in self.beside:
            return f"task_input{mistake.removeprefix('task_data')}"
        return f"task_input.{mistake}"


@attrs.frozen
class RowRefused(Exception):
    """The line is no row; `row` is what could be made of it all the same."""

    mistakes: Mistakes
    row: Row | None = None


@attrs.frozen
class _KeyTwice(ValueError):
    key: str


def to_row(line: bytes) -> Row:
    """Return the row of one line.

    Raises:
        RowRefused: With every mistake of the line.
    """
    value = _value(line)
    found = list(_unwritable(value, ""))
    if not isinstance(value, Mapping):
        raise RowRefused((("", f"is {_kind(value)}, must be an object"),))
    row = _row(value, found)
    if found or row is None:
        raise RowRefused(tuple(found), row)
    return row


def _value(line: bytes) -> Json:
    if line.startswith(_BOM):
        text = "begins with a byte order mark, must be UTF-8 without one"
        raise RowRefused((("", text),))
    try:
        value: Json = json.loads(line.rstrip().decode(), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        text = f"is not UTF-8 at byte {error.start + 1}, must be JSON in UTF-8"
    except _KeyTwice as twice:
        text = f"has the key {json.dumps(twice.key)} twice in one object"
    except json.JSONDecodeError as error:
        text = f"is not JSON at character {error.pos + 1}: {error.msg}"
    except RecursionError:
        text = "is nested too deeply"
    except ValueError:
        text = "holds a whole number of more digits than are read (4300)"
    else:
        return value
    raise RowRefused((("", text),))


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _KeyTwice(next(key for key in keys if keys.count(key) > 1))
    return found


def _row(value: Mapping[str, Json], found: list[tuple[str, str]]) -> Row | None:
    for name in value.keys() - {"task_id", "task_input"}:
        known = "unknown key; known are task_id, task_input"
        found.append((_below("", name), known))
    task_id = _task_id(value.get("task_id"), found)
    task_input = _entry(value, "task_input", "", found)
    if task_input is None:
        return None
    parameters = _entry(task_input, "responses_create_params", "task_input", found)
    if parameters is not None:
        _check_input(parameters, found)
    data = _data(task_input, found)
    if task_id is None or parameters is None:
        # What the data holds is worth checking, whatever the task is called.
        task_id, parameters = task_id or TaskId("?", "?"), parameters or {}
    return Row(
        task=Task(
            task_id=task_id,
            responses_create_params=dict(parameters),
            task_data=data,
        ),
        beside=frozenset(task_input.keys() - set(_OWN)),
    )


def _task_id(value: Json, found: list[tuple[str, str]]) -> TaskId | None:
    if not isinstance(value, Mapping):
        must = "must be an object {taskset, task_id}"
        what = "missing" if value is None else f"is {_kind(value)}"
        found.append(("task_id", f"{what}, {must}"))
        return None
    before = len(found)
    for name in value.keys() - {"taskset", "task_id"}:
        known = "unknown key; known are task_id, taskset"
        found.append((_below("task_id", name), known))
    parts: list[str] = []
    for name in ("taskset", "task_id"):
        part = value.get(name)
        if isinstance(part, str) and part:
            parts.append(part)
        else:
            what = "missing" if part is None else f"is {_kind(part)}"
            found.append((f"task_id.{name}", f"{what}, must be text, not empty"))
    return TaskId(*parts) if len(found) == before else None


def _entry(
    value: Mapping[str, Json], name: str, path: str, found: list[tuple[str, str]]
) -> Mapping[str, Json] | None:
    entry = value.get(name)
    if isinstance(entry, Mapping):
        return entry
    what = "missing" if name not in value else f"is {_kind(entry)}"
    found.append((_below(path, name), f"{what}, must be an object"))
    return None


def _check_input(parameters: Mapping[str, Json], found: list[tuple[str, str]]) -> None:
    given = parameters.get("input")
    if isinstance(given, str) or (isinstance(given, list) and given):
        return
    what = "missing" if given is None else f"is {_kind(given)}"
    path = "task_input.responses_create_params.input"
    found.append((path, f"{what}, must be text or a list of messages"))


def _data(
    task_input: Mapping[str, Json], found: list[tuple[str, str]]
) -> dict[str, Json]:
    data: dict[str, Json] = {}
    if "task_data" in task_input:
        data.update(_entry(task_input, "task_data", "task_input", found) or {})
    for name, value in task_input.items():
        if name in _OWN:
            continue
        if name in data and data[name] != value:
            text = "is not what task_data has under that key; leave one out"
            found.append((_below("task_input", name), text))
        data.setdefault(name, value)
    return data


def _unwritable(value: Json, path: str) -> Iterator[tuple[str, str]]:
    """Tell the values that cannot be written as JSON in UTF-8 again."""
    if isinstance(value, str):
        if not _is_text(value):
            yield path, "holds half of a surrogate pair, which is no text"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield path, f"is {value}, must be a finite number"
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if not _is_text(name):
                yield path, "has a key with half of a surrogate pair in it"
            yield from _unwritable(item, _below(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unwritable(item, f"{path}[{index}]")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _below(path: str, name: str) -> str:
    plain = name.isidentifier() or name.replace("-", "_").isidentifier()
    below = name if plain else f"[{json.dumps(name)}]"
    return f"{path}.{below}" if path and plain else f"{path}{below}"


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {json.dumps(value[:40])}" if value else "empty text"
        case Mapping():
            return "an object"
        case _:
            return "a list" if value else "an empty list"
