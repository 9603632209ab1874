# SPDX-License-Identifier: Apache-2.0
"""Leases: who was taken for dead writes nothing any more, however alive it is."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from livery.adapters.postgres_journal import (
    Database,
    PostgresJournal,
    open_postgres_journal,
)
from livery.domain.claims import Holder
from livery.ports.required.journal import LeaseLost

from ..journals.lives import append, marked, marks_of, stream
from .server import Postgres

pytestmark = [pytest.mark.anyio, pytest.mark.peer("postgres")]

PATIENCE_SECONDS = 60.0
LONG = 3600.0


@asynccontextmanager
async def opened(database: Database) -> AsyncGenerator[PostgresJournal]:
    """A process whose lease nobody takes away by itself."""
    async with open_postgres_journal(database, lease_seconds=LONG) as journal:
        yield journal


def expire(postgres: Postgres, database: Database, holder: Holder) -> None:
    """Have time go by for one of the leases, until it is over."""
    postgres.execute(
        f"UPDATE {database.schema}.leases"
        " SET renewed_at = renewed_at - make_interval(secs => 2 * seconds)"
        " WHERE holder = %s",
        holder,
    )


async def test_who_has_a_lease_lives_until_it_leaves(postgres: Postgres) -> None:
    database = postgres.database()
    async with opened(database) as mine:
        async with opened(database) as other:
            name = other.holders.own
            alive_before = await mine.holders.alive(name)
            own = await mine.holders.alive(mine.holders.own)
        alive_after = await mine.holders.alive(name)
        stranger = await mine.holders.alive(Holder("nobody"))

    assert (alive_before, own, alive_after, stranger) == (True, True, False, False)


async def test_each_fence_is_higher_than_the_ones_before(postgres: Postgres) -> None:
    database = postgres.database()
    fences: list[int] = []
    for _ in range(3):
        async with opened(database) as journal:
            assert journal.lease is not None
            fences.append(journal.lease.fence)

    assert fences == sorted(set(fences))


async def test_who_was_taken_for_dead_writes_nothing_more(postgres: Postgres) -> None:
    database = postgres.database()
    async with opened(database) as slow, opened(database) as other:
        await append(slow, "before")
        expire(postgres, database, slow.holders.own)

        # A lease that is over, and that nobody took, still counts.
        await append(slow, "late")
        taken = not await other.holders.alive(slow.holders.own)
        with pytest.raises(LeaseLost) as refused:
            await append(slow, "too late")
        with pytest.raises(LeaseLost):
            await slow.forget(stream(), expected_version=2)
        with pytest.raises(LeaseLost):
            await slow.append(stream("new"), marked("new"), expected_version=0)
        await append(other, "after")
        history = await other.read(stream())

    assert taken
    assert refused.value.holder == slow.holders.own
    assert marks_of(history.events) == ["before", "late", "after"]


async def test_a_lease_is_renewed_while_its_process_works(postgres: Postgres) -> None:
    database = postgres.database()
    async with open_postgres_journal(database, lease_seconds=0.5) as journal:
        seen = {renewed_at(postgres, database)}
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(seen) < 4:
                await anyio.sleep(0.01)
                seen.add(renewed_at(postgres, database))
        assert journal.lease is not None
        assert not journal.lease.is_lost


async def test_who_lost_its_lease_is_told_once(postgres: Postgres) -> None:
    database = postgres.database()
    lost = anyio.Event()
    async with (
        opened(database) as other,
        open_postgres_journal(database, lease_seconds=4.0, on_lost=lost.set) as journal,
    ):
        with anyio.fail_after(PATIENCE_SECONDS):
            # It may be renewed in between; then it is made to end again.
            while await other.holders.alive(journal.holders.own):
                expire(postgres, database, journal.holders.own)
            await lost.wait()

        assert journal.lease is not None
        assert journal.lease.is_lost


async def test_leases_of_the_dead_do_not_pile_up(postgres: Postgres) -> None:
    database = postgres.database()
    async with opened(database) as first:
        async with opened(database) as second:
            expire(postgres, database, second.holders.own)
            async with opened(database):
                left = postgres.execute(f"SELECT holder FROM {database.schema}.leases")
        assert (second.holders.own,) not in left
        assert (first.holders.own,) in left


def renewed_at(postgres: Postgres, database: Database) -> object:
    return postgres.execute(f"SELECT renewed_at FROM {database.schema}.leases")[0][0]
