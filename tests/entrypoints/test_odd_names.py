# SPDX-License-Identifier: Apache-2.0
"""Names of files that are no UTF-8, and outputs that write no more than ASCII."""

import os
from pathlib import Path

from .command_lines import rewards, started, task, task_file

PATIENCE_SECONDS = 60.0


def ended(folder: Path, *words: object, **env: str) -> tuple[int, str, str]:
    """Carry out a command line in a process of its own."""
    with started(*words, cwd=folder, **env) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def test_a_run_of_files_whose_names_are_no_utf_8_can_be_gone_on_with(
    tmp_path: Path,
) -> None:
    tasks, out, state = (os.fsdecode(name + b"\xff") for name in (b"t", b"o", b"s"))
    task_file(tmp_path, task("a"), task("b")).rename(tmp_path / tasks)
    command = os.fsdecode(b"cp odd\xff answer 2>/dev/null || echo 42 > answer")

    status, _, err = ended(
        tmp_path,
        *("run", f"./{tasks}", "--out", out, "--state", state, "--command", command),
    )
    lines = (tmp_path / out / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / out / "results.jsonl").write_text(lines[0])
    again = ended(tmp_path, "run", "--resume", out)

    assert status == 0, err
    assert again[0] == 0, again[2]
    assert rewards(tmp_path / out) == {"a": 1.0, "b": 1.0}
    assert (tmp_path / state / "journal.sqlite").exists()


def test_tables_go_to_an_output_that_cannot_write_all_of_them(tmp_path: Path) -> None:
    row = task("a")
    row["task_id"]["taskset"] = "t\u00e2ches"
    tasks = task_file(tmp_path, row)

    status, out, err = ended(tmp_path, "run", tasks, "--out", "o")
    ascii = ended(tmp_path, "report", "o", PYTHONIOENCODING="ascii")

    assert status == 0, err
    assert "t\u00e2ches" in out
    assert ascii[0] == 0, ascii[2]
    assert "t\\xe2ches" in ascii[1]
