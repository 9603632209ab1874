# SPDX-License-Identifier: Apache-2.0
"""What is wrong is told with what, where and what would be right; nothing is written."""

import json
from pathlib import Path

import pytest

from .command_lines import Livery, task, task_file

TWICE = (json.dumps(task("a")), json.dumps(task("b")), json.dumps(task("a")))
NO_GRADER = {**task("a"), "task_input": {"responses_create_params": {"input": "x"}}}
SLOW = json.dumps(task("a")).replace(
    '"grader": {', '"grader": {"timeout_seconds": -1, '
)
NAN = SLOW.replace("-1", "NaN")
MISSPELT = json.dumps(task("a", solutoin={}))
UNSOLVED = json.dumps(task("a", solution=None)).replace(', "solution": null', "")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ((), ["tasks.jsonl", "no task"]),
        (("{",), ["tasks.jsonl", "line 1"]),
        ((json.dumps(task("a")), "not json"), ["line 2"]),
        (TWICE, ["line 3", "line 1"]),
        ((json.dumps(NO_GRADER),), ["line 1", "grader"]),
        ((SLOW,), ["line 1", "timeout_seconds", "-1"]),
        ((NAN,), ["line 1", "timeout_seconds", "is nan"]),
        ((MISSPELT,), ["line 1", "solutoin", "solution"]),
        ((UNSOLVED,), ["oracle", "no reference solution"]),
        ((json.dumps({**task("a"), "more": 1}),), ["line 1", "more"]),
        ((json.dumps({"task_id": {"taskset": 1, "task_id": "a"}}),), ["taskset"]),
        (("{", "{"), ["line 1", "line 2"]),
    ],
)
def test_tasks_that_are_wrong(
    livery: Livery, tmp_path: Path, rows: tuple[str, ...], told: list[str]
) -> None:
    tasks = task_file(tmp_path, *rows)

    ended = livery("run", tasks, "--out", "o")

    assert ended.status == 2
    assert [words for words in told if words not in ended.err] == [], ended.err
    assert "Traceback" not in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tasks.jsonl"]


def test_every_task_s_sandbox_is_looked_at_before_the_run(
    livery: Livery, tmp_path: Path
) -> None:
    rows = (task("a"), task("b", sandbox={"image": "x:1"}))
    tasks = task_file(tmp_path, *rows, task("c", sandbox={"cpus": 2}))

    ended = livery("run", tasks, "--out", "o")

    assert ended.status == 2
    lines = ended.err.splitlines()
    assert lines[0] == f"livery: {tasks}:"
    assert lines[1].startswith("line 2: Task b: Provider local cannot do images")
    assert lines[2].startswith(
        "line 3: Task c: Provider local cannot do resource limits"
    )
    assert not (tmp_path / "o").exists()


def test_what_is_configured_is_not_told_as_the_tasks_mistake(
    livery: Livery, tmp_path: Path
) -> None:
    rows = (task("a"), task("b", sandbox={"image": "x:1"}))
    tasks = task_file(tmp_path, *rows)

    ended = livery("run", tasks, "--network", "none")

    assert ended.status == 2
    assert ended.err.startswith("livery: Provider local cannot do network none")
    assert "Task" not in ended.err


@pytest.mark.parametrize("image", ["a b", "UPPER//x", "x:", "x@sha256:1", "-x", ":1"])
def test_an_image_s_name_that_is_none_is_refused_without_asking_anybody(
    livery: Livery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such")
    plain = task_file(tmp_path, task("a"))
    told = f"Provider docker refuses image: {image!r} is no image's name"

    by_word = livery("run", plain, "--sandbox", "docker", "--image", image)
    monkeypatch.setenv("LIVERY_IMAGE", image)
    by_variable = livery("run", plain, "--sandbox", "docker")
    monkeypatch.delenv("LIVERY_IMAGE")
    tasks = task_file(tmp_path, task("a", sandbox={"image": image}))
    by_task = livery("run", tasks, "--sandbox", "docker")

    assert {ended.status for ended in (by_word, by_variable, by_task)} == {2}
    assert by_word.err.startswith(f"livery: {told}")
    assert by_variable.err.startswith(f"livery: {told}")
    assert f"line 1: Task a: {told}" in by_task.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "Name the tasks: humaneval"),
        (("nosuch",), "There is no task source 'nosuch'; there are desk, humaneval"),
        (("no/such.jsonl",), "no/such.jsonl"),
        (("humaneval:x",), "takes no argument"),
        (
            ("T", "--harness", "nosuch"),
            "no harness 'nosuch'; there are claude_code, command",
        ),
        (
            ("T", "--sandbox", "nosuch"),
            "no sandbox provider 'nosuch'; there are agent_sandbox, docker, local",
        ),
        (("T", "--repeats", "0"), "0 is not in the range"),
        (("T", "--limit", "0"), "'0' is not 1 or more, at most 1,000,000,000, or none"),
        (("T", "--limit", "9" * 20), "at most 1,000,000,000, or none"),
        (("T", "--limit", "9" * 5000), "at most 1,000,000,000, or none"),
        (("T", "--state", "~nobody-of-that-name/x"), "no such home folder"),
        (("T", "--concurrency", "x"), "'x' is not a valid integer"),
        (
            ("T", "--network", "some"),
            "'some' is not one of 'none', 'listed', 'default'",
        ),
        (("T", "--mount", "/a"), "'/a' is not HOST:INSIDE"),
        (("T", "--mount", "/a:/b:x"), "'/a:/b:x' is not HOST:INSIDE"),
        (("T", "--harness", "command"), "harness.command.options.command: is needed"),
        (
            ("T", "--harness", "simple", "--policy", "scripted:solutions"),
            "known to `livery run` alone, and there to sources like desk",
        ),
        (("T", "--harness", "nop", "--", "x"), "Harness nop takes no command"),
        (("T", "--command", "x", "--", "x"), "not both"),
        (("T", "--command", ""), "--command is empty"),
        (("T", "--command", "  "), "--command is empty"),
        (("T", "--"), "There is no command after --"),
        (("T", "--", ""), "There is no command after --"),
        (("T", "--retry-masked"), "goes with --resume"),
        (("T", "extra"), "unexpected extra argument"),
        (("T", "--resume", "o", "--image", "x"), "leave out source, --image"),
        (("--resume", "o", "--", "x"), "leave out the words after --"),
        (("--resume", "nowhere"), "holds no run"),
        (("",), "Invalid value for '[SOURCE]': it is empty"),
        (("T", "--sandbox", ""), "Invalid value for '--sandbox': it is empty"),
        (("T", "--image", " "), "Invalid value for '--image': it is empty"),
        (("T", "--out", ""), "Invalid value for '--out': it is empty"),
        (("--resume", ""), "Invalid value for '--resume': it is empty"),
        (("T", "--state", ""), "Invalid value for '--state': it is empty"),
        (("T", "--config", ""), "Invalid value for '--config': it is empty"),
        (("T", "--config", "no.toml"), "no.toml cannot be used"),
        (("T", "--image", "x"), "Provider local cannot do images"),
        (("T", "--network", "none"), "Provider local cannot do network none"),
        (
            ("T", "--state", "/dev/null/x"),
            "The state folder /dev/null/x cannot be used",
        ),
    ],
)
def test_words_that_are_wrong(
    livery: Livery, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    tasks = task_file(tmp_path, task("a"))

    ended = livery("run", *(tasks if word == "T" else word for word in words))

    assert ended.status == 2
    assert told in " ".join(ended.err.split()), ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out").exists()


def test_what_must_be_named_cannot_be_left_out(livery: Livery) -> None:
    ended = livery("report", "")

    assert ended.status == 2
    assert "Invalid value for 'DIR': it is empty; name a path.\n" in ended.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[run]\nconcurency = 3", "line 2: run.concurency: is unknown"),
        ("[run]\nrepeats = -1", "line 2: run.repeats: wants"),
        (
            "[sandbox.local]\noptions = {pull = 1}",
            "sandbox.local.options.pull: is unknown",
        ),
        (
            "[sandbox.local]\nlifetime_seconds = 60",
            "sandbox.local.lifetime_seconds: is 60, and the harness's",
        ),
        ("[run]\nepisode_timeout_seconds = 60", "turn_timeout_seconds is 3600"),
    ],
)
@pytest.mark.case("FC-209")
@pytest.mark.case("FC-250")
def test_settings_that_are_wrong(
    livery: Livery, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "livery.toml").write_text(text)
    tasks = task_file(tmp_path, task("a"))

    ended = livery("run", tasks, "--out", "o")

    assert ended.status == 2
    assert told in ended.err
    assert not (tmp_path / "o").exists()


def test_a_folder_of_another_run_or_of_something_else_is_left_alone(
    livery: Livery, tmp_path: Path
) -> None:
    tasks = task_file(tmp_path, task("a"))
    livery("run", tasks, "--out", "o")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "one.tex").touch()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[ot]*/*")}

    again = livery("run", tasks, "--out", "o")
    other = livery("run", tasks, "--out", "thesis")

    assert again.status == other.status == 2
    assert "livery run --resume o" in again.err
    assert "is not empty: it holds one.tex" in other.err
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[ot]*/*")}
    assert after == before


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("n" * 300, "File name too long"),
        (f"new/{'n' * 300}", "File name too long"),
        ("tasks.jsonl/o", "Not a directory"),
        ("/proc/o", "No such file or directory"),
    ],
)
def test_a_results_folder_that_cannot_be_made(
    livery: Livery, tmp_path: Path, out: str, told: str
) -> None:
    tasks = task_file(tmp_path, task("a"))

    ended = livery("run", tasks, "--out", out)

    assert ended.status == 2
    assert f"{out} cannot be used: {told}. Name another with --out." in ended.err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "home") == [
        "tasks.jsonl"
    ]


def test_a_task_file_s_name_that_is_too_long_for_a_results_folder(
    livery: Livery, tmp_path: Path
) -> None:
    tasks = task_file(tmp_path, task("a")).rename(tmp_path / f"{'n' * 249}.jsonl")

    ended = livery("run", tasks)

    assert ended.status == 2
    assert "cannot be used: File name too long. Name another with --out." in ended.err
    assert not (tmp_path / "out").exists()


def test_an_unknown_command_and_an_unknown_option_are_told(livery: Livery) -> None:
    assert livery("rum").status == 2
    assert livery("run", "--harnes", "x").status == 2
    assert livery("report", "nowhere").status == 2
