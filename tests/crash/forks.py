# SPDX-License-Identifier: Apache-2.0
"""Processes that are forked from one that has loaded Livery, and nothing more.

Loading it takes longer than what most of them live for. Each is a process of its own, with
a process group of its own; the one that forks has no threads, and opens nothing.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import attrs

ROOT: Final = Path(__file__).parents[2]
LIFE_SECONDS_MAX: Final = 600
"""How long one of them may live, before the kernel ends it."""


@attrs.frozen
class Forks:
    """Where such processes are asked for, one at a time."""

    asked: IO[str]
    told: IO[str]

    def run(self, words: Sequence[str], log: Path) -> int:
        """Run `doomed_livery` to its end, all that it says in `log`; return its status."""
        request = {"words": list(words), "log": str(log), "env": dict(os.environ)}
        print(json.dumps(request), file=self.asked, flush=True)
        return int(self.told.readline())


@contextmanager
def open_forks() -> Generator[Forks]:
    """Load Livery in a process of its own, and fork from it inside the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.forks"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Forks(process.stdin, process.stdout)
        finally:
            process.stdin.close()


def serve() -> None:
    """Fork for each request of standard input, and say how it ended."""
    from .doomed_livery import load

    load()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _live(request["words"], request["log"], request["env"])
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _live(words: list[str], log: str, environment: dict[str, str]) -> None:
    """Be a process like one that was begun by itself; this does not return."""
    from .doomed_livery import main

    os.setsid()
    signal.alarm(LIFE_SECONDS_MAX)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, replaced in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(descriptor, replaced)
    os.close(said)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(environment)
    status: object = 0
    try:
        main(words)
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 0 if status is None else 1)


if __name__ == "__main__":
    serve()
