# SPDX-License-Identifier: Apache-2.0
"""What grows with what: the journal of an episode, lists of what is open, a sweep.

    python -m tests.benchmarks.scale

Counted are what an episode asks of its journal and the bytes that it leaves there, on
SQLite and, where it is installed, on PostgreSQL. Timed are lists of open streams with
more of them, and with more history beside them, and the reaper's sweep with more
claims. The bounds are on ratios: what grows with the history, or faster than what it
looks at, breaks one.
"""

import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import attrs

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import open_sqlite_journal
from livery.adapters.postgres_journal import Database, open_postgres_journal
from livery.adapters.system_clock import SystemClock
from livery.domain import claims
from livery.domain.deciders import Instant
from livery.ports.provided.reap_claims import ReapClaims
from livery.ports.required.journal import History, Journal, Stream, claim_stream

from ..peers import absence
from ..postgres.server import Postgres, open_postgres
from .episodes import run_on
from .nothing_provider import NothingProvider

EPISODES: Final = 500
OPEN: Final = (1_000, 10_000, 100_000)
CLAIMS: Final = (1_000, 10_000)
WRITERS: Final = 256
LISTS: Final = 5
"""How often a list is made; the quickest counts."""
RATIO_MAX: Final = 2.0
"""Of what may not grow: the machine's own unrest is in it."""
OWNER: Final = claims.OwnerId("bench")

E = TypeVar("E")


@attrs.frozen
class CountedJournal:
    """A journal, and how often it was asked for what."""

    journal: Journal
    asked: Counter[str] = attrs.field(factory=Counter[str])

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        self.asked["appends"] += 1
        self.asked["events"] += len(events)
        return await self.journal.append(
            stream, events, expected_version=expected_version
        )

    async def read(self, stream: Stream[E], *, after: int = 0) -> History[E]:
        self.asked["reads"] += 1
        return await self.journal.read(stream, after=after)

    async def open_streams(self, category: str) -> tuple[str, ...]:
        self.asked["lists"] += 1
        return await self.journal.open_streams(category)

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        self.asked["waits"] += 1
        return await self.journal.moved(stream, after=after)

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        self.asked["forgets"] += 1
        await self.journal.forget(stream, expected_version=expected_version)


@attrs.frozen(kw_only=True)
class Place:
    """Where journals are, and what is known of one from outside."""

    name: str
    opened: Callable[[], Any]
    """Opens one, always the same."""
    size: Callable[[], int]
    """Its bytes, indexes included, with nobody at work."""
    fill: Callable[[int, int], None]
    """Adds so many open claims, and so many that are over."""


@contextmanager
def in_sqlite() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"

        def fill(opened: int, over: int) -> None:
            with sqlite3.connect(path) as connection:
                connection.executemany(
                    "INSERT INTO streams (category, key, version, is_open)"
                    " VALUES ('claims', ?, 1, ?)",
                    _rows(connection.execute(_SQL_COUNT).fetchone()[0], opened, over),
                )
            connection.close()

        yield Place(
            name="SQLite",
            opened=partial(open_sqlite_journal, path),
            size=lambda: os.stat(path).st_size,
            fill=fill,
        )


@contextmanager
def in_postgres(server: Postgres) -> Iterator[Place]:
    database: Database = server.database()
    schema = database.schema

    def fill(opened: int, over: int) -> None:
        server.execute(
            f"INSERT INTO {schema}.streams (category, key, version, is_open)"
            " SELECT 'claims', md5(random()::text), 1, number <= %s"
            " FROM generate_series(1, %s) AS number",
            opened,
            opened + over,
        )
        server.execute(f"ANALYZE {schema}.streams")

    def size() -> int:
        ((found,),) = server.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relkind = 'r'",
            schema,
        )
        return int(str(found))

    yield Place(
        name="PostgreSQL",
        opened=partial(open_postgres_journal, database),
        size=size,
        fill=fill,
    )


_SQL_COUNT: Final = "SELECT count(*) FROM streams"


def _rows(first: int, opened: int, over: int) -> Iterator[tuple[str, int]]:
    for number in range(opened + over):
        yield f"claim-{first + number:032x}", int(number < opened)


async def episodes(place: Place) -> tuple[Counter[str], float]:
    async with place.opened() as journal:
        counted = CountedJournal(journal)
        _, cpu = await run_on(counted, EPISODES)
    return counted.asked, cpu


async def list_seconds(place: Place, expected: int) -> float:
    """Return how long it takes to list the open claims."""
    best = float("inf")
    async with place.opened() as journal:
        for _ in range(LISTS):
            begun = time.perf_counter()
            keys = await journal.open_streams("claims")
            best = min(best, time.perf_counter() - begun)
            assert len(keys) == expected
    return best


@attrs.frozen
class Sweep:
    """What a sweep asked of its journal, and what it took."""

    asked: Counter[str]
    seconds: float
    processor_seconds: float
    """Ours; what PostgreSQL's own processes take is not in it."""


async def sweep(place: Place, more: int, standing: int) -> Sweep:
    """Write so many more claims of a living process, and sweep them all."""
    holders, provider = MemoryHolders(), NothingProvider()
    async with place.opened() as journal:
        numbers = iter(range(standing, standing + more))

        async def write() -> None:
            for number in numbers:
                claim = claims.ClaimId(f"claim-{number:032x}")
                await journal.append(
                    claim_stream(claim), _held(claim, holders.own), expected_version=0
                )

        async with anyio.create_task_group() as group:
            for _ in range(WRITERS):
                group.start_soon(write)
        counted = CountedJournal(journal)
        reap = ReapClaims(
            journal=counted,
            clock=SystemClock(),
            providers={provider.name: provider},
            owner=OWNER,
            holders=holders,
        )
        begun, spent = time.perf_counter(), time.process_time()
        report = await reap()
        found = Sweep(
            counted.asked,
            time.perf_counter() - begun,
            time.process_time() - spent,
        )
        assert len(report.reaped) == standing + more
    return found


def _held(claim: claims.ClaimId, holder: claims.Holder) -> list[claims.Event]:
    at = Instant(1_700_000_000.25)
    requested = claims.ClaimRequested(
        claim=claim,
        owner=OWNER,
        provider="nothing",
        spec=claims.SpecDigest("5e" * 32),
        used_by="humaneval-HumanEval-17-1a2b3c4d.r0",
        holder=holder,
        at=at,
    )
    held = claims.ClaimHeld(sandbox="livery-" + "ab" * 12, expires_at=None, at=at)
    return [requested, claims.CreationStarted(at=at), held]


def judged(places: Callable[[], Any]) -> list[str]:
    """Measure at fresh places, print, and return which bounds are broken."""
    broken: list[str] = []
    with places() as place:
        anyio.run(_touch, place)
        empty = place.size()
        asked, cpu = anyio.run(episodes, place)
        each = {name: number / EPISODES for name, number in asked.items()}
        told = ", ".join(f"{number:.1f} {name}" for name, number in each.items())
        grown = (place.size() - empty) / EPISODES / 1024
        print(
            f"{place.name}: an episode: {told}; {grown:.1f} KiB,"
            f" {cpu / EPISODES * 1000:.2f} ms of processor",
            flush=True,
        )
    with places() as place:
        anyio.run(_touch, place)
        standing, costs = 0, dict[int, float]()
        for count in OPEN:
            place.fill(count - standing, 0)
            standing = count
            costs[count] = anyio.run(list_seconds, place, count)
            print(
                f"{place.name}: {count:,} open: {costs[count] * 1000:.2f} ms a list,"
                f" {costs[count] / count * 1e6:.2f} µs a stream",
                flush=True,
            )
    with places() as place:
        anyio.run(_touch, place)
        place.fill(OPEN[0], OPEN[-1])
        beside = anyio.run(list_seconds, place, OPEN[0])
        print(
            f"{place.name}: {OPEN[0]:,} open beside {OPEN[-1]:,} that are over:"
            f" {beside * 1000:.2f} ms a list, {beside / costs[OPEN[0]]:.1f} times"
        )
        if beside > RATIO_MAX * costs[OPEN[0]]:
            broken.append(f"{place.name}: a list grows with the history")
    with places() as place:
        standing, sweeps = 0, list[float]()
        for count in CLAIMS:
            found = anyio.run(sweep, place, count - standing, standing)
            standing = count
            sweeps.append(found.processor_seconds / count)
            asked = found.asked.items()
            told = ", ".join(f"{number:,} {name}" for name, number in asked)
            print(
                f"{place.name}: a sweep of {count:,} claims: {told};"
                f" {found.seconds:.2f} s, {sweeps[-1] * 1e6:.0f} µs of processor a claim",
                flush=True,
            )
        if sweeps[-1] > RATIO_MAX * sweeps[0]:
            broken.append(f"{place.name}: a sweep grows faster than its claims")
    return broken


async def _touch(place: Place) -> None:
    async with place.opened():
        pass


def main() -> int:
    """Print the figures; the status is 1 when a bound is broken."""
    broken = judged(in_sqlite)
    if reason := absence("postgres"):
        print(f"PostgreSQL: skipped: {reason}")
    else:
        with open_postgres() as server:
            broken += judged(partial(in_postgres, server))
    print("\n".join(broken) or "Every bound holds.")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
