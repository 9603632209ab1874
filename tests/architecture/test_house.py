# SPDX-License-Identifier: Apache-2.0
"""What keeps the tests honest is itself tested: leaks, peers and field cases."""

import asyncio
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from .. import cases, leaks, measured_python, peers

NOTHING_KEPT: frozenset[str] = frozenset()


def surplus_since(before: leaks.Census) -> list[str]:
    return leaks.census().surplus(before, kept=NOTHING_KEPT)


@pytest.mark.case("FC-231")
def test_a_thread_left_behind_is_seen() -> None:
    before = leaks.census()
    told = threading.Event()
    thread = threading.Thread(target=told.wait, name="left")
    thread.start()

    assert surplus_since(before) == ["threads: left"]
    told.set()
    thread.join()
    assert leaks.settled_surplus(before, kept=NOTHING_KEPT) == []


@pytest.mark.case("FC-059")
def test_a_child_left_behind_is_seen_and_so_is_one_nobody_waited_for() -> None:
    before = leaks.census()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin

    running = [line for line in surplus_since(before) if line.startswith("children")]
    child.stdin.close()
    deadline = time.monotonic() + leaks.SETTLE_SECONDS_MAX
    while not (ended := [x for x in surplus_since(before) if "not waited for" in x]):
        assert time.monotonic() < deadline
    child.wait()

    assert str(child.pid) in running[0]
    assert str(child.pid) in ended[0]
    assert leaks.settled_surplus(before, kept=NOTHING_KEPT) == []


def test_a_descriptor_left_behind_is_seen() -> None:
    before = leaks.census()
    with socket.socket():
        (line,) = surplus_since(before)

    assert line.startswith("descriptors: ")
    assert "socket:" in line
    assert surplus_since(before) == []


def test_a_temporary_file_left_behind_is_seen() -> None:
    before = leaks.census()
    path = Path(tempfile.mkdtemp())

    assert surplus_since(before) == [f"temporary: {path}"]
    assert leaks.census().surplus(before, kept=frozenset({"temporary"})) == []
    path.rmdir()
    assert surplus_since(before) == []


@pytest.mark.anyio
async def test_a_task_left_behind_is_seen() -> None:
    left: list[asyncio.Task[bool]] = []
    never = asyncio.Event()

    async def leaves_one() -> None:
        left.append(asyncio.create_task(never.wait(), name="stray"))

    async def leaves_none() -> None:
        await asyncio.create_task(asyncio.sleep(0))

    await leaks.watching_tasks(leaves_none)()
    with pytest.raises(AssertionError, match="left tasks running: stray"):
        await leaks.watching_tasks(leaves_one)()
    left[0].cancel()


def test_peers_are_required_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERY_REQUIRE", "docker, root")

    assert peers.is_required("docker")
    assert peers.is_required("root")
    assert not peers.is_required("python3.8")
    assert peers.unknown_required() == []


def test_a_misspelt_requirement_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERY_REQUIRE", "all,dokcer")

    assert peers.is_required("humaneval")
    assert peers.unknown_required() == ["dokcer"]


def test_without_a_requirement_no_peer_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LIVERY_REQUIRE", raising=False)

    assert not any(peers.is_required(name) for name in peers.PROBES)


def test_the_oldest_python_runs() -> None:
    version = subprocess.run(
        [peers.oldest_python(), "-c", "import sys; print(*sys.version_info[:2])"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout

    assert (3, 8) <= tuple(map(int, version.split())) <= sys.version_info[:2]


@pytest.mark.parametrize("options", [["-I", "-S"], ["-I"], []], ids=str)
def test_the_measuring_python_runs_what_python_would(
    tmp_path: Path, options: list[str]
) -> None:
    python = measured_python.make(tmp_path, data=tmp_path / "measured")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; livery_program = print(sys.argv[1:], __name__); sys.exit(3)"
    )

    for words in (["-c", script.read_text()], [str(script)]):
        ended = subprocess.run(
            [python, *options, *words, "a b", "-c"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ended.returncode, ended.stderr) == (3, "")
        assert ended.stdout == "['a b', '-c'] __main__\n"


LOG = """
| ID | Source | Symptom | Trigger | Correct | Where the test goes | Harm | Status |
|---|---|---|---|---|---|---|---|
| FC-001 | a | b | c | d | sandbox port contract; each provider | leak | untried |
| FC-002 | a | b | c | d | k8s claim provider; naming module | leak | untried |
| FC-003 | a | b | c | d | nowhere of ours; packaging | leak | untried |
| FC-004 | a | b | c | d | gym wire, codec | leak | untried |
"""


def test_a_case_is_owed_when_its_place_is_ours() -> None:
    assert cases.owed_in(LOG) == ["FC-001", "FC-002", "FC-004"]


def test_the_list_of_owed_cases_is_that_of_the_log() -> None:
    if not cases.LOG.exists():
        pytest.skip("the log of field cases is not beside this checkout")

    assert cases.owed() == cases.owed_in(cases.LOG.read_text(encoding="utf-8"))


def test_a_case_counts_when_all_its_tests_passed() -> None:
    tests = {case: [f"test_{case}", "test_more"] for case in cases.owed()}
    passed = {node: "passed" for nodes in tests.values() for node in nodes}

    assert cases.faults_of(tests, passed) == []
    assert "(no test)" not in cases.told(tests)


def test_a_case_without_a_test_and_a_test_that_did_not_run_are_told() -> None:
    first, second, *rest = cases.owed()
    tests = {case: [f"test_{case}"] for case in (second, *rest)}
    passed = {f"test_{case}": "passed" for case in rest}

    faults = cases.faults_of(tests, passed)

    assert faults == [
        f"{first} has no test.",
        f"test_{second} stands for {second} and was not run.",
    ]
    assert f"Without a test: {first}" in cases.told(tests)


def test_how_case_tests_ended_is_written(tmp_path: Path) -> None:
    def report(node: str, when: str, outcome: str, *given: str) -> pytest.TestReport:
        return pytest.TestReport(
            nodeid=node,
            location=("", 0, ""),
            keywords={},
            outcome=outcome,  # type: ignore[arg-type]
            longrepr=None,
            when=when,  # type: ignore[arg-type]
            user_properties=[("case", case) for case in given],
        )

    results = cases.Results(tmp_path / "new" / "results.json")
    for one in (
        report("plain", "call", "passed"),
        report("good", "setup", "passed", "FC-001"),
        report("good", "call", "passed", "FC-001"),
        report("good", "teardown", "passed", "FC-001"),
        report("absent", "setup", "skipped", "FC-001"),
        report("leaky", "call", "passed", "FC-001"),
        report("leaky", "teardown", "failed", "FC-001"),
    ):
        results.pytest_runtest_logreport(one)
    results.pytest_sessionfinish()

    text = (tmp_path / "new" / "results.json").read_text(encoding="utf-8")
    assert [
        line.strip(' ,"').replace('": "', " ") for line in text.splitlines()[1:-1]
    ] == [
        "absent skipped",
        "good passed",
        "leaky failed",
    ]
