# SPDX-License-Identifier: Apache-2.0
"""The SQLite journal when its world breaks: it says so, and works on when it can."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from livery.adapters.journals import open_sqlite_journal
from livery.adapters.journals.sqlite_writes import FILE_LOOK_SECONDS
from livery.adapters.journals.writes import EVENT_CHARACTERS_MAX
from livery.ports.required.journal import Journal, JournalUnusable

from .disks import small_disk
from .lives import append, marked, marks_of, stream

pytestmark = pytest.mark.anyio

SHORT_SECONDS = 0.3
PATIENCE_SECONDS = 60
CHILD_SECONDS_MAX = 60
CANNOT_GROW = Path(__file__).with_name("cannot_grow.py")


async def test_who_holds_the_file_too_long_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path, lock_seconds_max=SHORT_SECONDS) as journal:
        await append(journal, "one")
        with held(path):
            begun = time.monotonic()
            with pytest.raises(JournalUnusable, match=r"held it for 0\.3 s") as told:
                await append(journal, "two")
            taken = time.monotonic() - begun

            assert SHORT_SECONDS <= taken <= SHORT_SECONDS + PATIENCE_SECONDS
            assert "lsof" in told.value.advice
            assert marks_of((await journal.read(stream())).events) == ["one"]

        assert await append(journal, "two") == 2


async def test_who_holds_the_file_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        with held(path) as other:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(append, journal, "one")
                await anyio.sleep(SHORT_SECONDS)
                other.execute("ROLLBACK")

        assert marks_of((await journal.read(stream())).events) == ["one"]


async def test_a_file_held_for_another_alone_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        await append(journal, "one")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("COMMIT")

        with pytest.raises(JournalUnusable, match="another process has held it"):
            async with open_sqlite_journal(path, lock_seconds_max=SHORT_SECONDS):
                pass


async def test_a_full_disk_is_told_and_works_on_with_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(b"x" * 400_000)
        async with open_sqlite_journal(disk / "journal.sqlite") as journal:
            kept, told = await _filled(journal)
            for _ in range(3):
                with pytest.raises(JournalUnusable, match="the disk is full"):
                    await append(journal, "x" * 20_000)

            assert told.reason == "the disk is full"
            assert "Make room" in told.advice
            assert (await journal.read(stream())).version == kept
            (disk / "ballast").unlink()
            assert await append(journal, "after", "wards") == kept + 2
            assert (await journal.read(stream())).version == kept + 2
        async with open_sqlite_journal(disk / "journal.sqlite") as journal:
            assert (await journal.read(stream())).version == kept + 2


async def test_a_disk_that_is_full_from_the_start_is_told(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

        with pytest.raises(JournalUnusable, match=r"disk is full|no space"):
            async with open_sqlite_journal(disk / "journal.sqlite"):
                pass

        (disk / "ballast").unlink()
        async with open_sqlite_journal(disk / "journal.sqlite") as journal:
            assert await append(journal, "one") == 1


def test_a_file_that_cannot_grow_is_told_and_works_on(tmp_path: Path) -> None:
    # In a process of its own, since the limit holds for a whole process.
    child = subprocess.run(
        [sys.executable, CANNOT_GROW, tmp_path / "journal.sqlite"],
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS_MAX,
        check=False,
    )

    assert child.returncode == 0, child.stderr
    assert child.stdout == "all was kept\n"


async def test_a_file_that_was_removed_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        await append(journal, "one")
        path.unlink()

        with pytest.raises(JournalUnusable, match="removed under us"):
            await append_soon_refused(journal)


async def test_a_file_that_was_replaced_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        await append(journal, "one")
        shutil.copy(path, tmp_path / "copy")
        os.replace(tmp_path / "copy", path)

        with pytest.raises(JournalUnusable, match="another file has taken its place"):
            await append_soon_refused(journal)


async def append_soon_refused(journal: Journal) -> None:
    """Append until it is noticed: a batch may rely on another one's look for a while."""
    until = time.monotonic() + 2 * FILE_LOOK_SECONDS
    while time.monotonic() < until:
        await append(journal, "two")
    await append(journal, "refused at the latest")


async def test_an_event_that_is_too_large_is_told(tmp_path: Path) -> None:
    async with open_sqlite_journal(tmp_path / "journal.sqlite") as journal:
        with pytest.raises(JournalUnusable, match=r"has 3355.* as an artifact"):
            await append(journal, "x" * EVENT_CHARACTERS_MAX)
        assert await append(journal, "x" * (EVENT_CHARACTERS_MAX // 4)) == 1
        assert (await journal.read(stream())).version == 1


async def test_a_failed_batch_fails_alone_and_for_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    told: list[JournalUnusable] = []
    async with open_sqlite_journal(path, lock_seconds_max=SHORT_SECONDS) as journal:

        async def write(name: str) -> None:
            with pytest.raises(JournalUnusable) as unusable:
                await journal.append(stream(name), marked("x"), expected_version=0)
            told.append(unusable.value)

        with held(path):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(write, f"claim-{number}")

        assert len({id(each) for each in told}) == 20
        for number in range(20):
            assert await append(journal, "y", name=f"claim-{number}") == 1


async def test_waiters_are_told_when_nobody_can_look(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    told: list[JournalUnusable] = []
    async with open_sqlite_journal(path) as journal:

        async def wait(name: str) -> None:
            with pytest.raises(JournalUnusable) as unusable:
                await journal.moved(stream(name), after=1)
            told.append(unusable.value)

        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            with anyio.fail_after(PATIENCE_SECONDS):
                async with anyio.create_task_group() as tasks:
                    for number in range(3):
                        tasks.start_soon(wait, f"claim-{number}")
                    await anyio.wait_all_tasks_blocked()
                    other.execute("ALTER TABLE streams RENAME TO horses")
            other.execute("ALTER TABLE horses RENAME TO streams")

        assert len({id(each) for each in told}) == 3
        assert await append(journal, "one") == 1
        assert await journal.moved(stream(), after=0) == 1


async def test_what_is_raised_inside_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_sqlite_journal(tmp_path / "journal.sqlite"):
            raise ZeroDivisionError


async def test_a_journal_that_was_closed_says_so(tmp_path: Path) -> None:
    async with open_sqlite_journal(tmp_path / "journal.sqlite") as journal:
        pass

    with pytest.raises(AssertionError, match="after it was closed"):
        await journal.read(stream())


async def test_closing_among_cancelled_appends_tears_none(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal, anyio.create_task_group() as tasks:

        async def write(name: str) -> None:
            await append(journal, "x", name=name)

        for number in range(50):
            tasks.start_soon(write, f"claim-{number}")
        await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()

    async with open_sqlite_journal(path) as journal:
        for number in range(50):
            assert (await journal.read(stream(f"claim-{number}"))).version in (0, 1)


async def _filled(journal: Journal) -> tuple[int, JournalUnusable]:
    """Append until that fails; return how many were kept, and the failure."""
    kept = 0
    while True:
        try:
            await append(journal, "x" * 20_000)
        except JournalUnusable as told:
            return kept, told
        kept += 1


@contextmanager
def held(path: Path) -> Generator[sqlite3.Connection]:
    """Hold the file as a writer that does not end."""
    with closing(
        sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other
