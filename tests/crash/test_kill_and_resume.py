# SPDX-License-Identifier: Apache-2.0
"""`livery run` killed with SIGKILL, and resumed: each task once, each start once.

The command counts its own starts, in a file outside of every sandbox: one line with
the episode's key each time that it begins.
"""

import collections
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from ..entrypoints.command_lines import PROGRAM

TASKS = 10
CONCURRENCY = 4
RUN_SECONDS = 180.0
GRADER = (
    'read -r mark; test "$(cat answer.txt)" = 42; status=$?; echo "$mark"; exit $status'
)
SOLVE = 'echo "$LIVERY_EPISODE" >> STARTS; sleep SECONDS; printf 42 > answer.txt'


@attrs.frozen
class Scene:
    """One run's folders, and how its sandboxes are asked for."""

    folder: Path
    sandbox: tuple[str, ...]
    starts_inside: str
    """The file of starts, as a sandbox sees it."""
    seconds: float = 0.5
    """How long each command takes."""
    settings: tuple[str, ...] = ()
    """Words that name a settings file, where there is one."""
    count: Callable[[], int] | None = None
    """Counts what a journal holds that is no file."""

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def starts(self) -> list[str]:
        file = self.folder / "shared" / "starts"
        return file.read_text().splitlines() if file.exists() else []

    def livery(self, *words: str) -> list[str]:
        state = ("--state", str(self.folder / "state"))
        return [sys.executable, "-c", PROGRAM, *words, *state]

    def begin(self) -> subprocess.Popen[bytes]:
        """Start the run in a session of its own, so that a kill hits it alone."""
        words = self.livery(
            "run",
            str(self.folder / "tasks.jsonl"),
            "--harness",
            "command",
            "--command",
            SOLVE.replace("STARTS", self.starts_inside).replace(
                "SECONDS", str(self.seconds)
            ),
            "--concurrency",
            str(CONCURRENCY),
            "--out",
            str(self.out),
            *self.sandbox,
            *self.settings,
        )
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def resume(self) -> None:
        words = self.livery("run", "--resume", str(self.out))
        done = subprocess.run(
            words, capture_output=True, timeout=RUN_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def written(self) -> int:
        """Return how many events the journal holds."""
        if self.count is not None:
            return self.count()
        path = self.folder / "state" / "journal.sqlite"
        if not path.exists():
            return 0
        journal = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            return int(journal.execute("SELECT count(*) FROM events").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # It is being made.
        finally:
            journal.close()

    def open_claims(self) -> str:
        listed = subprocess.run(
            self.livery("claims", "list", *self.settings),
            capture_output=True,
            timeout=60,
            check=True,
        )
        return listed.stdout.decode()

    def rows(self) -> list[dict[str, object]]:
        lines = (self.out / "results.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def scene(folder: Path, kind: str, image: str) -> Scene:
    """Return a scene with its tasks written down."""
    shared = folder / "shared"
    shared.mkdir()
    with (folder / "tasks.jsonl").open("w") as tasks:
        for number in range(TASKS):
            row = {
                "task_id": {"taskset": "crash", "task_id": str(number)},
                "task_input": {
                    "responses_create_params": {"input": "Write 42 into answer.txt."},
                    "task_data": {
                        "files": {"answer.txt": "?"},
                        "grader": {"files": {}, "command": ["sh", "-c", GRADER]},
                    },
                },
            }
            print(json.dumps(row), file=tasks)
    if kind == "local":
        return Scene(folder, ("--sandbox", "local"), str(shared / "starts"))
    mount = f"{shared}:/shared:rw"
    words = ("--sandbox", "docker", "--image", image, "--mount", mount)
    return Scene(folder, words, "/shared/starts")


def kill_when(run: subprocess.Popen[bytes], reached: Callable[[], bool]) -> bool:
    """Kill the run once `reached`; return False if it ended before."""
    until = time.monotonic() + RUN_SECONDS
    while run.poll() is None:
        assert time.monotonic() < until, "the run does not get that far"
        if reached():
            os.kill(run.pid, signal.SIGKILL)
            run.wait()
            return True
        time.sleep(0.02)  # Another process writes; there is nothing to wait on.
    return False


def check_the_end(it: Scene) -> None:
    """Each task was graded once, no start was counted twice, nothing is left."""
    graded = [row for row in it.rows() if row["result"] is not None]
    tasks = [json.dumps(row["task_id"]) for row in graded]
    assert sorted(tasks) == sorted(set(tasks))
    assert len(tasks) == TASKS
    counted = collections.Counter(it.starts)
    assert set(counted.values()) == {1}, counted
    assert "No claim is open" in it.open_claims()


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("local", 12),
        ("local", 80),
        ("local", 160),
        pytest.param("docker", 20, marks=pytest.mark.peer("docker")),
        pytest.param("docker", 110, marks=pytest.mark.peer("docker")),
    ],
)
@pytest.mark.case("FC-142", "FC-115", "FC-112", "FC-090")
def test_a_killed_run_is_resumed_and_nothing_ran_twice_or_is_left(
    tmp_path: Path, test_image: str, kind: str, events: int
) -> None:
    it = scene(tmp_path, kind, test_image)
    with it.begin() as run:
        killed = kill_when(run, lambda: it.written() >= events)
    it.resume()

    assert killed
    check_the_end(it)


@pytest.mark.parametrize(
    "kind", ["local", pytest.param("docker", marks=pytest.mark.peer("docker"))]
)
@pytest.mark.case("FC-112", "FC-115")
def test_runs_that_still_go_are_taken_over(
    tmp_path: Path, test_image: str, kind: str
) -> None:
    it = attrs.evolve(scene(tmp_path, kind, test_image), seconds=4.0)
    with it.begin() as run:
        killed = kill_when(run, lambda: len(it.starts) == CONCURRENCY)
    begun = set(it.starts)
    it.resume()

    assert killed
    check_the_end(it)
    attempts = {row["episode_id"]["attempt"] for row in it.rows()}  # type: ignore[index]
    assert attempts == {0}
    assert begun <= set(it.starts)


@pytest.mark.case("FC-099", "FC-086")
def test_interrupting_once_gives_everything_back_and_the_rest_can_be_resumed(
    tmp_path: Path, test_image: str
) -> None:
    it = attrs.evolve(scene(tmp_path, "local", test_image), seconds=4.0)
    with it.begin() as run:
        until = time.monotonic() + RUN_SECONDS
        while len(it.starts) < CONCURRENCY:
            assert time.monotonic() < until
            time.sleep(0.02)  # Another process writes; there is nothing to wait on.
        os.kill(run.pid, signal.SIGINT)
        status = run.wait(RUN_SECONDS)
    left, rows = it.open_claims(), it.rows()
    it.resume()

    assert status == 1
    assert "No claim is open" in left
    assert {row["failure"]["failure_kind"] for row in rows} == {"cancelled"}  # type: ignore[index]
    check_the_end(it)
