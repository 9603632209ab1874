# SPDX-License-Identifier: Apache-2.0
"""The parts of the HumanEval grader, called in this process and across its pipes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.task_sources import humaneval_grader as grader

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.frozensets(st.text(max_size=3) | st.integers(), max_size=3)
        | st.sets(st.integers() | st.tuples(st.text(max_size=2)), max_size=3)
    ),
    max_leaves=10,
)
WORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).flatmap(
            lambda rest: st.sampled_from("ifcsbltezd").map(lambda tag: [tag, *rest])
        )
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=10,
)
SOON = 5.0


def far() -> float:
    return time.monotonic() + SOON


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:
            continue


@given(PLAIN)
def test_a_plain_value_comes_back_as_it_went(value: object) -> None:
    words = json.loads(json.dumps(grader.to_words(value)))

    found = grader.from_words(words)

    assert found == value
    assert type(found) is type(value)


@given(WORDS)
def test_nonsense_is_refused_and_does_nothing_else(words: Any) -> None:
    try:
        grader.from_words(words)
    except (ValueError, TypeError, IndexError, OverflowError):
        return


@pytest.mark.parametrize("value", [object(), len, iter([]), [object()], {1: object()}])
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        grader.to_words(value)


def test_a_frame_is_read_as_it_was_written(pipe: tuple[int, int]) -> None:
    grader.write_frame(pipe[1], ["a", None, {"b": 1}])

    assert grader.read_frame(pipe[0], far()) == ["a", None, {"b": 1}]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", "ended"),
        (b"\0\0", "ended"),
        (grader.LENGTH.pack(5) + b"1", "ended"),
        (grader.LENGTH.pack(1) + b"{", "nonsense"),
        (grader.LENGTH.pack(2) + b"\xff\xff", "nonsense"),
        (grader.LENGTH.pack(grader.FRAME_BYTES_MAX + 1), "more than"),
    ],
)
def test_a_bad_frame_breaks_the_child(
    pipe: tuple[int, int], sent: bytes, told: str
) -> None:
    os.write(pipe[1], sent)
    os.close(pipe[1])

    with pytest.raises(grader.Broken, match=told):
        grader.read_frame(pipe[0], far())


def test_silence_ends_at_the_deadline(pipe: tuple[int, int]) -> None:
    with pytest.raises(grader.Broken, match="in time"):
        grader.read_frame(pipe[0], time.monotonic() + 0.05)


def test_a_value_that_is_too_large_is_not_sent(pipe: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="more than"):
        grader.write_frame(pipe[1], "x" * grader.FRAME_BYTES_MAX)


def test_a_call_is_answered_with_its_value_or_its_error() -> None:
    def divided(a: int, *, by: int) -> float:
        return a / by

    def asked(by: int) -> Any:
        return grader.answer(
            divided, grader.to_words((6,)), grader.to_words({"by": by})
        )

    assert asked(4) == ["returned", ["f", (1.5).hex()]]
    assert asked(0) == ["raised", "ZeroDivisionError: division by zero"]


def test_an_error_that_cannot_be_told_is_told_as_one() -> None:
    class Odd(BaseException):
        def __str__(self) -> str:
            raise SystemExit(0)

    assert grader.told(Odd()) == "an error that cannot be told"
    assert len(grader.told(ValueError("x" * 9999))) == grader.REASON_CHARACTERS_MAX


@pytest.fixture
def imports_as_before() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before
    sys.modules.pop("solution", None)


@pytest.mark.usefixtures("imports_as_before")
def test_a_program_is_loaded_without_its_main_part(tmp_path: Path) -> None:
    path = tmp_path / "solution.py"
    path.write_text(
        "def f():\n    return __name__\nif __name__ == '__main__':\n    f = None\n"
    )

    assert grader.load(str(path), "f")() == "solution"


def judged(folder: Path, program: str, test: str, prompt: str = "") -> str:
    """Return why the program failed, with a real child."""
    path = folder / "solution.py"
    path.write_text(program)
    child = grader.Child(str(path), SOON)
    try:
        return grader.verdict(
            child, {"prompt": prompt, "test": test, "entry_point": "f"}
        )
    finally:
        child.end()


@pytest.mark.parametrize(
    ("program", "test", "told"),
    [
        ("def f(x): return x + 1", "assert c(1) == 2", ""),
        ("def f(x): return x + 1", "assert c(x=1) == 2", ""),
        ("def f(x): return helper(x)", "assert c(1) == 1", "NameError"),
        ("def f(x): return x", "assert c(1) == helper(1)", ""),
        ("def f(x): return x", "assert c(1) == f(1)", ""),
        ("def f(x): return x", "assert c(1) == 2", "AssertionError"),
        ("def f(x): return x", "c(object())", "TypeError"),
        ("def f(x): raise KeyError(x)", "c(1)", "KeyError"),
        ("def g(x): return x", "c(1)", "AttributeError"),
        ("import os; os._exit(3)", "c(1)", "ended the program"),
        ("def f(x): import os; os._exit(0)", "c(1)", "ended the program"),
        ("def f(x): import os; os._exit(0)", "try: c(1)\n  except: pass", "ended"),
        (
            "def f(x): import os; os._exit(0)",
            "\n  for _ in range(3):\n    try: c(1)\n    except BaseException: pass",
            "ended the program",
        ),
        (
            "import os\ndef f(x): [os.write(n, b'\\0\\0\\0\\1{') for n in range(3, 20)]",
            "c(1)",
            "solution failed",
        ),
    ],
)
def test_a_program_is_judged_by_its_answers(
    tmp_path: Path, program: str, test: str, told: str
) -> None:
    check = f"def check(c):\n  {test}\n"

    found = judged(tmp_path, program, check, prompt="def helper(x): return x\n")

    assert (told in found) if told else found == ""


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (["returned"], "nonsense"),
        (["returned", ["i", "z"]], "nonsense"),
        ([], "nonsense"),
        ("text", "nonsense"),
        (["returned", [["s", 5]]], "nonsense"),
    ],
)
def test_a_forged_answer_is_no_value(tmp_path: Path, reply: Any, told: str) -> None:
    frame = json.dumps(reply).encode()
    sent = grader.LENGTH.pack(len(frame)) + frame
    program = (
        "import os, sys\n"
        f"def f(x): os.write(int(sys.argv[-1]), {sent!r}); os._exit(0)\n"
    )

    assert told in judged(tmp_path, program, "def check(c): c(1)\n")


def test_words_that_are_no_use_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert grader.main([]) == grader.MISUSED
    assert "usage" in capsys.readouterr().err


def test_it_runs_on_python_3_8_and_newer() -> None:
    told = subprocess.run(
        [
            *(sys.executable, "-c", "import sys, vermin; sys.exit(vermin.main())"),
            *("--quiet", "--no-tips", "--violations", "--target=3.8-"),
            grader.__file__,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert told.returncode == 0, told.stdout + told.stderr
