# SPDX-License-Identifier: Apache-2.0
"""A run goes on where it was left, and nothing is done twice."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from livery.domain.rollouts import ATTEMPTS_MAX

from .command_lines import (
    Livery,
    open_claims,
    rewards,
    rows_of,
    sandboxes,
    started,
    task,
    task_file,
)

PATIENCE_SECONDS = 60.0
FILE_BLOCKS_MAX = 200
"""Of 512 bytes, as the shell counts."""


def until(there: Path, *, lines: int) -> None:
    """Wait, within bounds, until the file has so many lines."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not there.exists() or len(there.read_text().splitlines()) < lines:
        assert time.monotonic() < deadline, f"{there} never had {lines} lines"
        time.sleep(0.02)


def test_what_was_graded_is_not_run_again(livery: Livery, tmp_path: Path) -> None:
    livery("run", task_file(tmp_path, task("a")), "--out", "o")
    before = (tmp_path / "o" / "results.jsonl").read_bytes()

    ended = livery("run", "--resume", "o")

    assert ended.status == 0
    assert "Nothing is left to run." in ended.err
    assert (tmp_path / "o" / "results.jsonl").read_bytes() == before


def test_tasks_that_changed_are_refused(livery: Livery, tmp_path: Path) -> None:
    livery("run", task_file(tmp_path, task("a")), "--out", "o")
    task_file(tmp_path, task("a", answer=43))

    ended = livery("run", "--resume", "o")

    assert ended.status == 2
    assert "not what they were when it began" in " ".join(ended.err.split())


def test_a_damaged_run_file_is_told(livery: Livery, tmp_path: Path) -> None:
    livery("run", task_file(tmp_path, task("a")), "--out", "o")
    path = tmp_path / "o" / "run.json"
    card = json.loads(path.read_text())
    card["settings"]["concurrency"] = 0
    path.write_text(json.dumps(card))

    ended = livery("run", "--resume", "o")

    assert ended.status == 2
    assert "concurrency: wants a number at least 1" in ended.err


@pytest.mark.parametrize("garbage", [b"garbage", b"\xff\xfe", b"[]", b""])
def test_a_line_that_is_no_result_is_told_before_anything_is_made(
    livery: Livery, tmp_path: Path, garbage: bytes
) -> None:
    livery("run", task_file(tmp_path, task("a"), task("b")), "--out", "o")
    path = tmp_path / "o" / "results.jsonl"
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join((first, garbage, second, b"")))

    ended = livery("run", "--resume", "o")

    assert ended.status == 2
    assert "o/results.jsonl, line 2: it is no row" in ended.err
    assert "Put the line right, or remove it to have its episode run" in ended.err
    assert "Provider local" not in ended.err, "a sandbox was made"
    assert "Sandboxes may be left" not in ended.err


def test_masked_ones_are_run_again_when_that_is_asked_for(
    livery: Livery, tmp_path: Path
) -> None:
    livery("run", task_file(tmp_path, task("a"), task("b")), "--out", "o")
    path = tmp_path / "o" / "results.jsonl"
    first, second = map(json.loads, path.read_text().splitlines())
    second["result"] |= {"mask_sample": True, "failure_kind": "session_lost"}
    path.write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")

    left = livery("run", "--resume", "o")
    ended = livery("run", "--resume", "o", "--retry-masked")

    assert left.status == 1
    assert "Nothing is left to run." in left.err
    assert "--retry-masked" in left.err
    assert ended.status == 0
    assert [row["episode_id"]["attempt"] for row in rows_of(tmp_path / "o")] == [
        0,
        0,
        1,
    ]


def write_attempts(folder: Path, row: dict[str, Any], attempts: int) -> None:
    """Have the results be this row for so many attempts."""
    rows = [
        {**row, "episode_id": {**row["episode_id"], "attempt": attempt}}
        for attempt in range(attempts)
    ]
    text = "".join(f"{json.dumps(each)}\n" for each in rows)
    (folder / "results.jsonl").write_text(text)


@pytest.mark.parametrize(("attempts", "terminal"), [(1, True), (ATTEMPTS_MAX, False)])
def test_a_resume_that_would_run_nothing_is_not_advised(
    livery: Livery, tmp_path: Path, attempts: int, terminal: bool
) -> None:
    livery("run", task_file(tmp_path, task("a")), "--out", "o")
    (row,) = rows_of(tmp_path / "o")
    row |= {
        "result": None,
        "failure": {
            "failure_kind": "provider_unavailable",
            "failure_reason": "it broke",
            "terminal": terminal,
            "partial_response": None,
        },
    }
    write_attempts(tmp_path / "o", row, attempts)

    ended = livery("run", "--resume", "o")

    assert ended.status == 1
    assert "Nothing is left to run." in ended.err
    assert "livery run --resume" not in ended.err
    assert (
        "None of the broken episodes can be tried again: `livery report o` tells why."
        in ended.err
    )


def test_masked_ones_that_were_tried_often_enough_are_not_advised(
    livery: Livery, tmp_path: Path
) -> None:
    livery("run", task_file(tmp_path, task("a")), "--out", "o")
    (row,) = rows_of(tmp_path / "o")
    row["result"] |= {"mask_sample": True, "failure_kind": "session_lost"}
    write_attempts(tmp_path / "o", row, ATTEMPTS_MAX)

    ended = livery("run", "--resume", "o", "--retry-masked")

    assert ended.status == 1
    assert "Nothing is left to run." in ended.err
    assert "livery run --resume" not in ended.err
    assert (
        "None of the masked episodes can be tried again: `livery report o` tells why."
        in ended.err
    )


def test_a_resume_that_would_run_something_is_advised(
    livery: Livery, tmp_path: Path
) -> None:
    starts, flag = tmp_path / "starts", tmp_path / "flag"
    command = f"echo x >> {starts}; test -e {flag} || sleep 1000; echo 42 > answer"
    with started(
        *("run", task_file(tmp_path, task("a")), "--out", "o", "--command", command),
        cwd=tmp_path,
    ) as process:
        until(starts, lines=1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    flag.touch()

    ended = livery("run", "--resume", "o")

    assert "What can be tried again is, with: livery run --resume o" in err
    assert ended.status == 0, ended.err


def test_a_torn_line_is_healed_and_told(livery: Livery, tmp_path: Path) -> None:
    livery("run", task_file(tmp_path, task("a"), task("b")), "--out", "o")
    path = tmp_path / "o" / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-50])

    ended = livery("run", "--resume", "o")

    assert ended.status == 0
    assert "a kill had torn" in ended.err
    assert len(rows_of(tmp_path / "o")) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_stops_in_order_and_the_run_goes_on_later(
    livery: Livery, tmp_path: Path, state: Path, number: signal.Signals
) -> None:
    tasks = task_file(tmp_path, *(task(f"t{n}") for n in range(4)))
    starts, flag = tmp_path / "starts", tmp_path / "flag"
    command = f"echo x >> {starts}; test -e {flag} || sleep 1000; echo 42 > answer"
    with started(
        *("run", tasks, "--out", "o", "--concurrency", 2, "--command", command),
        cwd=tmp_path,
    ) as process:
        until(starts, lines=2)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    flag.touch()
    left = sandboxes(state)
    rows = rows_of(tmp_path / "o")

    ended = livery("run", "--resume", "o")

    assert process.returncode == 1, err
    assert "Stopping: nothing more is begun" in err
    assert "Go on with: livery run --resume o" in err
    assert left == []
    assert [row["failure"]["failure_kind"] for row in rows] == ["cancelled"] * 2
    assert ended.status == 0, ended.err
    assert "4 of 4 passed" in ended.out


def test_a_second_signal_ends_at_once_and_the_reaper_finds_the_rest(
    livery: Livery, tmp_path: Path, state: Path
) -> None:
    tasks = task_file(tmp_path, task("a"))
    starts = tmp_path / "starts"
    # Deaf to the first signal's orderly end, so that the second finds it running.
    command = f"trap '' TERM; echo x >> {starts}; sleep 1000 & wait; sleep 1000"
    with started(
        "run", tasks, "--out", "o", "--command", command, cwd=tmp_path
    ) as process:
        until(starts, lines=1)
        process.send_signal(signal.SIGINT)
        assert process.stderr
        while "Stopping" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 130
    assert "`livery claims reap`" in err
    assert "to release" in livery("claims", "list").out
    (name,) = sandboxes(state)
    (claim,) = open_claims(state)
    before = livery("claims", "explain", claim)
    assert "ClaimRequested" in before.out
    assert "Nobody uses it: `livery claims reap` gives it back." in before.out
    assert livery("claims", "reap", "--dry-run").status == 0
    assert sandboxes(state) == [name]
    reaped = livery("claims", "reap")
    assert reaped.status == 0, reaped.err
    assert "released" in reaped.out
    assert sandboxes(state) == []
    after = livery("claims", "explain", claim)
    assert "ClaimReleased" in after.out
    assert "It was given back; nothing is left of it." in after.out


@pytest.mark.case("FC-112")
def test_after_a_hard_kill_each_task_is_graded_once_and_started_once(
    livery: Livery, tmp_path: Path, state: Path
) -> None:
    names = [f"t{n}" for n in range(5)]
    tasks = task_file(tmp_path, *map(task, names))
    starts = tmp_path / "starts"
    command = f"echo $LIVERY_EPISODE >> {starts}; sleep 1; echo 42 > answer"
    with started(
        *("run", tasks, "--out", "o", "--concurrency", 2, "--command", command),
        cwd=tmp_path,
    ) as process:
        until(starts, lines=3)
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)

    ended = livery("run", "--resume", "o")

    began = starts.read_text().split()
    assert ended.status == 0, ended.err
    assert rewards(tmp_path / "o") == dict.fromkeys(names, 1.0)
    assert len(began) == len(set(began))
    assert sandboxes(state) == []
    assert "No claim is open" in livery("claims", "list").out


@pytest.mark.peer("docker")
@pytest.mark.case("FC-112")
def test_the_same_with_containers(
    livery: Livery, tmp_path: Path, test_image: str
) -> None:
    names = [f"t{n}" for n in range(4)]
    tasks = task_file(tmp_path, *map(task, names))
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    command = "echo $LIVERY_EPISODE >> /shared/starts; sleep 2; echo 42 > answer"
    with started(
        *("run", tasks, "--out", "o", "--concurrency", 2, "--command", command),
        *("--sandbox", "docker", "--image", test_image),
        *("--mount", f"{shared}:/shared:rw"),
        cwd=tmp_path,
    ) as process:
        until(shared / "starts", lines=3)
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)

    ended = livery("run", "--resume", "o")

    began = (shared / "starts").read_text().split()
    assert ended.status == 0, ended.err
    assert rewards(tmp_path / "o") == dict.fromkeys(names, 1.0)
    assert len(began) == len(set(began))
    assert "No claim is open" in livery("claims", "list").out


def test_a_state_folder_that_becomes_full_ends_the_run_and_it_goes_on_later(
    livery: Livery, tmp_path: Path, state: Path
) -> None:
    tasks = task_file(tmp_path, *(task(f"t{n}") for n in range(30)))
    # No file may grow larger than what a few episodes write into the journal.
    limited = ("sh", "-c", f'ulimit -f {FILE_BLOCKS_MAX}; exec "$@"', "limited")
    with started(
        "run", tasks, "--out", "o", "--concurrency", 2, cwd=tmp_path, within=limited
    ) as process:
        _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1, err
    assert "The journal at" in err
    assert "Go on, once that is mended, with: livery run --resume o" in err
    ended = livery("run", "--resume", "o")

    assert ended.status == 0, ended.err
    assert "30 of 30 passed" in ended.out
    assert sandboxes(state) == []
    assert "No claim is open" in livery("claims", "list").out
