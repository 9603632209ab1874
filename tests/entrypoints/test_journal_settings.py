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
    [f"postgresql://user:{SECRET}@host/db", f"host=db password={SECRET} user=me"],
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
