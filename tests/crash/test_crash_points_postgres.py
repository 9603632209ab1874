# SPDX-License-Identifier: Apache-2.0
"""An episode whose journal is in PostgreSQL, struck at each point, has the same end.

A killed process has its lease until that is over. The time until then goes by in the
database alone: the lease is dated back.
"""

from pathlib import Path

import attrs
import pytest

from livery.adapters.postgres_journal import Database, open_postgres_journal

from ..postgres.server import Postgres
from ..postgres.test_crashes import VARIABLE, settings_text
from .courses import FATES, UNDISTURBED, Case, cases, check, differences, listed, todays
from .forks import Forks
from .one_episode import OneEpisode

pytestmark = [pytest.mark.peer("docker"), pytest.mark.peer("postgres")]

A_DAY = 3
"""How many cases the peers' tests have in a day."""
OF_SQLITE = (" journal.sqlite", " holders")
"""The files of a journal that is one: it, and who writes to it."""
CASES = [case for case in cases() if not any(name in case.point for name in OF_SQLITE)]
POINTS = [point for point in listed() if Case(FATES[0], point) in CASES]
LOOK_SECONDS = 3600.0


@attrs.frozen
class OnPostgres:
    """An episode, and how time goes by for those who wrote its journal."""

    one: OneEpisode
    postgres: Postgres
    database: Database

    def check(self, case: Case) -> None:
        check(self.one, case, after_kill=self.let_leases_end)

    def let_leases_end(self, _: OneEpisode) -> None:
        (there,) = self.postgres.execute(
            "SELECT count(*) FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = 'leases'",
            self.database.schema,
        )
        if there != (0,):
            self.postgres.execute(
                f"UPDATE {self.database.schema}.leases"
                " SET renewed_at = renewed_at - make_interval(secs => 2 * seconds)"
            )


@pytest.fixture
def it(
    tmp_path: Path,
    test_image: str,
    forks: Forks,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> OnPostgres:
    database = postgres.database()
    monkeypatch.setenv(VARIABLE, postgres.password)
    settings = tmp_path / "livery.toml"
    settings.write_text(settings_text(database))
    one = OneEpisode(
        folder=tmp_path,
        image=test_image,
        forks=forks,
        settings=("--config", str(settings)),
        journal=lambda: open_postgres_journal(database, lease_seconds=LOOK_SECONDS),
    )
    one.prepare()
    return OnPostgres(one, postgres, database)


def test_the_undisturbed_episode_passes_the_same_points(it: OnPostgres) -> None:
    ended = it.one.begin()

    assert ended.status == 0, ended.said
    assert it.one.end() == UNDISTURBED
    assert differences(it.one.notes) == (set(listed()) - set(POINTS), set())
    assert not (it.one.state / "journal.sqlite").exists()


@pytest.mark.parametrize("share", range(A_DAY))
def test_todays_part(it: OnPostgres, share: int) -> None:
    case = todays(CASES, A_DAY)[share]
    print(f'pytest -m long tests/crash/test_crash_points_postgres.py -k "{case.point}"')

    it.check(case)


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("fate", FATES)
def test_each_fate_at_each_point(it: OnPostgres, fate: str, point: str) -> None:
    it.check(Case(fate, point))
