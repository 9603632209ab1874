# SPDX-License-Identifier: Apache-2.0
"""The exit status of a run tells whether all was graded, and all pages say which it is."""

import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from .command_lines import Livery, rows_of, started, task, task_file
from .test_resume import PATIENCE_SECONDS, until

ROOT = Path(__file__).parent.parent.parent
GRADED = "every episode was graded, passed or failed"
LEFT = "masked, broken or left to do"
NOT_BEGUN = "could not begin"
SENTENCE = f"0 when {GRADED}; 1 when one is {LEFT}; 2 when the run {NOT_BEGUN}"
FAILURE = {
    "failure_kind": "provider_unavailable",
    "failure_reason": "it broke",
    "terminal": True,
    "partial_response": None,
}
MASKED = {"mask_sample": True, "failure_kind": "session_lost"}


def plain(text: str) -> str:
    """Return the words of a text, however they are wrapped."""
    return " ".join(text.split())


@pytest.mark.parametrize("answers", [(42, 42), (42, 7), (7, 7)])
def test_a_run_whose_episodes_were_all_graded_ends_with_0(
    livery: Livery, tmp_path: Path, answers: tuple[int, int]
) -> None:
    tasks = task_file(
        tmp_path, *(task(f"t{n}", answer=answer) for n, answer in enumerate(answers))
    )

    ended = livery("run", tasks, "--out", "o", "--command", "echo 42 > answer")

    assert f"{answers.count(42)} of 2 passed, {answers.count(7)} failed" in ended.out
    assert ended.status == 0


@pytest.mark.parametrize("kind", ["masked", "broken"])
def test_a_run_with_an_episode_that_measures_nothing_ends_with_1(
    livery: Livery, tmp_path: Path, kind: str
) -> None:
    livery("run", task_file(tmp_path, task("a"), task("b")), "--out", "o")
    first, second = rows_of(tmp_path / "o")
    became: Mapping[str, Any] = (
        {"result": second["result"] | MASKED}
        if kind == "masked"
        else {"result": None, "failure": FAILURE}
    )
    lines = (json.dumps(row) for row in (first, second | became))
    (tmp_path / "o" / "results.jsonl").write_text("".join(f"{one}\n" for one in lines))

    ended = livery("run", "--resume", "o")

    assert f"1 of 2 passed, 0 failed, {int(kind == 'masked')} masked" in ended.out
    assert ended.status == 1


def test_a_run_that_was_stopped_with_episodes_left_ends_with_1(tmp_path: Path) -> None:
    tasks = task_file(tmp_path, task("a"), task("b"))
    starts = tmp_path / "starts"
    command = f"echo x >> {starts}; sleep 1000"
    words = ("run", tasks, "--out", "o", "--concurrency", 1, "--command", command)
    with started(*words, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path / "s")) as process:
        until(starts, lines=1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert "1 not run" in out, err
    assert process.returncode == 1


def test_a_run_that_could_not_begin_ends_with_2_and_has_no_results(
    livery: Livery, tmp_path: Path
) -> None:
    tasks = task_file(tmp_path, task("a"))

    ended = livery("run", tasks, "--out", "o", "--sandbox", "nosuch")

    assert ended.status == 2
    assert not (tmp_path / "o").exists()


def test_the_help_and_the_readme_say_so_in_one_sentence(livery: Livery) -> None:
    told = livery("run", "--help").out
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert SENTENCE in plain(told)
    assert SENTENCE in plain(readme)


def test_the_page_of_the_command_line_says_so_in_its_table() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE))

    assert list(rows) == ["0", "1", "2", "130"]
    assert f"For a run: {GRADED}." in rows["0"]
    assert f"For a run: an episode is {LEFT}." in rows["1"]
    assert NOT_BEGUN in rows["2"]
