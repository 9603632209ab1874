# SPDX-License-Identifier: Apache-2.0
"""A killed writer: what it was told is there, and nothing of it is there in part."""

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.journals import open_sqlite_journal

from .doomed_writer import EVENTS
from .lives import append, marks_of, stream

pytestmark = pytest.mark.anyio

DOOMED = Path(__file__).with_name("doomed_writer.py")
ROUNDS = 3
WRITERS_AT_ONCE = 2
RACES = 60
LIFE_SECONDS_MAX = 0.6
PATIENCE_SECONDS = 60.0


async def test_kills_at_any_moment_lose_and_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    acknowledged: dict[str, int] = {}
    for _ in range(ROUNDS):
        lives = [chance.uniform(0.0, LIFE_SECONDS_MAX) for _ in range(WRITERS_AT_ONCE)]
        for name, version in _killed(path, lives).items():
            acknowledged[name] = max(version, acknowledged.get(name, 0))

        assert await _kept(path, acknowledged), f"seed {seed}"

    assert acknowledged, "nobody wrote anything"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_kill_at_each_step_loses_and_tears_nothing(tmp_path: Path) -> None:
    lives = _short_lives(tmp_path)

    for life in lives:
        step, *lines = life.splitlines()
        acknowledged = _versions(lines)
        path = tmp_path / f"{step}.sqlite"
        # A stream that was forgotten may be there if nobody was told so.
        forgotten = acknowledged.pop("together.0", None)
        assert await _kept(path, acknowledged), f"killed at step {step}"
        async with open_sqlite_journal(path) as journal:
            version = (await journal.read(stream("together.0"))).version
            assert version == 0 if forgotten == 0 else version in (0, EVENTS)
            assert await append(journal, "after") == 1
    assert len(lives) > 40
    assert _versions(lives[-1].splitlines()[1:]) == {
        "alone": 2 * EVENTS,
        "together.0": 0,
        "together.1": EVENTS,
        "together.2": EVENTS,
    }


async def test_processes_that_race_win_each_version_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    racers = [_writer(path, f"r{number}", "race", RACES) for number in range(3)]

    for racer in racers:
        assert racer.process.wait(PATIENCE_SECONDS) == 0

    told = _versions([line for racer in racers for line in racer.told()])
    async with open_sqlite_journal(path) as journal:
        marks = marks_of((await journal.read(stream("prize"))).events)
    assert len(marks) == 3 * RACES
    assert told == {mark: version for version, mark in enumerate(marks, 1)}


async def test_a_live_reader_sees_a_killed_writer_s_appends(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        writer = _writer(path, "other")
        with anyio.fail_after(PATIENCE_SECONDS):
            version = await journal.moved(stream("other.0"), after=0)
        writer.kill()

        history = await journal.read(stream("other.0"))
        assert history.version >= version >= EVENTS
        assert history.version % EVENTS == 0
        assert await append(journal, "mine", name="other.0") == history.version + 1


async def test_a_backup_under_a_writer_has_all_that_was_acknowledged_before_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.sqlite"
    writer = _writer(path, "busy")
    writer.wait_until_told()
    copies: list[tuple[Path, dict[str, int]]] = []
    try:
        for number in range(ROUNDS):
            acknowledged = _versions(writer.told()[:-1])  # The last may be half told.
            copy = tmp_path / f"copy-{number}.sqlite"
            with (
                closing(sqlite3.connect(path)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
            copies.append((copy, acknowledged))
    finally:
        writer.kill()

    for copy, acknowledged in copies:
        assert await _kept(copy, acknowledged)
        async with open_sqlite_journal(copy) as journal:
            standing = (await journal.read(stream("busy.0"))).version
            assert await append(journal, "after", name="busy.0") == standing + 1


def _short_lives(folder: Path) -> list[str]:
    """Have writers killed at each step; return what each was told."""
    told = subprocess.run(
        [sys.executable, DOOMED, "steps", folder],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS * 2,
        check=True,
    ).stdout
    return told.split("step ")[1:]


def _killed(path: Path, lives: list[float]) -> dict[str, int]:
    """Have writers write at once, kill each, and return what they were told."""
    writers = [_writer(path, f"w{number}") for number in range(len(lives))]
    for writer in writers:
        writer.wait_until_told()
    begun = time.monotonic()
    for life, writer in sorted(zip(lives, writers, strict=True), key=lambda it: it[0]):
        time.sleep(max(begun + life - time.monotonic(), 0))
        writer.kill()
    told = [line for writer in writers for line in writer.told()]
    return _versions(told)


@attrs.frozen
class _Writer:
    """A doomed writer, with the file that it says its acknowledgements to."""

    process: subprocess.Popen[bytes]
    says: Path

    def told(self) -> list[str]:
        return self.says.read_text().splitlines()

    def wait_until_told(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.told():
            assert self.process.poll() is None, "the writer ended by itself"
            assert time.monotonic() < deadline, "the writer was never told anything"
            time.sleep(0.005)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _writer(
    path: Path, prefix: str, does: str = "run", times: int | None = None
) -> _Writer:
    says = path.with_name(f"{prefix}.told")
    rest = [] if times is None else [str(times)]
    with says.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, DOOMED, does, path, prefix, *rest], stdout=file
        )
    return _Writer(process, says)


def _versions(lines: list[str]) -> dict[str, int]:
    """Return each stream's last acknowledged version."""
    return {name: int(version) for name, version in map(str.split, lines)}


async def _kept(path: Path, acknowledged: dict[str, int]) -> bool:
    """Whether all that was acknowledged is there, and every append is whole."""
    async with open_sqlite_journal(path) as journal:
        names = {*acknowledged, *await journal.open_streams("claims")}
        for name in names:
            history = await journal.read(stream(name))
            whole = [
                f"{number}/{part}"
                for number in range(history.version // EVENTS)
                for part in range(EVENTS)
            ]
            if marks_of(history.events) != whole:
                return False
            if history.version < acknowledged.get(name, 0):
                return False
    return True
