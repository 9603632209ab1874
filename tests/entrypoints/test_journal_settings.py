# SPDX-License-Identifier: Apache-2.0
"""What settings of the journal are refused, and with which words."""

import subprocess
import sys
from pathlib import Path

import pytest

from livery.entrypoints.settings_reading import SettingsRefused, read_settings

from .command_lines import PROGRAM

SECRET = "hunter2"
SECONDS_MAX = 120.0
WITHOUT = "import sys; sys.modules['psycopg'] = None; "


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@host/db",
        f"postgresql://user:{SECRET}#?@host:5432/db",
        f"postgresql://user:a/{SECRET}@host/db",
        f"postgresql://user:[{SECRET}]@host/db",
        f"postgresql://user@host/db?password={SECRET}",
        f"host=db password={SECRET} user=me",
        f"host=db password = '{SECRET}' user=me",
    ],
)
def test_a_password_in_the_file_is_refused_without_being_told(
    tmp_path: Path, url: str
) -> None:
    file = tmp_path / "livery.toml"
    file.write_text(f'[journal]\nkind = "postgres"\nurl = "{url}"\n')

    with pytest.raises(SettingsRefused) as refused:
        read_settings(file)

    assert "journal" in str(refused.value)
    assert "{env =" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user@host:5432/db",
        "postgresql://host:5432,other:5433/db?user=me@corp",
        "postgresql://[::1]:5432/db?user=me@corp",
        "postgresql://user@/db?host=/run/postgresql",
        "host=db port=5432 user=me@corp",
    ],
)
def test_a_url_without_a_password_is_taken(tmp_path: Path, url: str) -> None:
    file = tmp_path / "livery.toml"
    file.write_text(f'[journal]\nkind = "postgres"\nurl = "{url}"\n')

    assert read_settings(file).settings.journal.url == url


@pytest.mark.parametrize("schema", ["", "s" * 64, "pg_mine", "100%d", "ö", "a\\u0000b"])
def test_a_schema_that_postgres_would_not_take_is_refused(
    tmp_path: Path, schema: str
) -> None:
    file = tmp_path / "livery.toml"
    file.write_text(f'[journal]\nschema = "{schema}"\n')

    with pytest.raises(SettingsRefused) as refused:
        read_settings(file)

    assert "journal.schema" in str(refused.value)
    assert "at most 63 letters" in str(refused.value)


def test_a_library_that_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "livery.toml"
    file.write_text('[journal]\nkind = "postgres"\n')

    ended = subprocess.run(
        [
            *(sys.executable, "-c", WITHOUT + PROGRAM, "claims", "list"),
            *("--config", file, "--state", tmp_path / "state"),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )

    assert ended.returncode == 2
    assert "pip install 'livery[postgres]'" in ended.stderr
