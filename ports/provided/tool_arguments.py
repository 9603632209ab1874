# SPDX-License-Identifier: Apache-2.0
"""Whether a call's arguments are what the tool takes; if not, words for the model.

The part of JSON Schema that tools use: types, required and unknown properties, enums,
items. A property that the schema does not name is unknown, unless it lets others in.
Content pasted as base64 is refused wherever it stands: files go through the workspace,
by path.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from ...domain.digests import Json
from ..required.apps import Tool, ToolRefused

PASTED_CHARACTERS: Final = 256
"""So long a run of base64 is no word of a text."""

# A text comes from a model and may be of any length, so no search goes back: a run is
# looked at from its beginning alone, and is not tried again shorter.
_RUN: Final = re.compile(
    rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{PASTED_CHARACTERS},}}+"
)
_LINES: Final = re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{60,}+\s++){4}")
_BASE64: Final = re.compile(r";base64,", re.IGNORECASE)
_NO_URL: Final = re.compile(r"[,\s]")
DATA_CHARACTERS: Final = 200
"""What a data URL says of its content is no longer."""
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def check_arguments(tool: Tool, arguments: Mapping[str, Json]) -> None:
    """Raise `ToolRefused`, with every mistake, for arguments that do not fit."""
    found = list(_mistakes(arguments, tool.parameters, ""))
    found += [_use_a_file(tool, name) for name in _pasted(arguments)]
    if found:
        raise ToolRefused("; ".join(found))


def paths_in(tool: Tool, arguments: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the paths of the workspace that the arguments name, each once."""
    paths: list[str] = []
    for name in sorted(tool.attached):
        value = arguments.get(name)
        given = value if isinstance(value, list) else [value]
        paths += [path for path in given if isinstance(path, str)]
    return tuple(dict.fromkeys(paths))


def _mistakes(value: Json, schema: Json, at: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return  # `true`: whatever it is.
    kind = schema.get("type")
    kinds = [str(one) for one in kind] if isinstance(kind, list) else [str(kind)]
    if kind is not None and not any(_is(value, one) for one in kinds):
        yield f"{at or 'the arguments'} must be of type {' or '.join(kinds)}"
        return
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        yield f"{at} must be one of {', '.join(map(str, allowed))}"
    if isinstance(value, Mapping):
        yield from _of_object(value, schema, at)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        for number, one in enumerate(value):
            yield from _mistakes(one, items, f"{at}[{number}]")


def _of_object(
    value: Mapping[str, Json], schema: Mapping[str, Json], at: str
) -> Iterator[str]:
    known = cast("Mapping[str, Json]", schema.get("properties") or {})
    others = schema.get("additionalProperties")
    needed = cast("list[str]", schema.get("required") or [])
    for name in needed:
        if name not in value:
            yield f"{_below(at, name)} is missing"
    for name, one in value.items():
        if name in known:
            yield from _mistakes(one, known[name], _below(at, name))
        elif others is True or isinstance(others, Mapping):
            yield from _mistakes(one, others, _below(at, name))
        elif at and not known and others is None:
            continue  # An object within, of which nothing is said.
        elif known:
            there = ", ".join(sorted(known))
            yield f"{_below(at, name)} is unknown; there are {there}"
        else:
            yield f"{_below(at, name)} is unknown; there are no parameters"


def _is(value: Json, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, ()))


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _pasted(arguments: Mapping[str, Json]) -> Iterator[str]:
    for name, value in arguments.items():
        if any(map(_holds_pasted, _texts(value))):
            yield name


def _texts(value: Json) -> Iterator[str]:
    """Tell the texts in a value, however deep they stand."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list):
            left += one


def _holds_pasted(text: str) -> bool:
    runs = (found.group() for found in _RUN.finditer(text))
    return (
        # A rule of hyphens is drawn, and a path has a slash every few letters.
        any(sum(map(str.isalnum, run)) > len(run) / 2 for run in runs)
        or _LINES.search(text) is not None
        or any(_ends_data_url(text, one.start()) for one in _BASE64.finditer(text))
    )


def _ends_data_url(text: str, at: int) -> bool:
    """Tell whether what stands before `at` begins a data URL."""
    before = text[max(0, at - DATA_CHARACTERS) : at].lower()
    _, data, told = before.rpartition("data:")
    return bool(data) and _NO_URL.search(told) is None


def _use_a_file(tool: Tool, name: str) -> str:
    told = (
        f"{name} holds the content of a file as base64, which is not taken here."
        " Save the file in the workspace and give its path"
    )
    taking = sorted(tool.attached)
    if not taking:
        return told
    option = taking[0].replace("_", "-")
    return f"{told} as {taking[0]}: {tool.app} {tool.action} --{option}=PATH"
