# SPDX-License-Identifier: Apache-2.0
"""Unpacking: one member of a tarball, and nothing else of it, becomes a file."""

import hashlib
import os
import tarfile
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Final

import anyio.to_thread
import attrs

from .packages import Unusable

PIECE_BYTES: Final = 4 * 1024 * 1024
MEMBERS_MAX: Final = 10_000


@attrs.frozen(kw_only=True)
class Unpacked:
    """The program, as it was written."""

    size: int
    sha256: str
    offset: int
    """Where it begins in the unpacked tarball."""


async def unpack(
    tarball: Path, member: str, program: Path, *, mode: int, bytes_max: int
) -> Unpacked:
    """Write `member` of a tarball to `program`, which nobody else sees.

    Raises:
        Unusable: The tarball is none, or has no such file.
    """
    steps = _steps(tarball, member, program, mode=mode, bytes_max=bytes_max)
    try:
        while True:
            # A step at a time, so that a cancellation does not wait for the last.
            found = await anyio.to_thread.run_sync(next, steps)
            if found is not None:
                return found
    except (tarfile.TarError, zlib.error, EOFError) as fault:
        raise Unusable(f"its tarball cannot be unpacked ({fault})") from fault
    finally:
        steps.close()


def _steps(
    tarball: Path, member: str, program: Path, *, mode: int, bytes_max: int
) -> Generator[Unpacked | None]:
    with tarfile.open(tarball, "r|gz") as tar:
        for number, entry in enumerate(tar):
            if number >= MEMBERS_MAX:
                break
            if entry.name == member and entry.isreg():
                yield from _written(tar, entry, program, mode=mode, bytes_max=bytes_max)
                return
    raise Unusable(f"its tarball has no {member}")


def _written(
    tar: tarfile.TarFile,
    entry: tarfile.TarInfo,
    program: Path,
    *,
    mode: int,
    bytes_max: int,
) -> Generator[Unpacked | None]:
    if entry.size > bytes_max:
        raise Unusable(f"the program is larger than {bytes_max} bytes")
    source = tar.extractfile(entry)
    assert source is not None, "a regular file can be read"
    found, size = hashlib.sha256(), 0
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    with os.fdopen(os.open(program, flags, 0o600), "wb", buffering=0) as file:
        while piece := source.read(PIECE_BYTES):
            view = memoryview(piece)
            while view:
                view = view[file.write(view) :]
            found.update(piece)
            size += len(piece)
            yield None
        os.fchmod(file.fileno(), mode)
    yield Unpacked(size=size, sha256=found.hexdigest(), offset=entry.offset_data)
