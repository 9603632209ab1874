# SPDX-License-Identifier: Apache-2.0
"""Writes to a journal whose file may not grow, and then to one that may again."""

import resource
import sys
from pathlib import Path

import anyio

from livery.adapters.journals import open_sqlite_journal
from livery.domain.claims import ClaimId, CreationDoubted
from livery.domain.deciders import Instant
from livery.ports.required.journal import JournalUnusable, claim_stream

LIMIT_BYTES = 1_000_000
STREAM = claim_stream(ClaimId("claim-1"))


async def main(path: Path) -> None:
    event = CreationDoubted(reason="x" * 5000, at=Instant(0.5))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    async with open_sqlite_journal(path) as journal:
        version, told = 0, ""
        while not told:
            try:
                version = await journal.append(
                    STREAM, (event,), expected_version=version
                )
            except JournalUnusable as unusable:
                told = unusable.reason
        assert "disk" in told, told
        assert version > 10, version
        assert (await journal.read(STREAM)).version == version
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        for _ in range(100):
            version = await journal.append(STREAM, (event,), expected_version=version)
    async with open_sqlite_journal(path) as journal:
        assert (await journal.read(STREAM)).version == version
    print("all was kept")


anyio.run(main, Path(sys.argv[1]))
