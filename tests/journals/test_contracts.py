# SPDX-License-Identifier: Apache-2.0
"""Every journal keeps the port's promises."""

from collections.abc import AsyncGenerator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    nullcontext,
)
from pathlib import Path

import pytest

from livery.adapters.journals import MemoryJournal, open_sqlite_journal
from livery.adapters.postgres_journal import Database, open_postgres_journal
from livery.adapters.system_clock import SystemClock
from livery.ports.contracts.cases import Case
from livery.ports.contracts.journal import CASES, JournalContext
from livery.ports.provided.measured import MeasuredJournal
from livery.ports.provided.measures import Measures
from livery.ports.required.journal import Journal

from ..contracts.parameters import parameters
from ..postgres.server import Postgres

pytestmark = pytest.mark.anyio

LEASE_SECONDS = 600.0
ALL = parameters(CASES, capabilities=frozenset(), hooks=frozenset({"open_again"}))


@asynccontextmanager
async def on_disk(folder: Path) -> AsyncGenerator[JournalContext]:
    path = folder / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        yield JournalContext(
            journal=journal, open_again=lambda: open_sqlite_journal(path)
        )


@pytest.mark.parametrize("case", ALL)
async def test_a_journal_in_memory(case: Case[JournalContext]) -> None:
    journal = MemoryJournal()

    # Its place is the object itself.
    await case.run(
        JournalContext(journal=journal, open_again=lambda: nullcontext(journal))
    )


@pytest.mark.parametrize("case", ALL)
async def test_a_journal_that_is_watched(case: Case[JournalContext]) -> None:
    journal = MeasuredJournal(
        journal=MemoryJournal(), measures=Measures(), clock=SystemClock()
    )

    await case.run(
        JournalContext(journal=journal, open_again=lambda: nullcontext(journal))
    )


@pytest.mark.parametrize("case", ALL)
async def test_a_journal_in_sqlite(case: Case[JournalContext], tmp_path: Path) -> None:
    async with on_disk(tmp_path) as context:
        await case.run(context)


@asynccontextmanager
async def in_postgres(database: Database) -> AsyncGenerator[JournalContext]:
    # Two processes, each with a lease of its own.
    def opened() -> AbstractAsyncContextManager[Journal]:
        return open_postgres_journal(database, lease_seconds=LEASE_SECONDS)

    async with opened() as journal:
        yield JournalContext(journal=journal, open_again=opened)


@pytest.mark.peer("postgres")
@pytest.mark.parametrize("case", ALL)
async def test_a_journal_in_postgres(
    case: Case[JournalContext], postgres: Postgres
) -> None:
    async with in_postgres(postgres.database()) as context:
        await case.run(context)


@pytest.mark.peer("postgres")
async def test_one_postgres_journal_serves_all_cases(postgres: Postgres) -> None:
    async with in_postgres(postgres.database()) as context:
        for case in CASES:
            await case.run(context)


async def test_one_journal_serves_all_cases(tmp_path: Path) -> None:
    async with on_disk(tmp_path) as context:
        for case in CASES:
            await case.run(context)
