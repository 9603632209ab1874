# SPDX-License-Identifier: Apache-2.0
"""`livery run` takes tasks in and gives graded episodes out."""

import gc
import json
import stat
from pathlib import Path

import pytest

from .command_lines import (
    Livery,
    rewards,
    rows_of,
    sandboxes,
    task,
    task_file,
)


def test_the_reference_solutions_pass(
    livery: Livery, tmp_path: Path, state: Path
) -> None:
    tasks = task_file(tmp_path, task("a"), task("b", answer=7))

    ended = livery("run", tasks, "--out", "o", "--concurrency", 2)

    out = tmp_path / "o"
    assert ended.status == 0, ended.err
    assert rewards(out) == {"a": 1.0, "b": 1.0}
    assert "tasks: 2 of 2 passed" in ended.out
    assert "Results: o (livery report o)" in ended.err
    assert set(rows_of(out)[0]) == {"episode_id", "task_id", "result", "failure"}
    assert json.loads((out / "summary.json").read_text())["all"]["passed"] == 2
    assert sandboxes(state) == []
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_nothing_done_is_a_measured_failure(livery: Livery, tmp_path: Path) -> None:
    tasks = task_file(tmp_path, task("a"), task("b"))

    ended = livery("run", tasks, "--harness", "nop", "--out", "o", "--repeats", 2)

    assert ended.status == 0
    assert "0 of 4 passed, 4 failed, 0 masked, 0 broken" in ended.out
    assert "pass@2" in ended.out


@pytest.mark.parametrize(
    "words",
    [
        ("--", "sh", "-c", "echo 42 > answer"),
        ("--command", "echo 42 > answer"),
        ("--harness", "command", "--command", "echo 42 > answer"),
    ],
)
def test_a_command_of_the_users_own_works_on_the_task(
    livery: Livery, tmp_path: Path, words: tuple[str, ...]
) -> None:
    tasks = task_file(tmp_path, task("a"), task("b", answer=7))

    ended = livery("run", tasks, "--out", "o", *words)

    assert ended.status == 0
    assert rewards(tmp_path / "o") == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize("program", ["my-agnet", "./my-agnet", "/etc/passwd"])
def test_a_command_that_is_not_there_is_named_and_not_tried_again(
    livery: Livery, tmp_path: Path, program: str
) -> None:
    tasks = task_file(tmp_path, task("a"))

    ended = livery("run", tasks, "--out", "o", "--", program, "--fast")

    assert ended.status == 1
    (row,) = rows_of(tmp_path / "o")
    assert f"program {program}: " in row["failure"]["failure_reason"]
    assert row["failure"]["terminal"] is True
    assert "None of the broken episodes can be tried again" in ended.err


def test_the_settings_file_says_what_the_command_line_does_not(
    livery: Livery, tmp_path: Path
) -> None:
    (tmp_path / "livery.toml").write_text(
        """
        [run]
        harness = "agent"
        repeats = 3
        limit = 1
        [harness.agent]
        harness = "command"
        options = {command = ["sh", "-c", "echo $ANSWER > answer"], env = {ANSWER = "42"}}
        """
    )
    tasks = task_file(tmp_path, task("a"), task("b"))

    ended = livery("run", tasks, "--out", "o", "--repeats", 2)

    card = json.loads((tmp_path / "o" / "run.json").read_text())
    assert ended.status == 0
    assert (card["harness"], card["repeats"], card["limit"]) == ("agent", 2, 1)
    assert "2 of 2 passed" in ended.out


@pytest.mark.case("FC-256")
def test_the_command_line_can_switch_off_what_the_file_set(
    livery: Livery, tmp_path: Path
) -> None:
    (tmp_path / "livery.toml").write_text(
        '[run]\nlimit = 1\n[sandbox.local]\nimage = "some:1"\n'
    )
    tasks = task_file(tmp_path, task("a"), task("b"))

    ended = livery("run", tasks, "--out", "o", "--limit", "none", "--image", "none")

    assert ended.status == 0, ended.err
    assert rewards(tmp_path / "o") == {"a": 1.0, "b": 1.0}


@pytest.mark.case("FC-130")
def test_no_more_episodes_run_at_once_than_were_asked_for(
    livery: Livery, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    tasks = task_file(tmp_path, *(task(f"t{n}") for n in range(6)))
    command = f"echo 1 >> {log}; sleep 0.3; echo -1 >> {log}"

    ended = livery("run", tasks, "--concurrency", 2, "--command", command)

    running, most = 0, 0
    for step in log.read_text().split():
        running += int(step)
        most = max(most, running)
    assert ended.status == 0
    assert (running, most) == (0, 2)


def test_results_go_into_a_new_folder_when_none_is_named(
    livery: Livery, tmp_path: Path
) -> None:
    livery("run", task_file(tmp_path, task("a")))

    (folder,) = (tmp_path / "out").iterdir()
    assert folder.name.startswith("tasks-")
    assert rewards(folder) == {"a": 1.0}


def test_the_report_shows_the_same_on_a_terminal_and_as_markdown(
    livery: Livery, tmp_path: Path
) -> None:
    livery("run", task_file(tmp_path, task("a")), "--out", "o")

    table = livery("report", "o")
    markdown = livery("report", "o", "--format", "markdown")

    assert table.status == markdown.status == 0
    assert "1 of 1 passed" in table.out
    assert "| numbers | 1 | 1 | 0 | 0 | 0 | 100.0 % | 1.000 | 100.0 % |" in markdown.out
    assert markdown.out == (tmp_path / "o" / "summary.md").read_text()


@pytest.mark.peer("humaneval")
def test_humaneval_is_there_by_its_name(livery: Livery, tmp_path: Path) -> None:
    ended = livery("run", "humaneval", "--limit", 1, "--out", "o")

    assert ended.status == 0
    assert rewards(tmp_path / "o") == {"HumanEval/0": 1.0}


@pytest.mark.peer("docker")
def test_the_same_in_docker_with_a_mount(
    livery: Livery, tmp_path: Path, test_image: str
) -> None:
    tasks = task_file(tmp_path, task("a"), task("b"))
    (tmp_path / "shared").mkdir(mode=0o777)

    ended = livery(
        *("run", tasks, "--out", "o", "--sandbox", "docker", "--image", test_image),
        *("--network", "none", "--mount", "shared:/shared:rw"),
        *("--command", "echo 42 > answer; echo x >> /shared/starts"),
    )

    assert ended.status == 0, ended.err
    assert rewards(tmp_path / "o") == {"a": 1.0, "b": 1.0}
    assert (tmp_path / "shared" / "starts").read_text() == "x\nx\n"
    assert "No claim is open" in livery("claims", "list").out


@pytest.mark.peer("docker")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.case("FC-243")
@pytest.mark.case("FC-247")
def test_what_is_wrong_with_the_provider_is_told_once_and_nothing_is_made(
    livery: Livery, tmp_path: Path, test_image: str
) -> None:
    tasks = task_file(tmp_path, task("a"), task("b"))
    (tmp_path / "livery.toml").write_text(
        '[sandbox.gone]\nprovider = "docker"\noptions = {address = "unix:///no/such"}\n'
        '[sandbox.bare]\nprovider = "docker"\noptions = {pull = "never"}\n'
    )
    for words, told in (
        (("gone",), "Provider gone does not answer at"),
        (("bare", "--image", "livery-test/none:1"), "no image 'livery-test/none:1'"),
        (("bare", "--image", "UPPER//x"), "Provider bare"),
    ):
        ended = livery("run", tasks, "--out", "o", "--sandbox", *words)

        assert ended.status == 2
        assert ended.err.count("Provider ") == 1, ended.err
        assert told in ended.err
        assert not (tmp_path / "o").exists()
    # The docker package leaves a socket that cannot connect to the collector.
    gc.collect()
