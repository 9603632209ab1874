# SPDX-License-Identifier: Apache-2.0
"""What the SQLite journal costs: `python -m tests.benchmarks.journal`.

The budget is 40 µs of processor time an append, of one or two small events, with 64
writers at once, all in: the encoding, the queue, the thread, SQLite and the wake-up.
The floor beside it is the same number of rows in one transaction a batch, by hand.
"""

import argparse
import gc
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import attrs

from livery.adapters.journals import open_sqlite_journal
from livery.adapters.journals.sqlite import SqliteJournal
from livery.domain import claims
from livery.domain.deciders import Instant
from livery.ports.required.journal import claim_stream

WRITERS = 64
APPENDS = 20_000
BUDGET_MICROSECONDS = 40.0


@attrs.frozen(kw_only=True)
class Measured:
    """What a number of operations took."""

    operations: int
    wall_seconds: float
    processor_seconds: float

    def told(self, name: str) -> str:
        """Return a line for a person."""
        processor = self.processor_seconds / self.operations * 1e6
        rate = self.operations / self.wall_seconds
        return f"{name:<44}{processor:8.1f} µs of processor{rate:10.0f} a second"


def life(number: int) -> list[tuple[claims.Event, ...]]:
    """Return the appends of one claim's life, one or two events each."""
    at = Instant(1_700_000_000.25 + number)
    claim = claims.ClaimId(f"claim-{number:032x}")
    return [
        (
            claims.ClaimRequested(
                claim=claim,
                owner=claims.OwnerId("owner-0123456789abcdef"),
                provider="docker",
                spec=claims.SpecDigest("5e" * 32),
                used_by="humaneval-HumanEval-17-1a2b3c4d.r0",
                holder=claims.Holder("holder-0123456789abcdef"),
                at=at,
            ),
            claims.CreationStarted(at=at),
        ),
        (claims.ClaimHeld(sandbox="livery-" + "ab" * 12, expires_at=at, at=at),),
        (claims.ClaimLent(borrower=claims.Borrower("s-1"), shared=False, at=at),),
        (
            claims.ClaimHandedBack(borrower=claims.Borrower("s-1"), at=at),
            claims.ReleaseStarted(reason="the episode is over", at=at),
        ),
        (claims.ClaimReleased(at=at),),
    ]


async def measured(operations: int, act: Callable[[], Awaitable[None]]) -> Measured:
    """Return what `act` took."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    await act()
    return Measured(
        operations=operations,
        wall_seconds=time.perf_counter() - wall,
        processor_seconds=time.process_time() - processor,
    )


async def write(journal: SqliteJournal, writers: int, appends: int) -> None:
    """Write claims' lives, `writers` at once."""
    numbers = iter(range(appends // 5))

    async def writer() -> None:
        for number in numbers:
            stream = claim_stream(claims.ClaimId(f"claim-{number:032x}"))
            version = 0
            for events in life(number):
                version = await journal.append(stream, events, expected_version=version)

    async with anyio.create_task_group() as tasks:
        for _ in range(writers):
            tasks.start_soon(writer)


async def read(journal: SqliteJournal, readers: int, streams: int) -> None:
    """Read claims' lives, `readers` at once."""
    numbers = iter(range(streams))

    async def reader() -> None:
        for number in numbers:
            stream = claim_stream(claims.ClaimId(f"claim-{number:032x}"))
            assert (await journal.read(stream)).version == 7

    async with anyio.create_task_group() as tasks:
        for _ in range(readers):
            tasks.start_soon(reader)


def by_hand(folder: Path, appends: int) -> Measured:
    """Write the same number of rows, `WRITERS` a transaction, with nothing around."""
    connection = sqlite3.connect(folder / "floor.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (a INTEGER, b INTEGER, c TEXT, d TEXT)")
    rows = [(number, 1, "claim_released", "x" * 120) for number in range(WRITERS)]
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(appends // WRITERS):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    taken = Measured(
        operations=appends,
        wall_seconds=time.perf_counter() - wall,
        processor_seconds=time.process_time() - processor,
    )
    connection.close()
    return taken


async def main(appends: int, folder: Path) -> bool:
    """Print the figures and return whether the budget is kept."""
    print(by_hand(folder, appends).told("floor: rows by hand, 64 a transaction"))
    async with open_sqlite_journal(folder / "journal.sqlite") as journal:
        many = await measured(appends, lambda: write(journal, WRITERS, appends))
        print(many.told(f"append, {WRITERS} writers at once"))
        reads = await measured(
            appends // 5, lambda: read(journal, WRITERS, appends // 5)
        )
        print(reads.told(f"read of seven events, {WRITERS} at once"))
    async with open_sqlite_journal(folder / "alone.sqlite") as journal:
        alone = await measured(appends // 10, lambda: write(journal, 1, appends // 10))
        print(alone.told("append, one writer"))
    spent = many.processor_seconds / many.operations * 1e6
    kept = spent <= BUDGET_MICROSECONDS
    print(f"budget {BUDGET_MICROSECONDS:g} µs: {'kept' if kept else 'NOT KEPT'}")
    return kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.journal")
    parser.add_argument("--appends", type=int, default=APPENDS)
    with tempfile.TemporaryDirectory() as made:
        ok = anyio.run(main, parser.parse_args().appends, Path(made))
    sys.exit(0 if ok else 1)
