# SPDX-License-Identifier: Apache-2.0
"""Progress is a bar on a terminal and now and then a line elsewhere."""

import io
import sys

import pytest

from livery.entrypoints.command_line.progress import (
    PLAIN_SECONDS,
    paced,
    shown_progress,
)
from livery.ports.provided.collect_rollouts import Progress


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_plain_lines_come_seldom_and_once_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with shown_progress(clock) as show:
        for done in range(100):
            clock.now = done * 0.2
            show(Progress(total=100, running=3, passed=done))
        show(Progress(total=100, passed=90, failed=5, masked=3, broken=2))

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + int(99 * 0.2 / PLAIN_SECONDS) + 1
    assert lines[0] == ("0/100 done: 3 running, 0 passed, 0 failed, 0 masked, 0 broken")
    assert lines[1].endswith("5.0/s, 0:15 left")
    assert lines[-1].startswith(
        "100/100 done: 0 running, 90 passed, 5 failed, 3 masked, 2 broken, 5.1/s"
    )


def test_the_last_line_is_not_written_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress(Clock()) as show:
        show(Progress(total=0))

    assert len(capsys.readouterr().err.splitlines()) == 1


def test_nothing_shown_is_nothing_written(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress(Clock()):
        pass

    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()

    with shown_progress(clock) as show:
        clock.now = 2.0
        show(Progress(total=4, running=1, passed=2, broken=1))

    shown = terminal.getvalue()
    assert "3/4" in shown
    assert "1 running, 2 passed, 0 failed, 0 masked, 1 broken" in shown
    assert "1.5/s" in shown


def test_rate_and_time_left_are_in_units_that_fit() -> None:
    assert paced(Progress(total=10), 5.0) == ""
    assert paced(Progress(total=10, passed=1), 60.0) == "1.0/min, 9:00 left"
    assert paced(Progress(total=1000, passed=1), 60.0) == "1.0/min, 16:39:00 left"
    assert paced(Progress(total=10, passed=10), 5.0) == "2.0/s"
