# SPDX-License-Identifier: Apache-2.0
"""The supervisor as it is called: one run, one start, one receipt."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import psutil
import pytest

from livery.adapters.worker_scripts import program

from ..channel import processes

BOUND_SECONDS = 60.0
LOOK_SECONDS = 0.02

Words = dict[str, object]


@attrs.frozen
class Supervisor:
    """The program in a folder of its own."""

    folder: Path
    python: str

    def ask(self, *words: str, stdin: bytes = b"", status: int = 0) -> Words:
        ended = subprocess.run(
            [self.python, "-I", "-S", self.folder / "supervisor.py", *words],
            input=stdin,
            capture_output=True,
            timeout=BOUND_SECONDS,
        )
        assert ended.returncode == status, ended
        told = json.loads(ended.stdout)
        assert isinstance(told, dict)
        return told

    def run(self, name: str) -> str:
        return str(self.folder / "runs" / name)

    def launch(self, name: str, script: str, **words: object) -> Words:
        request = {
            "argv": ["/bin/sh", "-c", script],
            "cwd": str(self.folder),
            "env": {},
            "user": None,
            "timeout_seconds": 30.0,
            "grace_seconds": 1.0,
            "output_bytes_max": 100_000,
            "stdin_path": None,
            "stdin_base64": "",
            **words,
        }
        return self.ask("launch", self.run(name), stdin=json.dumps(request).encode())

    def receipt(self, name: str) -> Words:
        told = self.ask("status", self.run(name), "--wait", str(BOUND_SECONDS - 5))
        assert told["state"] == "finished", told
        receipt = told["receipt"]
        assert isinstance(receipt, dict)
        return receipt

    def pid(self, name: str) -> int:
        with open(f"{self.run(name)}/started.json", encoding="utf-8") as file:
            return int(json.load(file)["pid"])


@pytest.fixture
def supervisor(tmp_path: Path, python: str) -> Supervisor:
    (tmp_path / "supervisor.py").write_bytes(program("supervisor"))
    return Supervisor(tmp_path, python)


def fill(path: Path) -> None:
    """Write until there is no room left."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(LOOK_SECONDS)


def test_a_run_goes_on_alone_and_leaves_its_receipt(supervisor: Supervisor) -> None:
    launched = supervisor.launch(
        "a", "echo out; echo err >&2; until [ -e go ]; do sleep 0.02; done; exit 3"
    )
    during = supervisor.ask("status", supervisor.run("a"))
    (supervisor.folder / "go").touch()
    receipt = supervisor.receipt("a")

    assert launched == {"state": "started"}
    assert during == {"state": "running"}
    assert (receipt["how"], receipt["number"]) == ("exited", 3)
    assert (receipt["gone"], receipt["leftovers"]) == (True, 0)
    assert receipt["outputs"] == {
        "stdout": {"size": 4, "kept": [4, 0], "fault": ""},
        "stderr": {"size": 4, "kept": [4, 0], "fault": ""},
    }
    assert Path(supervisor.run("a"), "stdout").read_text() == "out\n"
    assert os.stat(supervisor.run("a")).st_mode & 0o777 == 0o700


@pytest.mark.case("FC-115")
def test_a_run_is_started_once_however_often_it_is_launched(
    supervisor: Supervisor,
) -> None:
    told: list[Words] = []

    for _ in range(3):
        told.append(supervisor.launch("a", "echo start >> starts"))
    supervisor.receipt("a")
    told.append(supervisor.launch("a", "echo start >> starts"))

    assert [words["state"] for words in told] == ["started", *["exists"] * 3]
    assert (supervisor.folder / "starts").read_text() == "start\n"


@pytest.mark.case("FC-115")
def test_of_many_launches_at_once_one_starts(supervisor: Supervisor) -> None:
    request = {
        "argv": ["/bin/sh", "-c", "echo start >> starts"],
        "cwd": str(supervisor.folder),
        "env": {},
        "user": None,
        "timeout_seconds": 30.0,
        "grace_seconds": 1.0,
        "output_bytes_max": 1000,
        "stdin_path": None,
        "stdin_base64": "",
    }
    script = str(supervisor.folder / "supervisor.py")
    argv = [supervisor.python, "-I", "-S", script, "launch", supervisor.run("a")]

    launches = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    for launch in launches:
        assert launch.stdin is not None
        launch.stdin.write(json.dumps(request).encode())
        launch.stdin.close()
    told: list[str] = []
    for launch in launches:
        with launch:
            assert launch.stdout is not None
            told.append(json.loads(launch.stdout.read())["state"])

    supervisor.receipt("a")
    assert sorted(told) == [*["exists"] * 7, "started"]
    assert (supervisor.folder / "starts").read_text() == "start\n"
    assert os.listdir(supervisor.folder / "runs") == ["a"]


def test_a_name_that_was_forbidden_never_starts(supervisor: Supervisor) -> None:
    forbidden = supervisor.ask("forbid", supervisor.run("a"))
    again = supervisor.ask("forbid", supervisor.run("a"))
    launched = supervisor.launch("a", "echo start >> starts")

    assert forbidden == again == {"state": "forbidden"}
    assert launched == {"state": "exists"}
    assert supervisor.ask("status", supervisor.run("a")) == {"state": "forbidden"}
    assert not (supervisor.folder / "starts").exists()


def test_to_forbid_what_runs_tells_how_it_stands(supervisor: Supervisor) -> None:
    supervisor.launch("a", "sleep 30")

    told = supervisor.ask("forbid", supervisor.run("a"))
    supervisor.ask("stop", supervisor.run("a"))

    assert told == {"state": "running"}
    assert supervisor.receipt("a")["how"] == "cancelled"


def test_nothing_is_absent(supervisor: Supervisor) -> None:
    assert supervisor.ask("status", supervisor.run("a")) == {"state": "absent"}
    assert supervisor.ask("stop", supervisor.run("a")) == {"state": "absent"}


@pytest.mark.case("FC-025", "FC-206")
def test_the_deadline_ends_every_descendant(supervisor: Supervisor) -> None:
    word = processes.token()
    script = f"""
        trap '' TERM
        echo before
        (setsid setsid sleep {word} &)
        setsid env -i sleep {word} &
        setsid sh -c 'trap "" TERM; while :; do :; done' x {word} &
        while :; do sleep 0.1; done
    """

    supervisor.launch("a", script, timeout_seconds=0.7, grace_seconds=0.3)
    receipt = supervisor.receipt("a")

    assert receipt["how"] == "timed_out"
    assert receipt["gone"] is True
    assert Path(supervisor.run("a"), "stdout").read_text() == "before\n"
    assert processes.with_word(word) == []


@pytest.mark.case("FC-206")
def test_what_the_leader_leaves_is_ended_and_counted(supervisor: Supervisor) -> None:
    word = processes.token()

    supervisor.launch("a", f"(setsid sleep {word} &); sleep {word} & exit 5")
    receipt = supervisor.receipt("a")

    assert (receipt["how"], receipt["number"]) == ("exited", 5)
    assert (receipt["leftovers"], receipt["gone"]) == (2, True)
    assert processes.with_word(word) == []


@pytest.mark.case("FC-027")
def test_a_signal_of_its_own_is_a_signal(supervisor: Supervisor) -> None:
    supervisor.launch("a", "kill -9 $$")

    receipt = supervisor.receipt("a")

    assert (receipt["how"], receipt["number"]) == ("signalled", 9)


def test_a_supervisor_that_was_stopped_keeps_its_deadline(
    supervisor: Supervisor,
) -> None:
    supervisor.launch("a", "kill -STOP $PPID; sleep 600", timeout_seconds=0.5)
    until(lambda: psutil.Process(supervisor.pid("a")).status() == psutil.STATUS_STOPPED)

    receipt = supervisor.receipt("a")

    assert (receipt["how"], receipt["gone"]) == ("timed_out", True)


@pytest.mark.parametrize("way", ["stop", "SIGTERM", "file"])
def test_a_run_that_is_stopped_was_cancelled(supervisor: Supervisor, way: str) -> None:
    word = processes.token()
    supervisor.launch("a", f"echo before; setsid sleep {word} & sleep {word}")
    until(lambda: len(processes.with_word(word)) == 2)

    if way == "stop":
        told = supervisor.ask("stop", supervisor.run("a"), "--wait", "10")
        assert told["state"] == "finished"
    elif way == "SIGTERM":
        os.kill(supervisor.pid("a"), signal.SIGTERM)
    else:
        Path(supervisor.run("a"), "stop").touch()

    receipt = supervisor.receipt("a")
    assert receipt["how"] == "cancelled"
    assert receipt["asked"] is (way != "SIGTERM")
    assert receipt["gone"] is True
    assert Path(supervisor.run("a"), "stdout").read_text() == "before\n"
    assert processes.with_word(word) == []


def test_a_signal_that_came_to_the_supervisor_too_was_not_the_commands_own(
    supervisor: Supervisor,
) -> None:
    word = processes.token()
    supervisor.launch("a", f"exec sleep {word}")
    until(lambda: len(processes.with_word(word)) == 1)
    (command,) = processes.with_word(word)

    # The command first, as a tree may be ended: its end is noticed before.
    command.terminate()
    os.kill(supervisor.pid("a"), signal.SIGTERM)

    receipt = supervisor.receipt("a")
    assert receipt["how"] == "cancelled"


def test_a_command_that_ends_itself_by_the_same_signal_did_so(
    supervisor: Supervisor,
) -> None:
    supervisor.launch("a", "kill -TERM $$")

    receipt = supervisor.receipt("a")

    assert (receipt["how"], receipt["number"]) == ("signalled", signal.SIGTERM)


def test_a_killed_supervisor_is_told_and_what_it_left_is_ended(
    supervisor: Supervisor,
) -> None:
    word = processes.token()
    supervisor.launch(
        "a",
        f"seq 1 100; setsid sleep {word} & sleep {word}",
        output_bytes_max=20,
    )
    until(lambda: len(processes.with_word(word)) == 2)
    psutil.Process(supervisor.pid("a")).kill()

    told = supervisor.ask("status", supervisor.run("a"), "--wait", "5")

    assert told["state"] == "vanished"
    # Both sleeps, and the shell where it did not turn into one of them.
    assert told["ended"] in (2, 3)
    assert told["alive"] == []
    assert told["kept"] == {"stdout": [10, 10], "stderr": [0, 0]}
    assert (
        Path(supervisor.run("a"), "stdout").read_text()
        == "1\n2\n3\n4\n5\n98\n99\n100\n"
    )
    assert processes.with_word(word) == []
    assert supervisor.launch("a", "true") == {"state": "exists"}
    again = supervisor.ask("status", supervisor.run("a"))
    assert (again["state"], again["kept"]) == ("vanished", told["kept"])


def test_a_number_that_was_given_again_is_another_process(
    supervisor: Supervisor,
) -> None:
    supervisor.launch("a", "sleep 30")
    path = Path(supervisor.run("a"), "started.json")
    started = json.loads(path.read_text())
    psutil.Process(started["pid"]).kill()
    path.write_text(json.dumps(started | {"pid": os.getpid()}))

    told = supervisor.ask("status", supervisor.run("a"))

    assert told["state"] == "vanished"


@pytest.mark.case("FC-042")
def test_output_is_bounded_and_its_true_size_told(supervisor: Supervisor) -> None:
    supervisor.launch("a", "seq 1 200000", output_bytes_max=1000)

    receipt = supervisor.receipt("a")

    whole = "".join(f"{number}\n" for number in range(1, 200_001))
    assert receipt["outputs"] == {
        "stdout": {"size": len(whole), "kept": [500, 500], "fault": ""},
        "stderr": {"size": 0, "kept": [0, 0], "fault": ""},
    }
    kept = Path(supervisor.run("a"), "stdout").read_text()
    assert kept == whole[:500] + whole[-500:]


def test_the_beginning_can_be_read_while_it_runs(supervisor: Supervisor) -> None:
    supervisor.launch("a", "echo early; sleep 30")
    path = Path(supervisor.run("a"), "stdout.head")

    until(lambda: path.read_text() == "early\n")

    supervisor.ask("stop", supervisor.run("a"), "--wait", "10")


@pytest.mark.case("FC-033")
@pytest.mark.parametrize("way", ["none", "bytes", "file"])
def test_input_is_what_was_given_and_ends(supervisor: Supervisor, way: str) -> None:
    content = os.urandom(200_000)
    (supervisor.folder / "given").write_bytes(content)
    words: Words = {
        "none": {},
        "bytes": {"stdin_base64": base64.b64encode(content).decode()},
        "file": {"stdin_path": str(supervisor.folder / "given")},
    }
    chosen = words[way]
    assert isinstance(chosen, dict)

    supervisor.launch("a", "exec cat", output_bytes_max=200_000, **chosen)
    supervisor.receipt("a")

    expected = b"" if way == "none" else content
    assert Path(supervisor.run("a"), "stdout").read_bytes() == expected
    assert os.listdir(supervisor.folder / "runs") == ["a"]


@pytest.mark.parametrize(
    ("words", "no_program"),
    [
        ({"argv": ["no-such-program"]}, True),
        ({"argv": ["/no/such/program"]}, True),
        ({"argv": ["/etc/passwd"]}, True),
        ({"argv": ["/etc/passwd/program"]}, True),
        ({"argv": ["true", "x" * 300_000]}, False),
        ({"cwd": "/no/such/folder"}, False),
        ({"user": "no-such-user"}, False),
        ({"stdin_path": "/no/such/file"}, False),
    ],
)
@pytest.mark.case("FC-056")
def test_what_never_ran_is_told_in_the_receipt(
    supervisor: Supervisor, words: Words, no_program: bool
) -> None:
    supervisor.launch("a", "true", **words)

    receipt = supervisor.receipt("a")

    assert receipt["how"] == "not_started"
    assert receipt["reason"]
    assert receipt["no_program"] is no_program
    assert receipt["gone"] is True


def test_the_environment_is_laid_over_and_carries_the_runs_own_mark(
    supervisor: Supervisor,
) -> None:
    supervisor.launch("a", 'printf "%s %s" "$A" "$LIVERY_TREE"', env={"A": "ä"})
    supervisor.receipt("a")

    value, mark = Path(supervisor.run("a"), "stdout").read_text().split()
    request = json.loads(Path(supervisor.run("a"), "request.json").read_text())
    assert (value, mark) == ("ä", request["mark"])


@pytest.mark.peer("root")
def test_the_command_drops_to_its_user_and_cannot_touch_the_record(
    supervisor: Supervisor,
) -> None:
    script = f"id -u; ls {supervisor.run('a')}; kill -9 $PPID"

    supervisor.launch("a", script, user="4321", cwd="/")
    receipt = supervisor.receipt("a")

    assert receipt["how"] == "exited"
    assert Path(supervisor.run("a"), "stdout").read_text() == "4321\n"


@pytest.mark.peer("root")
def test_a_disk_that_fills_up_is_told_in_the_receipt(supervisor: Supervisor) -> None:
    disk = supervisor.folder / "disk"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], check=True
    )
    try:
        request_folder = str(disk / "a")
        supervisor.launch(
            "../disk/a", "head -c 1000000 /dev/zero; exit 0", output_bytes_max=10**7
        )
        told = supervisor.ask("status", request_folder, "--wait", "10")
    finally:
        subprocess.run(["umount", disk], check=True)

    assert told["state"] == "finished"
    receipt = told["receipt"]
    assert isinstance(receipt, dict)
    assert receipt["outputs"]["stdout"]["size"] == 1_000_000
    assert receipt["outputs"]["stdout"]["fault"] == os.strerror(28)
    assert 0 < receipt["outputs"]["stdout"]["kept"][0] < 256 * 1024


@pytest.mark.peer("root")
def test_a_run_that_left_no_room_for_a_file_can_be_stopped(
    supervisor: Supervisor,
) -> None:
    disk = supervisor.folder / "disk"
    disk.mkdir()
    options = "size=1m,nr_inodes=60"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", disk], check=True)
    try:
        script = f"n=0; while : > {disk}/$n; do n=$((n + 1)); done; exec sleep 30"
        supervisor.launch("../disk/a", f"({script}) 2>/dev/null; exec sleep 30")
        until(lambda: os.statvfs(disk).f_ffree == 0)
        told = supervisor.ask("stop", str(disk / "a"), "--wait", "10")
    finally:
        subprocess.run(["umount", disk], check=True)

    assert told["state"] == "finished"
    receipt = told["receipt"]
    assert isinstance(receipt, dict)
    assert (receipt["how"], receipt["asked"]) == ("cancelled", True)


def test_a_run_that_planted_a_link_for_the_word_to_stop_is_stopped(
    supervisor: Supervisor,
) -> None:
    plant = f"ln -s /nowhere/at/all {supervisor.run('a')}/stop"
    supervisor.launch("a", f"{plant}; touch planted; exec sleep 30")
    until((supervisor.folder / "planted").exists)

    told = supervisor.ask("stop", supervisor.run("a"), "--wait", "10")

    assert told["state"] == "finished"
    receipt = told["receipt"]
    assert isinstance(receipt, dict)
    assert (receipt["how"], receipt["asked"]) == ("cancelled", True)


@pytest.mark.peer("root")
def test_a_disk_that_is_full_at_the_launch_starts_nothing(
    supervisor: Supervisor,
) -> None:
    disk = supervisor.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    try:
        fill(disk / "filler")
        told = supervisor.launch("../disk/a", "touch started")
        left = sorted(os.listdir(disk))
    finally:
        subprocess.run(["umount", disk], check=True)

    assert told["state"] == "failed"
    assert left == ["filler"]
    assert not (supervisor.folder / "started").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("launch",),
        ("launch", "relative"),
        ("dance", "/x"),
        ("status", "/x", "--wait"),
        ("status", "/x", "--wait", "long"),
        ("forbid", "/x", "y"),
    ],
)
def test_misuse_is_told_with_another_status(
    supervisor: Supervisor, words: tuple[str, ...]
) -> None:
    told = supervisor.ask(*words, status=2)

    assert told["state"] == "misused"


@pytest.mark.parametrize(
    "request_text",
    [
        b"",
        b"[]",
        b'{"argv": "true"}',
        json.dumps({"argv": [], "cwd": "/"}).encode(),
    ],
)
def test_a_request_that_is_none_starts_nothing(
    supervisor: Supervisor, request_text: bytes
) -> None:
    told = supervisor.ask("launch", supervisor.run("a"), stdin=request_text, status=2)

    assert told["state"] == "misused"
    assert supervisor.ask("status", supervisor.run("a")) == {"state": "absent"}
