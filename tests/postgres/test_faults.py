# SPDX-License-Identifier: Apache-2.0
"""What may be wrong with the database, and what is said of it."""

import anyio
import attrs
import pytest

from livery.adapters.postgres_journal import (
    Database,
    PostgresJournal,
    open_postgres_journal,
)
from livery.ports.required.journal import JournalTooNew, JournalUnusable

from ..journals.lives import append, marked, marks_of, stream
from .server import Postgres

pytestmark = [pytest.mark.anyio, pytest.mark.peer("postgres")]

PATIENCE_SECONDS = 120.0


async def refusal(database: Database) -> JournalUnusable:
    with pytest.raises(JournalUnusable) as refused:
        async with open_postgres_journal(database):
            raise AssertionError("it was opened")
    return refused.value


async def test_no_password_is_told(postgres: Postgres) -> None:
    secret = "wrong-and-secret"
    wrong = attrs.evolve(postgres.database(), password=secret)
    inside = Database(
        url=postgres.url.replace("livery@", f"livery:{secret}@").replace(
            "/postgres", "/nothing"
        )
    )
    broken = Database(url=f"postgresql://a:{secret}@[/x")

    told = [str(await refusal(one)) for one in (wrong, inside, broken)]
    told += [repr(wrong)]

    assert "password authentication failed" in told[0]
    assert "cannot be read" in told[2]
    assert not any(secret in words for words in told)


async def test_a_server_that_is_not_there_is_told(postgres: Postgres) -> None:
    nowhere = Database(url="postgresql://livery@/postgres?host=/nowhere/at/all")

    fault = await refusal(nowhere)

    assert "/nowhere/at/all" in fault.where
    assert "No such file or directory" in fault.reason
    assert "[journal]" in fault.advice


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("", "db.internal:6543, database jobs"),
        ("postgresql://me@other:1/", "other:1, database jobs"),
        ("postgresql:///mine?hostaddr=10.0.0.1", "db.internal:6543, database mine"),
    ],
)
async def test_the_place_is_told_that_the_variables_name(
    url: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "PGHOST": "db.internal",
        "PGPORT": "6543",
        "PGDATABASE": "jobs",
        "PGPASSWORD": "secret",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert Database(url=url).where == f"PostgreSQL {where}"


async def test_the_place_is_told_where_little_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)

    named = [
        Database(url=url).where
        for url in ("postgresql://me@", "hostaddr=10.0.0.1 port=1 dbname=mine")
    ]

    assert named == [
        "PostgreSQL localhost, database me",
        "PostgreSQL 10.0.0.1:1, database mine",
    ]


async def test_a_newer_schema_is_left_as_it_is(postgres: Postgres) -> None:
    database = postgres.database()
    async with open_postgres_journal(database) as journal:
        await append(journal, "kept")
    postgres.execute(f"UPDATE {database.schema}.installation SET format = 99")

    with pytest.raises(JournalTooNew) as refused:
        async with open_postgres_journal(database):
            pass

    assert (refused.value.found, refused.value.known) == (99, 1)


async def test_a_format_that_never_was_is_told(postgres: Postgres) -> None:
    database = postgres.database()
    async with open_postgres_journal(database):
        pass
    postgres.execute(f"UPDATE {database.schema}.installation SET format = 0")

    assert "never was" in (await refusal(database)).reason


async def test_tables_of_another_program_are_left_alone(postgres: Postgres) -> None:
    database = postgres.database()
    postgres.execute(f"CREATE SCHEMA {database.schema}")
    postgres.execute(f"CREATE TABLE {database.schema}.theirs (id integer)")

    assert "another program" in (await refusal(database)).reason


async def test_a_user_without_rights_is_told(postgres: Postgres) -> None:
    database = postgres.database()
    user = database.schema.replace("livery", "user")
    postgres.execute(f"CREATE USER {user} PASSWORD '{postgres.password}'")
    poor = attrs.evolve(database, url=postgres.url.replace("livery@", f"{user}@"))

    assert "may not" in (await refusal(poor)).reason


async def test_many_at_once_make_the_schema_once(postgres: Postgres) -> None:
    database = postgres.database()

    async def use(name: str) -> None:
        async with open_postgres_journal(database) as journal:
            await append(journal, name, name=name)

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(use, f"claim-{number}")

    found = postgres.execute(f"SELECT count(*) FROM {database.schema}.events")
    assert found == [(6,)]


async def test_what_is_damaged_is_told(postgres: Postgres) -> None:
    database = postgres.database()
    async with open_postgres_journal(database) as journal:
        await append(journal, "one", "two", "three")
        postgres.execute(f"DELETE FROM {database.schema}.events WHERE version = 2")
        with pytest.raises(JournalUnusable, match="missing"):
            await journal.read(stream())
        postgres.execute(f"UPDATE {database.schema}.events SET kind = 'unheard'")
        with pytest.raises(JournalUnusable, match="unheard"):
            await journal.read(stream(), after=2)


async def test_a_name_that_no_index_takes_is_told(postgres: Postgres) -> None:
    async with open_postgres_journal(postgres.database()) as journal:
        with pytest.raises(JournalUnusable, match="2000"):
            await append(journal, "one", name="x" * 3000)
        # Others of its batch are not held up.
        assert await append(journal, "one", name="x" * 1900) == 1


async def test_a_waiter_hears_of_a_name_that_no_notification_carries(
    postgres: Postgres,
) -> None:
    database = postgres.database()
    name = "ö" * 300  # Quoted, it is six times as long.
    async with (
        open_postgres_journal(database) as mine,
        open_postgres_journal(database) as other,
    ):
        heard: list[int] = []

        async def wait() -> None:
            heard.append(await mine.moved(stream(name), after=0))

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                await append(other, "one", name=name)

    assert heard == [1]


@pytest.mark.parametrize(
    "said", ["", "nonsense", "x\ny\nz", "7\nz", "-1\nclaims\nclaim-1"]
)
async def test_what_others_say_on_the_channel_harms_nobody(
    postgres: Postgres, said: str
) -> None:
    database = postgres.database()
    async with (
        open_postgres_journal(database) as mine,
        open_postgres_journal(database) as other,
    ):
        heard: list[int] = []

        async def wait() -> None:
            heard.append(await mine.moved(stream(), after=0))

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                with database.connect() as connection:
                    connection.execute(
                        "SELECT pg_notify(%s, %s)", (database.schema, said)
                    )
                await append(other, "one")

    assert heard == [1]


async def test_a_server_that_was_away_is_gone_on_with(
    own_postgres: Postgres,
) -> None:
    """Nobody who waits misses a word, and what was acknowledged is there."""
    heard: list[int] = []
    database = own_postgres.database()
    async with (
        open_postgres_journal(database, lease_seconds=3600.0) as mine,
        open_postgres_journal(database) as other,
    ):
        await append(mine, "before")

        async def wait() -> None:
            heard.append(await mine.moved(stream(), after=1))

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                own_postgres.stop()
                own_postgres.start()
                await append(other, "after")
        history = await mine.read(stream())

    assert heard == [2]
    assert marks_of(history.events) == ["before", "after"]


async def test_a_server_that_has_become_a_standby_is_left_for_the_primary(
    own_postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    database = own_postgres.database()
    async with open_postgres_journal(database, lease_seconds=3600.0) as journal:
        await append(journal, "before")
        with own_postgres.as_a_standby():
            own_postgres.execute(_END_THEM)
            with pytest.raises(JournalUnusable, match="read-only"):
                await journal.append(stream(), marked("x"), expected_version=1)
        # The connections of meanwhile are alive, and would be read-only for ever.
        await append(journal, "after")
        assert await journal.holders.alive(journal.holders.own)
        history = await journal.read(stream())

    assert marks_of(history.events) == ["before", "after"]
    assert "server closed the connection unexpectedly" in caplog.text


_END_THEM = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'livery'
"""


async def test_a_statement_that_is_cancelled_is_told_as_that(
    postgres: Postgres,
) -> None:
    link = postgres.database().open_link()
    try:
        with pytest.raises(JournalUnusable, match="cancelled, after 30 s or by hand"):
            link.run(
                lambda it: it.execute("SELECT pg_cancel_backend(pg_backend_pid())"),
                changes=True,
            )
        assert link.run(lambda it: it.execute("SELECT 1"), changes=True).fetchall()
    finally:
        link.close()


async def test_a_server_that_stays_away_is_told_to_all(own_postgres: Postgres) -> None:
    database = attrs.evolve(own_postgres.database(), patience_seconds=1.0)
    async with open_postgres_journal(database, lease_seconds=3600.0) as journal:
        await append(journal, "before")
        own_postgres.stop()
        with anyio.fail_after(PATIENCE_SECONDS):
            with pytest.raises(JournalUnusable):
                await journal.append(stream(), marked("x"), expected_version=1)
            with pytest.raises(JournalUnusable):
                await journal.moved(stream(), after=1)
            assert await failures(journal, 3) == [JournalUnusable] * 3


async def failures(journal: PostgresJournal, count: int) -> list[type[Exception]]:
    """Read so often at once, and tell how each failed."""
    found: list[type[Exception]] = []

    async def read() -> None:
        try:
            await journal.read(stream())
        except JournalUnusable as unusable:
            found.append(type(unusable))

    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(read)
    return found
