# SPDX-License-Identifier: Apache-2.0
"""Files in a task: relative paths, each once, and no file that is also a folder.

A file is text, or `{"text": …}` or `{"base64": …}` with a mode of its own.
"""

import base64
import binascii
import posixpath
import re
from collections.abc import Iterable
from typing import Final, NewType

import attrs
from cattrs import Converter

from ...ports.required.harness import PlacedFile
from .strict import (
    Mistaken,
    below,
    is_object,
    shown,
    structured,
    to_object,
    to_text,
    wrong,
)

PATH_BYTES_MAX: Final = 4095
NAME_BYTES_MAX: Final = 255

RelativePath = NewType("RelativePath", str)
"""Below the workspace, normalised: no `.`, no `..`, no doubled slash."""
Mode = NewType("Mode", int)
Placed = NewType("Placed", tuple[PlacedFile, ...])
"""Files of one task, checked against each other."""

NO_FILES: Final = Placed(())

_MODE: Final = re.compile(r"0?[0-7]{3}")


@attrs.frozen(kw_only=True)
class _File:
    """A file as an object."""

    text: str | None = None
    base64: str | None = None
    mode: Mode = Mode(0o644)


def to_relative_path(value: object) -> RelativePath:
    """Return a path below the workspace; raises `ValueError` for any other."""
    path = to_text(value, "a path below the workspace")
    if not path or "\0" in path:
        raise ValueError(f"{shown(path)} is no path")
    if path.startswith("/"):
        raise ValueError(f"{shown(path)} is absolute, must be below the workspace")
    if ".." in path.split("/"):
        raise ValueError(f"{shown(path)} holds '..', must be below the workspace")
    plain = posixpath.normpath(path)
    if plain == "." or path.endswith(("/", "/.")):
        raise ValueError(f"{shown(path)} names a folder, must name a file")
    if len(plain.encode()) > PATH_BYTES_MAX:
        raise ValueError(f"is a path of more than {PATH_BYTES_MAX} bytes")
    if any(len(name.encode()) > NAME_BYTES_MAX for name in plain.split("/")):
        raise ValueError(f"holds a name of more than {NAME_BYTES_MAX} bytes")
    return RelativePath(plain)


def to_mode(value: object) -> Mode:
    """Return permission bits, written as text in octal."""
    expected = 'permission bits in octal as text, "0644" or "0755" say'
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        raise ValueError(wrong(value, expected))
    return Mode(int(value, 8))


def to_placed(converter: Converter, value: object) -> Placed:
    """Return the files of `{path: file}`, in their order.

    Raises:
        Mistaken: With every mistake in them.
    """
    files = to_object(value, "an object {path: content}")
    found: list[tuple[str, str]] = []
    placed: list[PlacedFile] = []
    for name, entry in files.items():
        try:
            path = to_relative_path(name)
            content, mode = _content(converter, entry)
        except Mistaken as mistaken:
            found += [(below("", name) + sub, text) for sub, text in mistaken.found]
        except ValueError as error:
            found.append((below("", name), str(error)))
        else:
            placed.append(PlacedFile(path=path, content=content, mode=mode))
    found += [("", text) for text in clashes(file.path for file in placed)]
    if found:
        raise Mistaken(found)
    return Placed(tuple(placed))


def clashes(paths: Iterable[str]) -> list[str]:
    """Tell the paths that stand twice, or that are a file and a folder at once."""
    told: list[str] = []
    seen: set[str] = set()
    folders: dict[str, str] = {}
    for path in paths:
        if path in seen:
            told.append(f"{shown(path)} is named twice")
            continue
        seen.add(path)
        folder = posixpath.dirname(path)
        while folder:
            folders.setdefault(folder, path)
            folder = posixpath.dirname(folder)
    told += [
        f"{shown(path)} is a file and, for {shown(folders[path])}, also a folder"
        for path in sorted(seen & folders.keys())
    ]
    return told


def _content(converter: Converter, entry: object) -> tuple[bytes, int]:
    if isinstance(entry, str):
        return to_text(entry).encode(), 0o644
    if not is_object(entry):
        raise ValueError(wrong(entry, 'text, {"text": …} or {"base64": …}'))
    file = structured(converter, entry, _File, "")
    if (file.text is None) == (file.base64 is None):
        raise ValueError("must hold either text or base64")
    if file.text is not None:
        return file.text.encode(), file.mode
    try:
        return base64.b64decode(file.base64 or "", validate=True), file.mode
    except binascii.Error as error:
        raise Mistaken([(".base64", f"is no base64: {error}")]) from error
