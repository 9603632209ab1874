# SPDX-License-Identifier: Apache-2.0
"""Entries whose files are those that their records tell of."""

from pathlib import Path

from ...ports.required.runtime_source import RuntimeUnavailable
from .cache import PROGRAM_MODE, SECRET_MODE, Entry, RuntimeCacheUnusable
from .trusted_files import Digests, FileUntrusted


async def check_program(entry: Entry, digests: Digests) -> None:
    """Check the program of an entry; it is read only when it is not known.

    Raises:
        RuntimeUnavailable: It is another file than was put there.
        RuntimeCacheUnusable: It is not to be trusted, or gone.
    """
    await _check(entry, entry.program, entry.record.sha256, PROGRAM_MODE, digests)


async def check_packed(entry: Entry, digests: Digests) -> None:
    """Check the packed form of an entry; it is read only when it is not known.

    Raises:
        RuntimeUnavailable: It is another file than was put there.
        RuntimeCacheUnusable: It is not to be trusted, or gone.
    """
    record = entry.record
    await _check(entry, entry.packed, record.packed_sha256, SECRET_MODE, digests)


async def check_entry(entry: Entry, digests: Digests) -> None:
    """Check all that an entry holds.

    Raises:
        RuntimeUnavailable: It is another file than was put there.
        RuntimeCacheUnusable: It is not to be trusted, or gone.
    """
    if entry.record.holds_program:
        await check_program(entry, digests)
    await check_packed(entry, digests)


async def _check(
    entry: Entry, path: Path, sha256: str, most: int, digests: Digests
) -> None:
    try:
        found = await digests.of(path, own=True, most=most)
    except (FileUntrusted, OSError) as fault:
        raise RuntimeCacheUnusable(str(path), str(fault)) from fault
    if found.sha256 != sha256:
        record = entry.record
        raise RuntimeUnavailable(
            name=record.name,
            version=record.version,
            platform=record.platform.word,
            reason=f"{path} was changed after it was put there;"
            " `livery runtimes prune` removes it, and it is fetched anew",
        )
