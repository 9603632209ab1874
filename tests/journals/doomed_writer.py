# SPDX-License-Identifier: Apache-2.0
"""Writers that are killed: they say on standard output what was acknowledged.

`run PATH NAME` appends until it is killed from outside. `steps FOLDER` is killed by
itself: one process for each step of the database, just before it, until one
comes to its end. `race PATH NAME TIMES` is not killed, and races for one stream.
"""

import itertools
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio

from livery.adapters.journals import open_sqlite_journal
from livery.domain.claims import ClaimId, CreationDoubted
from livery.domain.deciders import Instant
from livery.ports.required.journal import Journal, StreamMoved, claim_stream

WRITERS = 16
EVENTS = 3
STEPS_MAX = 200


async def append(journal: Journal, name: str, number: int) -> None:
    """Append the events of `number`, and say that they were."""
    stream = claim_stream(ClaimId(name))
    events = [
        CreationDoubted(reason=f"{number}/{part}", at=Instant(0.5))
        for part in range(EVENTS)
    ]
    version = await journal.append(stream, events, expected_version=number * EVENTS)
    os.write(1, f"{name} {version}\n".encode())


async def run(path: Path, prefix: str) -> None:
    """Append for ever, in many streams at once."""
    async with open_sqlite_journal(path) as journal:

        async def write(name: str) -> None:
            version = (await journal.read(claim_stream(ClaimId(name)))).version
            for number in itertools.count(version // EVENTS):
                await append(journal, name, number)

        async with anyio.create_task_group() as tasks:
            for writer in range(WRITERS):
                tasks.start_soon(write, f"{prefix}.{writer}")


async def short_life(path: Path) -> None:
    """Write a little of everything."""
    async with open_sqlite_journal(path) as journal:
        await append(journal, "alone", 0)
        async with anyio.create_task_group() as tasks:
            for writer in range(3):
                tasks.start_soon(append, journal, f"together.{writer}", 0)
        await append(journal, "alone", 1)
        forgotten = claim_stream(ClaimId("together.0"))
        await journal.forget(forgotten, expected_version=EVENTS)
        os.write(1, b"together.0 0\n")


def die_at(step: int) -> Callable[[object, str, object], None]:
    """Return a watch on a thread's calls that kills the process at one of them."""
    steps = itertools.count()

    def watch(_frame: object, event: str, called: object) -> None:
        of = getattr(called, "__self__", None)
        is_step = isinstance(of, sqlite3.Connection | sqlite3.Cursor)
        if is_step and event == "c_call" and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def steps(folder: Path) -> None:
    """Live short lives, each in a process of its own, each one step longer."""
    for step in range(STEPS_MAX):
        path = folder / f"{step}.sqlite"
        os.write(1, f"step {step}\n".encode())
        child = os.fork()
        if child == 0:
            threading.setprofile(die_at(step))
            anyio.run(short_life, path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        assert os.WTERMSIG(status) == signal.SIGKILL, status
    raise AssertionError(f"it had more than {STEPS_MAX} steps")


async def race(path: Path, name: str, times: int) -> None:
    """Win `times` versions of one stream, against whoever else wants them."""
    stream = claim_stream(ClaimId("prize"))
    async with open_sqlite_journal(path) as journal:
        won = 0
        while won < times:
            event = CreationDoubted(reason=f"{name}/{won}", at=Instant(0.5))
            version = (await journal.read(stream)).version
            try:
                await journal.append(stream, (event,), expected_version=version)
            except StreamMoved:
                continue
            won += 1
            os.write(1, f"{name}/{won - 1} {version + 1}\n".encode())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", path, prefix]:
            anyio.run(run, Path(path), prefix)
        case ["steps", folder]:
            steps(Path(folder))
        case ["race", path, name, times]:
            anyio.run(race, Path(path), name, int(times))
        case _:
            raise SystemExit(__doc__)
