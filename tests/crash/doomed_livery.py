# SPDX-License-Identifier: Apache-2.0
"""`livery` as shipped, with crash points: it notes each, and meets its fate at one.

    python -m tests.crash.doomed_livery NOTES FATE POINT FOLDER FOLDER -- run ...

FATE is KILL (the whole process group), TERM or INT (this process, which goes on), or
none. Files below the folders are watched.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from .points import Course

ADAPTERS: Final = (
    "livery.adapters.artifacts.folder",
    "livery.adapters.docker_engine",
    "livery.adapters.journals",
    "livery.adapters.postgres_journal",
    "livery.adapters.results_folder",
    "livery.entrypoints.composition",
)
"""What is loaded before the points are laid; adapters are loaded when they are used."""

FATES: Final[Mapping[str, Callable[[], None]]] = {
    "KILL": partial(os.killpg, 0, signal.SIGKILL),
    "TERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "INT": lambda: os.kill(os.getpid(), signal.SIGINT),
    "none": lambda: None,
}


def main(words: list[str]) -> None:
    """Run the command line behind `--`."""
    at = words.index("--")
    notes, fate, point, *folders = words[:at]
    descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    for name in ADAPTERS:
        importlib.import_module(name)
    course = Course(
        note=lambda passed: _write(descriptor, f"{passed}\n"),
        armed=point or None,
        happen=FATES[fate],
    )
    course.lay()
    course.watch([Path(folder) for folder in folders])
    from livery.entrypoints.command_line.main import main as livery

    sys.argv[1:] = words[at + 1 :]
    livery()


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())


if __name__ == "__main__":
    main(sys.argv[1:])
