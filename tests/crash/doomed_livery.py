# SPDX-License-Identifier: Apache-2.0
"""`livery` as shipped, with crash points: it notes each, and meets its fate at some.

    python -m tests.crash.doomed_livery NOTES FATES OUT STATE -- run ...

FATES is JSON: the point and what happens there, in turn. KILL ends the whole process
group; TERM and INT are sent to this process, which goes on; FULL fills the disk of the
state folder; COPY copies the journal's files as they stand between two writes, as a
snapshot does. Files below OUT and STATE are watched.

The point `*` is each one that no process with these NOTES has passed under it before.
"""

import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from .points import Course

LOADED: Final = (
    "livery.adapters.artifacts.folder",
    "livery.adapters.docker_engine",
    "livery.adapters.journals",
    "livery.adapters.postgres_journal",
    "livery.adapters.results_folder",
    "livery.entrypoints.command_line.main",
)
"""What is loaded before the points are laid; adapters are loaded when they are used."""
EACH: Final = "*"
FILLER: Final = "filler"
COPIES: Final = "copies"
JOURNAL: Final = ("journal.sqlite", "journal.sqlite-wal")
"""The files of a journal in use that a copy needs."""
PIECE: Final = bytes(64 * 1024)


def main(words: list[str]) -> None:
    """Run the command line behind `--`."""
    at = words.index("--")
    notes, told, out, state = words[:at]
    descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    load()
    known = fates_of(Path(state))
    fates = {
        point: [known[fate] for fate in named]
        for point, named in json.loads(told).items()
    }
    at_each = fates.pop(EACH, [])
    before = set(Path(notes).read_text(encoding="utf-8").splitlines())

    def note(passed: str) -> None:
        if at_each and passed in before:
            return
        _write(descriptor, f"{passed}\n")
        for happen in at_each:
            happen()

    course = Course(note=note, fates=fates)
    course.lay()
    course.watch([Path(out), Path(state)])
    from livery.entrypoints.command_line.main import main as livery

    sys.argv[1:] = words[at + 1 :]
    livery()


def load() -> None:
    """Load what the points are laid around, and the command line."""
    for name in LOADED:
        importlib.import_module(name)


def fates_of(state: Path) -> Mapping[str, Callable[[], None]]:
    """Return what can happen, by its name."""
    return {
        "KILL": partial(os.killpg, 0, signal.SIGKILL),
        "TERM": partial(os.kill, os.getpid(), signal.SIGTERM),
        "INT": partial(os.kill, os.getpid(), signal.SIGINT),
        "FULL": partial(fill, state.parent / FILLER),
        "COPY": partial(copy, state, state.parent / COPIES),
    }


def fill(filler: Path) -> None:
    """Write to the disk until nothing more fits."""
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    piece = memoryview(PIECE)
    try:
        while piece:
            try:
                os.write(descriptor, piece)
            except OSError:
                piece = piece[: len(piece) // 2]
    finally:
        os.close(descriptor)


def copy(state: Path, into: Path) -> None:
    """Copy the journal's files; nothing writes to them while this process is in here."""
    into.mkdir()
    for name in JOURNAL:
        if (state / name).exists():
            shutil.copyfile(state / name, into / name)


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())


if __name__ == "__main__":
    main(sys.argv[1:])
