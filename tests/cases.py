# SPDX-License-Identifier: Apache-2.0
"""Field cases: which tests keep which reported failure from coming back.

`python -m tests.cases` prints case → tests for every case that is owed and
names those without a test; `check FILE…` also fails for a case without a test
and for a marked test that did not pass in the runs whose results are given
(`pytest --case-results=FILE`); `write` renews the list of owed cases from the
log of field cases, where that is at hand.
"""

import argparse
import contextlib
import io
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OWED = Path(__file__).with_name("owed_cases.txt")
LOG = ROOT.parent / "shared" / "cases" / "field-cases-open.md"
SUITES = (
    "provider contract",
    "sandbox port contract",
    "provider base",
    "docker provider",
    "k8s claim provider",
    "exec service",
    "file service",
    "session core",
    "session API",
    "admission",
    "borrowed sandboxes",
    "telemetry",
    "client",
    "gym wire",
    "harness port",
    "harness: claude code",
    "harness runner",
    "model relay",
    "transcript",
    "codec",
    "server",
    "opensandbox provider",
    "network policy",
    "leak fixture",
    "naming",
    "config",
    "errors",
    "reaper",
)
"""Where a case's test goes, for the cases that are owed."""

_ID = re.compile(r"FC-\d{3}")
_RUN_ORDER = ("skipped", "passed", "failed")
"""A later word counts more when a test reports several."""


def of(item: pytest.Item) -> list[str]:
    """Return the field cases that the test stands for."""
    found = [str(case) for mark in item.iter_markers("case") for case in mark.args]
    for case in found:
        if not _ID.fullmatch(case):
            raise pytest.UsageError(f"{item.nodeid}: {case!r} is no case id (FC-024)")
    return found


def owed() -> list[str]:
    """Return the cases that need a test."""
    lines = OWED.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def owed_in(log: str) -> list[str]:
    """Read the owed cases from the text of the log of field cases."""
    found: list[str] = []
    for line in log.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 9 or not _ID.fullmatch(cells[1]):
            continue
        places = [place.strip() for place in re.split(r"[;,]", cells[6])]
        if any(place.startswith(SUITES) for place in places):
            found.append(cells[1])
    return sorted(found)


class Results:
    """A pytest plugin that writes how each test with a case ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not any(name == "case" for name, _ in report.user_properties):
            return
        if report.when != "call" and report.outcome == "passed":
            return
        before = self._ended.get(report.nodeid, "skipped")
        self._ended[report.nodeid] = max(before, report.outcome, key=_RUN_ORDER.index)

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(
            json.dumps(self._ended, indent=1, sort_keys=True), encoding="utf-8"
        )


class _Collected:
    """A pytest plugin that keeps what was collected, by case."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for case in of(item):
                self.tests.setdefault(case, []).append(item.nodeid)


def collected() -> dict[str, list[str]]:
    """Return case → tests over the whole suite.

    Raises:
        SystemExit: The suite cannot be collected.
    """
    plugin, told = _Collected(), io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    with contextlib.redirect_stdout(told):
        status = pytest.main([*arguments, str(ROOT / "tests")], plugins=[plugin])
    if status is not pytest.ExitCode.OK:
        raise SystemExit(f"The tests cannot be collected:\n{told.getvalue()}")
    return plugin.tests


def told(tests: dict[str, list[str]]) -> str:
    """Return the listing, one case a line, its tests below."""
    lines: list[str] = []
    for case in owed():
        lines += [case, *(f"    {test}" for test in tests.get(case, ["(no test)"]))]
    missing = [case for case in owed() if case not in tests]
    lines.append(f"{len(owed()) - len(missing)} of {len(owed())} cases have a test.")
    if missing:
        lines.append(f"Without a test: {' '.join(missing)}")
    return "\n".join(lines)


def faults_of(tests: dict[str, list[str]], results: dict[str, str]) -> list[str]:
    """Return what keeps the case tests from counting, a sentence each."""
    faults = [f"{case} has no test." for case in owed() if case not in tests]
    for case, nodes in sorted(tests.items()):
        for node in nodes:
            ended = results.get(node, "not run")
            if ended != "passed":
                faults.append(f"{node} stands for {case} and was {ended}.")
    return faults


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cases")
    parser.add_argument(
        "command", nargs="?", choices=("list", "check", "write"), default="list"
    )
    parser.add_argument("results", nargs="*", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.command == "write":
        head = "# The open field cases that need a test; see cases.py.\n"
        body = "\n".join(owed_in(LOG.read_text(encoding="utf-8")))
        OWED.write_text(f"{head}{body}\n", encoding="utf-8")
        return 0
    tests = collected()
    print(told(tests))
    if chosen.command == "list":
        return 0
    results: dict[str, str] = {}
    for path in chosen.results:
        results |= json.loads(path.read_text(encoding="utf-8"))
    faults = faults_of(tests, results)
    print("\n".join(faults) or "Every test that stands for a case passed.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
