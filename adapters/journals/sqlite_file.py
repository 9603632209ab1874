# SPDX-License-Identifier: Apache-2.0
"""The journal's file: how it is made, opened and recognised, and what may be wrong.

A database of another program is left alone, one of a newer version is not touched.
The file is for its user alone. It is in WAL mode with `synchronous=FULL`: what was
committed is on disk, and a kill at any moment loses nothing of it.
"""

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import attrs

from ...ports.required.journal import JournalTooNew, JournalUnusable

APPLICATION_ID: Final = 0x4C767279
FORMAT: Final = 1
"""`PRAGMA user_version` of files that this version writes."""
SQLITE_LEAST: Final = (3, 38, 0)

LOCK_SECONDS_MAX: Final = 10.0
"""How long to wait for another process that holds the file."""
LOCK_TRY_SECONDS: Final = 0.02
"""How long SQLite itself waits before we try again. Its own pauses grow to a tenth
of a second, and a busy neighbour would win every race."""
WAL_BYTES_KEPT: Final = 16 * 1024 * 1024
STATEMENTS_CACHED: Final = 128
"""More than there are different ones."""
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
REASON_CHARACTERS_MAX: Final = 200

SCHEMA: Final = (
    """CREATE TABLE streams (
        id INTEGER PRIMARY KEY,
        category TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL,
        is_open INTEGER NOT NULL,
        UNIQUE (category, key)
    ) STRICT""",
    # A log with an index, so that what is written together lies together.
    """CREATE TABLE events (
        position INTEGER PRIMARY KEY,
        stream INTEGER NOT NULL REFERENCES streams (id),
        version INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX events_in_order ON events (stream, version)",
    "CREATE INDEX open_streams ON streams (category) WHERE is_open",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class JournalFile:
    """Where the journal is, and how patient to be with other processes."""

    path: Path
    lock_seconds_max: float = LOCK_SECONDS_MAX

    def make(self) -> None:
        """Make the file when there is none, its folder too.

        Raises:
            JournalUnusable: It cannot be made, or something else is there.
        """
        try:
            self._make_folder()
            self._make_file()
        except OSError as error:
            raise self.unusable(error) from error

    def connect(self) -> sqlite3.Connection:
        """Open the file for the calling thread, as a journal of our format.

        Raises:
            JournalUnusable, JournalTooNew: As they say.
        """
        if sqlite3.sqlite_version_info < SQLITE_LEAST:
            least = ".".join(str(part) for part in SQLITE_LEAST)
            raise self._said(
                f"SQLite {sqlite3.sqlite_version} is too old",
                f"Use a Python that was built with SQLite {least} or newer.",
            )
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                f"file:{quote(os.fsencode(self.path.absolute()))}?mode=rw",
                uri=True,
                timeout=LOCK_TRY_SECONDS,
                isolation_level=None,
                cached_statements=STATEMENTS_CACHED,
            )
            self._prepare(connection)
        except (sqlite3.Error, JournalUnusable, JournalTooNew) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise self.unusable(error) from error
            raise
        return connection

    def patiently(self, connection: sqlite3.Connection, act: Callable[[], T]) -> T:
        """Return what `act` returns, and try again while others hold the file.

        Whatever it began is undone when it raises.

        Raises:
            JournalUnusable: The file is held for too long, or broken.
        """
        deadline = time.monotonic() + self.lock_seconds_max
        while True:
            try:
                return act()
            except sqlite3.Error as error:
                _undo(connection)
                if _primary(error) not in _HELD or time.monotonic() > deadline:
                    raise self.unusable(error) from error
            except BaseException:
                _undo(connection)
                raise

    def unusable(self, error: sqlite3.Error | OSError) -> JournalUnusable:
        """Return the failure that says what is wrong and what to do about it."""
        if isinstance(error, OSError):
            reason = (error.strerror or type(error).__name__).lower()
            return self._said(reason, _OS_ADVICE.get(error.errno, _OTHER_ADVICE))
        code = _primary(error)
        if code in _HELD:
            reason = f"another process has held it for {self.lock_seconds_max:g} s"
            return self._said(reason, _HELD_ADVICE)
        if code == sqlite3.SQLITE_FULL or (
            code == sqlite3.SQLITE_IOERR and self._disk_is_full()
        ):
            return self._said("the disk is full", _FULL_ADVICE)
        if code in _ADVICE:
            return self._said(*_ADVICE[code])
        return self._said(_shortened(error), _OTHER_ADVICE)

    def damaged(self, what: str) -> JournalUnusable:
        """Return the failure of a file that holds what nobody wrote."""
        return self._said(what, _DAMAGED_ADVICE)

    def identity(self) -> tuple[int, int]:
        """Return what tells this file from another under the same path.

        Raises:
            JournalUnusable: There is none.
        """
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise self._said("the file was removed under us", _MOVED_ADVICE) from error
        return found.st_dev, found.st_ino

    def replaced(self) -> JournalUnusable:
        """Return the failure of a file that is not the one that was opened."""
        return self._said("another file has taken its place", _MOVED_ADVICE)

    def _said(self, reason: str, advice: str) -> JournalUnusable:
        return JournalUnusable(where=str(self.path), reason=reason, advice=advice)

    def _make_folder(self) -> None:
        folder = self.path.parent
        if not folder.exists():
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)

    def _make_file(self) -> None:
        if self.path.is_dir():
            raise self._said("it is a folder", "Name a file, or another state folder.")
        if self.path.exists() and not stat.S_ISREG(os.stat(self.path).st_mode):
            raise self._said("it is no ordinary file", "Name a file on a local disk.")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        os.close(os.open(self.path, flags, FILE_MODE))
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        is_new = self.patiently(connection, lambda: self._is_seen_new(connection))
        mode = self.patiently(
            connection, lambda: _value(connection, "PRAGMA journal_mode = WAL")
        )
        if mode != "wal":
            raise self._said(
                "its disk cannot be shared between processes",
                "Put the state folder on a local disk (--state).",
            )
        for setting in (
            "synchronous = FULL",
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "temp_store = MEMORY",
            f"journal_size_limit = {WAL_BYTES_KEPT}",
        ):
            connection.execute(f"PRAGMA {setting}")
        if is_new:
            self.patiently(connection, lambda: self._lay_out(connection))

    def _is_seen_new(self, connection: sqlite3.Connection) -> bool:
        """As `_is_new`, all of it at one moment: another may be laying the file out."""
        connection.execute("BEGIN")
        try:
            return self._is_new(connection)
        finally:
            _undo(connection)

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Whether nothing is in the file yet; refuse one that is not ours."""
        application = _value(connection, "PRAGMA application_id")
        found = _value(connection, "PRAGMA user_version")
        tables = _value(connection, "SELECT count(*) FROM sqlite_schema")
        if (application, found, tables) == (0, 0, 0):
            return True
        if application != APPLICATION_ID:
            raise self._said(
                "it is a database of another program",
                "Name another file, or another state folder (--state).",
            )
        assert isinstance(found, int), "SQLite keeps the format as a number"
        if found > FORMAT:
            raise JournalTooNew(where=str(self.path), found=found, known=FORMAT)
        if found != FORMAT:
            raise self.damaged(f"it has format {found}, which never was")
        return False

    def _lay_out(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have been first.
        if self._is_new(connection):
            for statement in SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")

    def _disk_is_full(self) -> bool:
        try:
            disk = os.statvfs(self.path.parent)
        except OSError:
            return False
        return disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0)


_HELD: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_HELD_ADVICE: Final = "See which process has it open (lsof), and try again."
_FULL_ADVICE: Final = "Make room; nothing has to be started again."
_MOVED_ADVICE: Final = "Start again; what was written since then is not kept."
_DAMAGED_ADVICE: Final = (
    "Keep the file aside for a look, and go on with another state folder (--state)."
)
_RIGHTS_ADVICE: Final = (
    "Give the user that runs Livery the right to write there,"
    " or choose another state folder (--state)."
)
_OTHER_ADVICE: Final = "Look at the folder and its disk, or choose another (--state)."
_OS_ADVICE: Final[dict[int | None, str]] = {
    errno.EACCES: _RIGHTS_ADVICE,
    errno.EPERM: _RIGHTS_ADVICE,
    errno.EROFS: _RIGHTS_ADVICE,
    errno.ENOSPC: _FULL_ADVICE,
    errno.EDQUOT: _FULL_ADVICE,
}
_ADVICE: Final[dict[int | None, tuple[str, str]]] = {
    sqlite3.SQLITE_READONLY: ("it is read-only", _RIGHTS_ADVICE),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened or written", _RIGHTS_ADVICE),
    sqlite3.SQLITE_PERM: ("it is not ours to use", _RIGHTS_ADVICE),
    sqlite3.SQLITE_AUTH: ("it is not ours to use", _RIGHTS_ADVICE),
    sqlite3.SQLITE_CORRUPT: ("it is damaged", _DAMAGED_ADVICE),
    sqlite3.SQLITE_NOTADB: ("it is no database", _DAMAGED_ADVICE),
}


def _primary(error: sqlite3.Error) -> int | None:
    """Return SQLite's primary result code; None for what Python's module found."""
    # Absent, whatever the type stubs say, where the module itself complains.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _shortened(error: sqlite3.Error) -> str:
    return str(error)[:REASON_CHARACTERS_MAX] or type(error).__name__


def _undo(connection: sqlite3.Connection) -> None:
    # For some errors SQLite has undone it by itself.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _value(connection: sqlite3.Connection, statement: str) -> object:
    row: tuple[object, ...] = connection.execute(statement).fetchone()
    return row[0]
