# SPDX-License-Identifier: Apache-2.0
"""The watch over a run: a last line, silence, and signs of life."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.worker_scripts import watch as watch_module
from livery.adapters.worker_scripts.watch import FILES_MAX, LINE_BYTES_MAX, Watch

from .test_supervisor import Supervisor, supervisor

__all__ = ["supervisor"]

LAST_LINE = {"key": "type", "value": "result", "seconds": 5.0}
RESULT = b'{"subtype": "success", "type":"result"}\n'


@attrs.define
class Clock:
    """A clock that is set by hand."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def last_line_watch(clock: Callable[[], float]) -> Watch:
    watch = Watch({"last_line": LAST_LINE}, clock)
    watch.begin()
    return watch


def cause_after(content: bytes, seconds: float = 5.0, *, piece: int = 10_000) -> str:
    clock = Clock()
    watch = last_line_watch(clock)
    for begin in range(0, len(content), piece):
        watch.saw(content[begin : begin + piece], is_stdout=True)
    clock.now += seconds
    return watch.cause()


def test_who_asks_for_nothing_is_not_watched() -> None:
    clock = Clock()
    watch = Watch({}, clock)

    watch.saw(RESULT, is_stdout=True)
    clock.now += 1e6

    assert watch.cause() == ""


@pytest.mark.case("FC-194")
def test_the_time_after_the_last_line_is_counted() -> None:
    assert cause_after(RESULT, 4.9) == ""
    assert cause_after(RESULT, 5.0) == "last_line"
    assert cause_after(RESULT + b"\n", 5.0) == "last_line"


@pytest.mark.case("FC-194")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        RESULT[:-1],
        RESULT + b'{"type": "assistant"}\n',
        RESULT + b"{",
        b'{"type": "assistant", "input": {"type": "result"}}\n',
        b'{"type": "user", "text": "\\"type\\":\\"result\\""}\n',
        b'["result"]\n',
        b"result\n",
        b'{"result": ' + b"[" * 100_000 + b"\n",
        b'{"type": "result", "x": "' + b"x" * LINE_BYTES_MAX + b'"}\n',
    ],
)
def test_what_is_no_last_line_ends_nothing(content: bytes) -> None:
    assert cause_after(content, 1e6) == ""


def test_a_line_that_is_too_long_does_not_hide_the_next() -> None:
    assert cause_after(b"x" * (LINE_BYTES_MAX + 5) + b"\n" + RESULT) == "last_line"


@given(st.integers(1, 60))
def test_lines_are_found_however_they_are_cut_up(piece: int) -> None:
    before = b'{"type": "user"}\n'

    assert cause_after(before + RESULT, piece=piece) == "last_line"


def test_standard_error_says_nothing_about_the_last_line() -> None:
    clock = Clock()
    watch = last_line_watch(clock)

    watch.saw(RESULT, is_stdout=True)
    watch.saw(b"a warning\n", is_stdout=False)
    clock.now += 5.0

    assert watch.cause() == "last_line"


def silence_watch(clock: Clock, *paths: Path) -> Watch:
    silence = {"seconds": 5.0, "paths": list(map(str, paths))}
    watch = Watch({"silence": silence}, clock)
    watch.begin()
    return watch


@pytest.mark.case("FC-195")
def test_bytes_of_either_output_are_signs_of_life() -> None:
    clock = Clock()
    watch = silence_watch(clock)

    causes: list[str] = []
    for is_stdout in (True, False):
        clock.now += 4.0
        watch.saw(b"x", is_stdout=is_stdout)
        clock.now += 4.0
        causes.append(watch.cause())
    clock.now += 1.0

    assert causes == ["", ""]
    assert watch.cause() == "silence"


@pytest.mark.case("FC-195")
def test_a_file_that_grows_is_a_sign_of_life(tmp_path: Path) -> None:
    clock = Clock()
    file, folder = tmp_path / "file", tmp_path / "folder" / "below"
    watch = silence_watch(clock, file, folder.parent)
    causes: list[str] = []

    def pass_four() -> None:
        clock.now += 4.0
        causes.append(watch.cause())

    pass_four()
    file.write_text("begun")
    pass_four()
    folder.mkdir(parents=True)
    (folder / "one").write_text("x")
    pass_four()
    (folder / "one").write_text("xy")
    (folder / "dangling").symlink_to("nowhere")
    pass_four()
    pass_four()
    pass_four()

    assert causes == ["", "", "", "", "", "silence"]


def test_a_look_at_a_folder_is_bounded(tmp_path: Path) -> None:
    for number in range(FILES_MAX + 5):
        (tmp_path / f"{number}").touch()

    seen = watch_module._files(str(tmp_path))  # pyright: ignore[reportPrivateUsage]

    assert len(seen) == FILES_MAX


def ended_early(supervisor: Supervisor, name: str) -> tuple[object, object]:
    receipt = supervisor.receipt(name)
    assert receipt["gone"] is True
    return receipt["how"], receipt["reason"]


@pytest.mark.case("FC-194")
def test_a_run_that_never_exits_after_its_last_line_is_ended(
    supervisor: Supervisor,
) -> None:
    script = f"echo '{RESULT.decode().strip()}'; sleep 600"

    supervisor.launch("a", script, last_line={**LAST_LINE, "seconds": 0.2})

    assert ended_early(supervisor, "a") == ("ended_early", "last_line")


@pytest.mark.case("FC-195")
def test_a_run_that_falls_silent_is_ended(supervisor: Supervisor) -> None:
    silence = {"seconds": 0.5, "paths": [str(supervisor.folder / "absent")]}

    supervisor.launch("a", "echo hello; sleep 600", silence=silence)

    assert ended_early(supervisor, "a") == ("ended_early", "silence")
    assert Path(supervisor.run("a"), "stdout").read_text() == "hello\n"


def test_a_watched_run_that_ends_by_itself_is_as_any_other(
    supervisor: Supervisor,
) -> None:
    silence = {"seconds": 60.0, "paths": list[str]()}
    script = f"echo '{RESULT.decode().strip()}'; exit 3"

    supervisor.launch("a", script, last_line=LAST_LINE, silence=silence)

    receipt = supervisor.receipt("a")
    assert (receipt["how"], receipt["number"]) == ("exited", 3)


@pytest.mark.parametrize(
    "words",
    [
        {"last_line": None},
        {"last_line": {"key": "a"}},
        {"last_line": {**LAST_LINE, "seconds": "5"}},
        {"silence": {"seconds": 5, "paths": "x"}},
        {"silences": {}},
    ],
)
def test_a_watch_that_is_none_is_misuse(
    supervisor: Supervisor, words: dict[str, object]
) -> None:
    request = {
        "argv": ["true"],
        "cwd": "/",
        "env": {},
        "user": None,
        "timeout_seconds": 1,
        "grace_seconds": 1,
        "output_bytes_max": 1,
        "stdin_path": None,
        "stdin_base64": "",
        **words,
    }

    told = supervisor.ask(
        "launch", supervisor.run("a"), stdin=json.dumps(request).encode(), status=2
    )

    assert told["state"] == "misused"
    assert not os.path.exists(supervisor.run("a"))
