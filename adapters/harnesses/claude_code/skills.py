# SPDX-License-Identifier: Apache-2.0
"""Skills: a folder of this host that is copied into the run's own configuration.

It holds one folder for each skill, with a `SKILL.md`. A request may name only a
folder below the roots that the configuration allows; links are refused.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from ....domain.digests import Json
from ....ports.required.harness import PlacedFile

SKILLS_FILES_MAX: Final = 2000
SKILLS_BYTES_MAX: Final = 32 * 1024 * 1024
SKILL_FILE: Final = "SKILL.md"

_FIELDS: Final = frozenset({"path", "hash", "skills"})


@attrs.frozen
class SkillsRefused(Exception):
    """Skills that cannot be had like that; `field` is below `skills_ref`."""

    field: str
    reason: str


def path_of(given: Json, roots: tuple[str, ...]) -> Path | None:
    """Return the folder that a request's `skills_ref` names; None for none.

    Its `hash` and `skills` are for the record alone.

    Raises:
        SkillsRefused: It names none, or one that is not below `roots`.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise SkillsRefused("", "it must be an object with a path")
    for name in given:
        if name not in _FIELDS:
            raise SkillsRefused(f".{name}", "it is not understood")
    path = given.get("path")
    if not isinstance(path, str) or not path:
        raise SkillsRefused(".path", "it must be the path of a folder")
    found = Path(path).resolve()
    if not any(found.is_relative_to(Path(root).resolve()) for root in roots):
        reason = "it is not below a folder of the option skills_roots"
        raise SkillsRefused(".path", reason)
    return found


def read_skills(folder: Path, target: str) -> tuple[PlacedFile, ...]:
    """Return the files of `folder`, to be put below `target`.

    Raises:
        SkillsRefused: It cannot be read, holds no skill, or is too much.
    """
    try:
        files = _read(folder, target)
    except OSError as fault:
        reason = f"{fault.filename or folder}: {fault.strerror}"
        raise SkillsRefused(".path", reason) from fault
    if not any(file.path.endswith(f"/{SKILL_FILE}") for file in files):
        raise SkillsRefused(".path", f"{folder} has no folder with a {SKILL_FILE}")
    return files


def _read(folder: Path, target: str) -> tuple[PlacedFile, ...]:
    found: list[PlacedFile] = []
    room = SKILLS_BYTES_MAX
    for path, mode in _files(folder):
        content = path.read_bytes()
        room -= len(content)
        if room < 0 or len(found) == SKILLS_FILES_MAX:
            bounds = f"{SKILLS_FILES_MAX} files or {SKILLS_BYTES_MAX} bytes"
            raise SkillsRefused(".path", f"{folder} is over {bounds}")
        name = path.relative_to(folder).as_posix()
        kept = 0o700 if mode & stat.S_IXUSR else 0o600
        found.append(PlacedFile(path=f"{target}/{name}", content=content, mode=kept))
    return tuple(found)


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    for entry in inside:
        path = Path(entry.path)
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from _files(path)
        elif stat.S_ISREG(mode):
            yield path, mode
        else:
            raise SkillsRefused(".path", f"{path} is neither a file nor a folder")
