# SPDX-License-Identifier: Apache-2.0
"""A shelf's list as text: which artifact is which file, and what it should be.

Reading is strict: an unknown key, a missing one and a value of another type are
refused, with the place.
"""

import json
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import attrs
from cattrs import BaseValidationError, Converter, transform_error

from ...ports.required.artifact_store import Artifact, Reader, Shelf

FORMAT: Final = 1


@attrs.frozen(kw_only=True)
class Entry:
    """What the list says of one artifact."""

    file: str
    artifact: Artifact


@attrs.frozen
class Unreadable(Exception):
    """The text is no list that this version knows."""

    reason: str


def to_text(shelf: Shelf, entries: Mapping[str, Entry]) -> str:
    """Return the list of a shelf as JSON."""
    fact = _List(
        format=FORMAT,
        shelf=shelf,
        artifacts={
            name: _Listed(
                file=entry.file,
                sha256=entry.artifact.sha256,
                size=entry.artifact.size,
                readers=sorted(entry.artifact.readers),
            )
            for name, entry in sorted(entries.items())
        },
    )
    return json.dumps(attrs.asdict(fact), indent=1)


def from_text(text: bytes, shelf: Shelf) -> dict[str, Entry]:
    """Return what stands on the shelf, by name.

    Raises:
        Unreadable: It is damaged, newer than this version, or of another shelf.
    """
    try:
        read: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"its list is no JSON: {error}") from error
    match read:
        case {"format": int(found)} if found > FORMAT:
            raise Unreadable(f"a newer Livery wrote its list, in format {found}")
        case dict():
            pass
        case _:
            raise Unreadable("its list is damaged: it is no object")
    try:
        fact = _CONVERTER.structure(read, _List)
    except BaseValidationError as group:
        told = "; ".join(transform_error(group))
        raise Unreadable(f"its list is damaged: {told}") from group
    if fact.shelf != shelf:
        # Two spellings of a name, on a disk that does not tell A from a.
        raise Unreadable(f"its folder is that of shelf {fact.shelf}")
    return {
        name: _entry(shelf, name, listed) for name, listed in fact.artifacts.items()
    }


@attrs.frozen(kw_only=True)
class _Listed:
    file: str
    sha256: str
    size: int
    readers: list[Reader]


@attrs.frozen(kw_only=True)
class _List:
    format: int
    shelf: str
    artifacts: dict[str, _Listed]


def _entry(shelf: Shelf, name: str, listed: _Listed) -> Entry:
    if os.path.basename(listed.file) != listed.file:
        raise Unreadable(f"its list is damaged: {name!r} lies in another folder")
    artifact = Artifact(
        shelf=shelf,
        name=name,
        sha256=listed.sha256,
        size=listed.size,
        readers=frozenset(listed.readers),
    )
    return Entry(file=listed.file, artifact=artifact)


def _exactly(plain: type) -> Callable[[object, object], object]:
    def taken(value: object, _: object) -> object:
        if type(value) is plain:
            return value
        raise TypeError(f"wants {plain}, found {type(value)}")

    return taken


def _word(value: object, kind: type[StrEnum]) -> StrEnum:
    if isinstance(value, str):
        return kind(value)
    raise TypeError(f"wants a word, found {type(value)}")


def _converter() -> Converter:
    made = Converter(forbid_extra_keys=True)
    for plain in (str, int):
        made.register_structure_hook(plain, _exactly(plain))
    # A word is a str as well; cattrs takes the hook of the nearest class.
    made.register_structure_hook(StrEnum, _word)
    return made


_CONVERTER: Final = _converter()
