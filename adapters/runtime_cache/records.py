# SPDX-License-Identifier: Apache-2.0
"""What is written beside a program in the cache: what it is, and how it is packed."""

import json
import os
import re
from pathlib import Path
from typing import Final, cast

import attrs

from ...domain.runtimes import Platform, Runtime
from ...ports.required.runtime_source import PackedRuntime, Packing
from .trusted_files import open_trusted

RECORD: Final = "record.json"
RECORD_BYTES_MAX: Final = 64 * 1024
RECORD_MODE: Final = 0o600
_LAYOUT: Final = 1
Words = dict[str, object]
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@attrs.frozen
class RecordDamaged(Exception):
    """A record does not say what one says."""

    path: Path

    def __str__(self) -> str:
        return f"{self.path} is damaged"


@attrs.frozen(kw_only=True)
class Record:
    """What one entry of the cache is."""

    name: str
    version: str
    platform: Platform
    program: str
    """The name of its file."""
    size: int
    sha256: str
    packing: Packing
    packed_size: int
    packed_sha256: str
    offset: int = 0
    holds_program: bool = True
    """False where the program stays where it was, and its packed form alone is here."""
    origin: str = ""
    """Where it came from, without any host: a package's name and version, say."""
    integrity: str = ""
    """What the registry says of its tarball."""

    @property
    def runtime(self) -> Runtime:
        """The program's identity."""
        return Runtime(
            name=self.name,
            version=self.version,
            platform=self.platform,
            sha256=self.sha256,
        )

    @property
    def as_packed(self) -> PackedRuntime:
        """The form in which it is sent."""
        return PackedRuntime(
            program=self.program,
            size=self.size,
            packing=self.packing,
            packed_size=self.packed_size,
            packed_sha256=self.packed_sha256,
            offset=self.offset,
        )


def write_record(path: Path, record: Record) -> None:
    """Write a record into a folder that nobody else sees yet."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    words = {"layout": _LAYOUT, **attrs.asdict(record)}
    with os.fdopen(os.open(path, flags, RECORD_MODE), "w", encoding="utf-8") as file:
        json.dump(words, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def read_record(path: Path) -> Record:
    """Read a record.

    Raises:
        RecordDamaged: It is none.
        FileUntrusted: Somebody else may have written it.
        OSError: It cannot be read.
    """
    with os.fdopen(open_trusted(path, own=True, most=RECORD_MODE), "rb") as file:
        text = file.read(RECORD_BYTES_MAX)
    try:
        return _to_record(cast("Words", json.loads(text)))
    except (ValueError, TypeError, KeyError) as fault:
        raise RecordDamaged(path) from fault


def _to_record(words: Words) -> Record:
    if words["layout"] != _LAYOUT:
        raise ValueError("another layout")
    platform = cast("Words", words["platform"])
    program = _text(words, "program")
    if not _FILE_NAME.fullmatch(program):
        raise ValueError("no name of a file")
    return Record(
        name=_text(words, "name"),
        version=_text(words, "version"),
        platform=Platform(
            system=_text(platform, "system"),
            machine=_text(platform, "machine"),
            libc=_text(platform, "libc"),
        ),
        program=program,
        size=_whole(words, "size"),
        sha256=_text(words, "sha256"),
        packing=Packing(_text(words, "packing")),
        packed_size=_whole(words, "packed_size"),
        packed_sha256=_text(words, "packed_sha256"),
        offset=_whole(words, "offset"),
        holds_program=words["holds_program"] is True,
        origin=_text(words, "origin"),
        integrity=_text(words, "integrity"),
    )


def _text(words: Words, key: str) -> str:
    found = words[key]
    if not isinstance(found, str):
        raise TypeError(key)
    return found


def _whole(words: Words, key: str) -> int:
    found = words[key]
    if not isinstance(found, int):
        raise TypeError(key)
    return found
