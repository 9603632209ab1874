# SPDX-License-Identifier: Apache-2.0
"""`livery run` on a PostgreSQL journal, killed with SIGKILL and resumed.

The run is resumed from what its results folder says, and finds its journal there.
"""

from pathlib import Path

import attrs
import psycopg
import pytest

from livery.adapters.postgres_journal import Database

from ..crash.test_kill_and_resume import Scene, check_the_end, kill_when, scene
from .server import Postgres

pytestmark = pytest.mark.peer("postgres")

VARIABLE = "LIVERY_TEST_PASSWORD"


def settings_text(database: Database) -> str:
    """Return the settings of a journal there; the password is in a variable."""
    return f"""
[journal]
kind = "postgres"
url = "{database.url}"
schema = "{database.schema}"
password = {{env = "{VARIABLE}"}}
"""


def on_postgres(
    it: Scene, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Scene:
    """Return the scene with its journal in a schema that nobody has used."""
    database = postgres.database()
    monkeypatch.setenv(VARIABLE, postgres.password)
    settings = it.folder / "livery.toml"
    settings.write_text(settings_text(database))

    def count() -> int:
        try:
            rows = postgres.execute(f"SELECT count(*) FROM {database.schema}.events")
        except psycopg.Error:
            return 0  # It is being made.
        return int(str(rows[0][0]))

    return attrs.evolve(it, settings=("--config", str(settings)), count=count)


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("local", 12),
        ("local", 100),
        pytest.param("docker", 60, marks=pytest.mark.peer("docker")),
    ],
)
def test_a_killed_run_is_resumed_and_nothing_ran_twice_or_is_left(
    tmp_path: Path,
    test_image: str,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    events: int,
) -> None:
    it = on_postgres(scene(tmp_path, kind, test_image), postgres, monkeypatch)
    with it.begin() as run:
        killed = kill_when(run, lambda: it.written() >= events)
    it.resume()

    assert killed
    check_the_end(it)
    assert not (tmp_path / "state" / "journal.sqlite").exists()
    told = [path.read_bytes() for path in it.out.rglob("*") if path.is_file()]
    assert not any(postgres.password.encode() in text for text in told)
