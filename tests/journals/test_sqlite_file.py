# SPDX-License-Identifier: Apache-2.0
"""The journal's file: ours alone, recognised, and told apart from what it is not."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from livery.adapters.journals import open_sqlite_journal
from livery.adapters.journals.sqlite_file import APPLICATION_ID, FORMAT, JournalFile
from livery.ports.required.journal import JournalTooNew, JournalUnusable

from .lives import append, marked, marks_of, stream
from .rights import obeyed

pytestmark = pytest.mark.anyio


async def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "livery" / "journal.sqlite"
    before = os.umask(0)
    try:
        async with open_sqlite_journal(path) as journal:
            await append(journal, "one")
            modes = {each.name: _mode(each) for each in path.parent.iterdir()}
    finally:
        os.umask(before)

    assert _mode(path.parent) == 0o700
    assert modes == dict.fromkeys(
        ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"), 0o600
    )


async def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    async with open_sqlite_journal(tmp_path / "journal.sqlite"):
        pass

    assert _mode(tmp_path) == 0o755


async def test_closing_leaves_one_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        await append(journal, "one")

    assert list(tmp_path.iterdir()) == [path]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (
            APPLICATION_ID,
        )
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_it_can_be_opened_again_and_again(tmp_path: Path) -> None:
    for number in range(5):
        async with open_sqlite_journal(tmp_path / "journal.sqlite") as journal:
            assert await append(journal, f"{number}") == number + 1


async def test_odd_paths_are_paths(tmp_path: Path) -> None:
    for name in ("a b", "100%", "q?mode=memory#x", "'\"", "Größe", "-rf"):
        async with open_sqlite_journal(tmp_path / name / name) as journal:
            await append(journal, "one")
        assert (tmp_path / name / name).is_file()


async def test_a_relative_path_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async with open_sqlite_journal(Path("journal.sqlite")) as journal:
        await append(journal, "one")

    assert (tmp_path / "journal.sqlite").is_file()


async def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.touch()

    async with open_sqlite_journal(path) as journal:
        assert await append(journal, "one") == 1


async def test_two_that_make_the_file_at_once_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "journal.sqlite", list[str]()

    class Overtaken(sqlite3.Connection):
        """Another process lays the file out in the middle of the look at it."""

        def execute(self, statement: str, *given: object) -> sqlite3.Cursor:
            if statement == "PRAGMA user_version" and not others:
                others.append("came")
                file = JournalFile(path=path, lock_seconds_max=0.0)
                try:
                    file.connect().close()
                except JournalUnusable:
                    others.append("was kept out")
            return super().execute(statement, *given)  # type: ignore[arg-type]

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3,
        "connect",
        lambda *given, **more: connect(*given, factory=Overtaken, **more),
    )
    async with open_sqlite_journal(path) as journal:
        assert await append(journal, "one") == 1

    assert others[0] == "came"


async def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        await append(journal, "one")
    _execute(path, f"PRAGMA user_version = {FORMAT + 1}")
    before = path.read_bytes()

    with pytest.raises(JournalTooNew) as told:
        async with open_sqlite_journal(path):
            pass

    assert (told.value.found, told.value.known) == (FORMAT + 1, FORMAT)
    assert "Use a newer Livery" in str(told.value)
    assert path.read_bytes() == before


async def test_another_program_s_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "photos.sqlite"
    _execute(path, "CREATE TABLE photos (name TEXT)")
    before = path.read_bytes()

    with pytest.raises(JournalUnusable, match="database of another program"):
        async with open_sqlite_journal(path):
            pass

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


async def test_what_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Feed the horses.\n" * 500)

    with pytest.raises(JournalUnusable, match="no database") as told:
        async with open_sqlite_journal(path):
            pass

    assert told.value.where == str(path)
    assert path.read_text() == "Feed the horses.\n" * 500


async def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalUnusable, match="it is a folder"):
        async with open_sqlite_journal(tmp_path):
            pass


async def test_a_pipe_is_no_journal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(JournalUnusable, match="no ordinary file"):
        async with open_sqlite_journal(tmp_path / "pipe"):
            pass


async def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(JournalUnusable, match=r"not a directory|exists"):
        async with open_sqlite_journal(tmp_path / "state" / "journal.sqlite"):
            pass


@pytest.mark.parametrize("place", ["folder", "file", "folder of the file"])
async def test_what_is_not_ours_to_write_is_told(tmp_path: Path, place: str) -> None:
    folder, path = tmp_path / "state", tmp_path / "state" / "journal.sqlite"
    folder.mkdir()
    if place == "folder":
        folder.chmod(0o500)
    else:
        async with open_sqlite_journal(path) as journal:
            await append(journal, "one")
        if place == "file":
            path.chmod(0o400)
        else:
            folder.chmod(0o500)

    with (
        obeyed(),
        pytest.raises(JournalUnusable, match="Give the user that runs Livery"),
    ):
        async with open_sqlite_journal(path):
            pass


async def test_a_file_that_was_cut_is_told(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        for number in range(200):
            await append(journal, "x" * 200, name=f"claim-{number}")
    os.truncate(path, path.stat().st_size // 4 // 4096 * 4096)

    with pytest.raises(JournalUnusable, match="it is damaged") as told:
        await _read_all(path, 200)

    assert "Keep the file aside" in told.value.advice


@pytest.mark.parametrize("part", range(1, 8))
async def test_a_file_that_was_written_over_never_lies(
    tmp_path: Path, part: int
) -> None:
    path = tmp_path / "journal.sqlite"
    written = {f"claim-{number}": "x" * 200 for number in range(200)}
    async with open_sqlite_journal(path) as journal:
        for name, mark in written.items():
            await append(journal, mark, name=name)
    whole = path.read_bytes()
    start = len(whole) * part // 8 // 4096 * 4096
    path.write_bytes(whole[:start] + b"\xa5" * 4096 + whole[start + 4096 :])

    read: dict[str, list[str]] = {}
    told: list[JournalUnusable] = []
    for name in written:
        try:
            async with open_sqlite_journal(path) as journal:
                history = await journal.read(stream(name))
        except JournalUnusable as unusable:
            told.append(unusable)
        else:
            if history.events:
                read[name] = marks_of(history.events)

    assert told, "a page is gone, and nobody noticed"
    assert all("damaged" in each.reason for each in told)
    assert all(marks == [written[name]] for name, marks in read.items())


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE events SET kind = 'horse_fed' WHERE version = 2", "event 2 of .*fed"),
        ("UPDATE events SET body = '{' WHERE version = 2", "event 2 of .*no JSON"),
        (
            """UPDATE events SET body = '{"reason": "", "at": 1, "by": 2}'
            WHERE version = 3""",
            r"event 3 of claims/claim-1 .*extra fields found \(by\)",
        ),
        ("UPDATE events SET body = CAST(x'ff22' AS TEXT)", "damaged|no JSON|decode"),
        (
            "DELETE FROM events WHERE version = 2",
            "events of claims/claim-1 are missing",
        ),
        ("DELETE FROM events", "events of claims/claim-1 are missing"),
        ("UPDATE streams SET version = 2", "events of claims/claim-1 are missing"),
    ],
)
async def test_what_nobody_wrote_is_not_read(
    tmp_path: Path, statement: str, told: str
) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        await append(journal, "one", "two", "three")
        await append(journal, "other", name="claim-2")
    _execute(path, f"{statement}{'' if 'WHERE' in statement else ' WHERE true'}")

    async with open_sqlite_journal(path) as journal:
        with pytest.raises(JournalUnusable, match=told):
            await journal.read(stream())


async def test_one_bad_stream_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with open_sqlite_journal(path) as journal:
        await append(journal, "one")
        await append(journal, "other", name="claim-2")
    _execute(path, "UPDATE events SET kind = 'horse_fed' WHERE position = 1")

    async with open_sqlite_journal(path) as journal:
        assert marks_of((await journal.read(stream("claim-2"))).events) == ["other"]
        assert await append(journal, "more", name="claim-2") == 2
        # What is behind it can be read on.
        await journal.append(stream(), marked("two"), expected_version=1)
        assert marks_of((await journal.read(stream(), after=1)).events) == ["two"]


async def _read_all(path: Path, streams: int) -> None:
    async with open_sqlite_journal(path) as journal:
        for number in range(streams):
            await journal.read(stream(f"claim-{number}"))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)
