# SPDX-License-Identifier: Apache-2.0
"""Grades one function: the tests run here, the graded function runs in a child.

Called as `python3 -I -S humaneval_grader.py SOLUTION`. Standard input holds the mark on
the first line and a JSON object after it: `prompt`, `test`, `entry_point` and
`call_seconds`. Status 0 is a pass; the mark is printed at the end either way.

The child loads SOLUTION and answers calls over two pipes. Only plain values cross,
written as tagged JSON, so no class of the solution's is ever compared here. The
child never has the mark or the tests: both come by standard input, which is read to
its end before the child exists; this process is made unreadable to others of its
user, and the child gives up every privilege it could get around that with, before
it reads the first line of the solution. What the solution does to itself, prints or
exits with is therefore nothing but a failed call.

Runs on Python 3.8 and newer with the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

PASSED, FAILED, MISUSED = 0, 1, 2

FRAME_BYTES_MAX = 16 * 1024 * 1024
REASON_CHARACTERS_MAX = 500
SHOWN_BYTES_MAX = 4000
START_SECONDS = 20.0
GOODBYE_SECONDS = 5.0
IDLE_SECONDS = 3600.0

PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522
CAPABILITIES_MAX = 64

LENGTH = struct.Struct(">I")


class Failed(Exception):
    """The graded function did not do what it should."""


class Broken(BaseException):
    """The child is of no use any more; no `except Exception` of a test hides it."""


# Values on the pipes ----------------------------------------------------------


def to_words(value: Any) -> Any:
    """Return a plain value as tagged JSON; raises `TypeError` for any other."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return ["i", format(int(value), "x")]
    if isinstance(value, float):
        return ["f", float(value).hex()]
    if isinstance(value, complex):
        return ["c", value.real.hex(), value.imag.hex()]
    if isinstance(value, str):
        return ["s", str(value)]
    if isinstance(value, (bytes, bytearray)):
        return ["b", bytes(value).hex()]
    for tag, kind in SEQUENCES:
        if isinstance(value, kind):
            return [tag, [to_words(item) for item in value]]
    if isinstance(value, dict):
        pairs: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return ["d", [[to_words(k), to_words(v)] for k, v in pairs.items()]]
    raise TypeError(f"{type(value).__name__} is no plain value")


def from_words(words: Any) -> Any:
    """Return the value that `to_words` wrote; raises `ValueError` for nonsense."""
    if words is None or isinstance(words, bool):
        return words
    tag, *rest = as_list(words)
    if tag == "i":
        return int(rest[0], 16)
    if tag == "f":
        return float.fromhex(rest[0])
    if tag == "c":
        return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
    if tag == "s" and isinstance(rest[0], str):
        return rest[0]
    if tag == "b":
        return bytes.fromhex(rest[0])
    if tag == "d":
        return {from_words(key): from_words(value) for key, value in rest[0]}
    for name, kind in SEQUENCES:
        if tag == name:
            return kind(from_words(item) for item in rest[0])
    raise ValueError("no value")


def as_list(words: Any) -> list[Any]:
    """Return a list that is not empty; raises `ValueError` for anything else."""
    if isinstance(words, list) and words:
        found: list[Any] = words  # pyright: ignore[reportUnknownVariableType]
        return found
    raise ValueError("no value")


SEQUENCES: list[tuple[str, Any]] = [
    ("l", list),
    ("t", tuple),
    ("e", set),
    ("z", frozenset),
]


# Frames -----------------------------------------------------------------------


def write_frame(fd: int, words: Any) -> None:
    """Write one frame whole."""
    text = json.dumps(words).encode("ascii")
    if len(text) > FRAME_BYTES_MAX:
        raise ValueError(f"a value of more than {FRAME_BYTES_MAX} bytes")
    left = memoryview(LENGTH.pack(len(text)) + text)
    while left:
        left = left[os.write(fd, left) :]


def read_frame(fd: int, deadline: float) -> Any:
    """Read one frame.

    Raises:
        Broken: The other end closed, sent nonsense, or the deadline passed.
    """
    (length,) = LENGTH.unpack(read_exactly(fd, LENGTH.size, deadline))
    if length > FRAME_BYTES_MAX:
        raise Broken(f"it answered with more than {FRAME_BYTES_MAX} bytes")
    text = read_exactly(fd, length, deadline)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Broken("it answered with nonsense") from None


def read_exactly(fd: int, length: int, deadline: float) -> bytes:
    """Read that many bytes; raises `Broken` as `read_frame` does."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    found = bytearray()
    while len(found) < length:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(min(left, IDLE_SECONDS) * 1000):
            raise Broken("it did not answer in time")
        chunk = os.read(fd, min(length - len(found), 1 << 16))
        if not chunk:
            raise Broken("it ended the program")
        found += chunk
    return bytes(found)


# The child --------------------------------------------------------------------


def serve(path: str, calls: int, answers: int) -> None:
    """Load the solution once told to, then answer calls until the pipe ends."""
    os.set_inheritable(calls, False)
    os.set_inheritable(answers, False)
    give_up_privileges()
    write_frame(answers, ["ready"])
    name = read_frame(calls, time.monotonic() + IDLE_SECONDS)
    try:
        function = load(path, name)
    except BaseException as error:
        write_frame(answers, ["raised", told(error)])
        return
    write_frame(answers, ["loaded"])
    while True:
        try:
            arguments, named = read_frame(calls, time.monotonic() + IDLE_SECONDS)
        except Broken:
            return
        write_frame(answers, answer(function, arguments, named))


def load(path: str, name: str) -> Any:
    """Return the function of that name from the file, as if it were imported."""
    with open(path, "rb") as file:
        source = file.read()
    module = types.ModuleType("solution")
    module.__file__ = os.path.abspath(path)
    sys.modules["solution"] = module
    sys.path.insert(0, os.path.dirname(module.__file__))
    exec(compile(source, path, "exec"), module.__dict__)
    return getattr(module, name)


def answer(function: Any, arguments: Any, named: Any) -> Any:
    """Call the function and return the words for what came of it."""
    try:
        value = function(*from_words(arguments), **from_words(named))
        return ["returned", to_words(value)]
    except BaseException as error:
        return ["raised", told(error)]


def told(error: BaseException) -> str:
    """Return an error as one line."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:
        text = "an error that cannot be told"
    return text.replace("\n", " ")[:REASON_CHARACTERS_MAX]


def give_up_privileges() -> None:
    """Drop what would let root look into another process of its own.

    Where the C library cannot be called this does nothing; a user without
    privileges has none to give up.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        for capability in range(CAPABILITIES_MAX):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
        libc.capset(header, bytes(24))
    except (AttributeError, OSError):
        pass


# The parent -------------------------------------------------------------------


class Child:
    """The process that runs the solution, as the tests call it."""

    def __init__(self, path: str, call_seconds: float) -> None:
        calls, self.calls = os.pipe()
        self.answers, answers = os.pipe()
        self.call_seconds = call_seconds
        self.broken = ""
        script = os.path.abspath(__file__)
        words = ["--serve", path, str(calls), str(answers)]
        self.process = subprocess.Popen(
            [sys.executable, "-I", script] + words,  # noqa: RUF005
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(calls, answers),
            start_new_session=True,
        )
        os.close(calls)
        os.close(answers)

    def load(self, name: str) -> None:
        """Have it load the solution, once it has started."""
        try:
            read_frame(self.answers, time.monotonic() + START_SECONDS)
        except Broken as broken:
            self.fail(f"it did not start: {broken}")
        self.ask(name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the graded function with values and return the value it gave."""
        words = self.ask([to_words(arguments), to_words(named)])
        try:
            return from_words(words[0])
        except (ValueError, TypeError, IndexError, OverflowError, RecursionError):
            self.fail("it answered with nonsense")

    def ask(self, words: Any) -> list[Any]:
        """Send one frame and return what was answered, without its tag."""
        if self.broken:
            raise Broken(self.broken)
        try:
            write_frame(self.calls, words)
            reply = read_frame(self.answers, time.monotonic() + self.call_seconds)
        except OSError:
            self.fail("it ended the program")
        except Broken as broken:
            self.fail(str(broken))
        try:
            tag, *rest = as_list(reply)
        except ValueError:
            self.fail("it answered with nonsense")
        if tag == "raised":
            raise Failed(f"it raised {ascii(rest)[:REASON_CHARACTERS_MAX]}")
        return rest

    def fail(self, reason: str) -> NoReturn:
        """Give the child up for good."""
        self.broken = reason
        raise Broken(reason)

    def end(self) -> None:
        """Kill it with what it started in its session."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(GOODBYE_SECONDS)
        os.close(self.calls)
        os.close(self.answers)


def verdict(child: Child, task: dict[str, Any]) -> str:
    """Return why the solution failed, or an empty text for a pass."""
    name = task["entry_point"]
    space: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(compile(task["prompt"], "prompt", "exec"), space)
        # Tests that call the function by its own name mean the graded one.
        space[name] = child
        exec(compile(task["test"], "test", "exec"), space)
        check: Callable[[Any], Any] = space["check"]
        child.load(name)
        check(child)
    except Broken as broken:
        return f"the solution failed: {broken}"
    except BaseException as error:
        return f"the solution failed: {told(error)}"
    # A test may have caught it, but a child that broke has passed nothing.
    return f"the solution failed: {child.broken}" if child.broken else ""


def hide() -> None:
    """Keep other processes of this user from reading this one."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def grade(path: str) -> int:
    """Read the mark and the tests, grade, print the mark."""
    mark, _, text = sys.stdin.buffer.read().partition(b"\n")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    task = json.loads(text)
    # What tests print must not come after the mark, nor instead of it.
    output = os.dup(1)
    os.dup2(2, 1)
    child = Child(path, float(task["call_seconds"]))
    hide()
    try:
        failure = verdict(child, task)
    finally:
        child.end()
    sys.stdout.flush()
    print(ascii(failure)[:SHOWN_BYTES_MAX] if failure else "passed", file=sys.stderr)
    os.write(output, b"\n" + mark + b"\n")
    return FAILED if failure else PASSED


def main(words: list[str]) -> int:
    """Run as the grader, or as its child."""
    if len(words) == 4 and words[0] == "--serve":
        serve(words[1], int(words[2]), int(words[3]))
        return PASSED
    if len(words) != 1:
        print("usage: humaneval_grader.py SOLUTION < MARK_AND_TASK", file=sys.stderr)
        return MISUSED
    return grade(words[0])


if __name__ == "__main__":
    # No clean-up at exit may turn a printed mark into another status.
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
