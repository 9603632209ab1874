# SPDX-License-Identifier: Apache-2.0
"""The programs: one file each, and nothing that an old Python lacks."""

import subprocess
import sys
from pathlib import Path

import pytest

from livery.adapters.worker_scripts import PROGRAMS, PYTHON_OLDEST, bootstrap, program

from .. import peers

FOLDER = Path(__file__).parents[2] / "adapters" / "worker_scripts"
ARGUMENT_BYTES_MAX = 2000
VERMIN = "from vermin import main; main()"
MODULES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")


def test_no_module_needs_more_than_the_oldest_python() -> None:
    target = ".".join(map(str, PYTHON_OLDEST))

    checked = subprocess.run(
        [sys.executable, "-c", VERMIN, f"-t={target}-", "--violations", *MODULES],
        capture_output=True,
        text=True,
    )

    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_one_file_for_python_alone(name: str, python: str) -> None:
    check = "import sys; compile(sys.stdin.buffer.read(), 'program', 'exec')"

    subprocess.run([python, "-I", "-S", "-c", check], input=program(name), check=True)


def test_a_python_that_is_too_old_is_told_so(tmp_path: Path) -> None:
    too_old = peers.python((3, 7)) or peers.python((3, 6))
    if too_old is None:
        pytest.skip("no Python older than 3.8 is here")
    (tmp_path / "supervisor.py").write_bytes(program("supervisor"))

    ended = subprocess.run(
        [too_old, "-I", "-S", tmp_path / "supervisor.py", "status", "/x"],
        capture_output=True,
    )

    assert ended.returncode == 1
    assert b"Python 3.8 or newer is needed" in ended.stderr


def test_a_worker_is_started_by_a_short_command_line() -> None:
    argv, first = bootstrap("python3", "--without-subreaper")

    assert argv[0] == "python3"
    assert argv[-1] == "--without-subreaper"
    assert sum(map(len, argv)) < ARGUMENT_BYTES_MAX
    assert first == program("worker")


def test_a_worker_whose_program_is_cut_off_ends(python: str) -> None:
    argv, first = bootstrap(python)

    ended = subprocess.run(argv, input=first[:100], capture_output=True, timeout=30)

    assert ended.returncode == 3


def test_each_module_of_a_program_is_in_it_once() -> None:
    text = program("supervisor").decode()

    for part in ("accounts", "processes", "run_folder", "spool", "supervisor"):
        assert text.count(f"load({part!r},") == 1
