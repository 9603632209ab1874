# SPDX-License-Identifier: Apache-2.0
"""The cache: one folder for each program, version and platform, whole or not there.

An entry is made in a folder of its own beside the others and gets its name by a
rename, so what was cut off or killed is never seen as one. A lock, which the kernel
lets go of when a process dies, has one process at a time make it. All of it is for
its user alone: a link, another's file or a wider mode is refused, not mended.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar, Final

import anyio
import attrs

from ...domain.runtimes import Platform
from ...ports.required.faults import Fault
from .records import RECORD, Record, RecordDamaged, read_record, write_record
from .trusted_files import FOLDER_MODE, FileUntrusted, check_folder

SECRET_MODE: Final = 0o600
PROGRAM_MODE: Final = 0o555
"""Readable by whoever a sandbox runs as; the folders above keep others out."""
LOCK_SECONDS_MAX: Final = 3600.0
"""How long to wait for another process that makes the same entry."""
LOCK_POLL_SECONDS: Final = 0.05
PART: Final = ".part-"
LOCKS: Final = ".locks"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@attrs.frozen
class RuntimeCacheUnusable(Fault):
    """The cache of programs cannot be made, read or trusted."""

    kind: ClassVar[str] = "runtime_cache_unusable"
    message: ClassVar[str] = (
        "The cache of programs in {where} cannot be used: {reason}."
        " Remove what is not yours, or name another with XDG_CACHE_HOME."
    )

    where: str
    reason: str


@attrs.frozen(kw_only=True)
class Entry:
    """A program in the cache."""

    folder: Path
    record: Record

    @property
    def program(self) -> Path:
        """The program itself."""
        return self.folder / self.record.program

    @property
    def packed(self) -> Path:
        """The form in which it is sent."""
        return self.folder / f"{self.record.program}.packed"


@attrs.frozen
class Leftover:
    """Something in the cache that is no entry."""

    path: Path
    reason: str
    goes_on: bool = False
    """Whether somebody makes an entry of it just now."""


@attrs.frozen
class RuntimeCache:
    """The programs below `root`."""

    root: Path

    def find(self, name: str, version: str, platform: Platform) -> Entry | None:
        """Return the entry, or None when there is none.

        Raises:
            RuntimeCacheUnusable: It is there and cannot be trusted.
        """
        folder = self._folder(name, version, platform)
        with _told(self.root):
            if not self._check_folders(folder):
                return None
            record = read_record(folder / RECORD)
        if (record.name, record.version, record.platform) != (name, version, platform):
            raise RuntimeCacheUnusable(str(folder), "its record is of another program")
        return Entry(folder=folder, record=record)

    @asynccontextmanager
    async def locked(
        self, name: str, version: str, platform: Platform
    ) -> AsyncGenerator[None]:
        """Be the one process, and the one task in it, that makes this entry.

        Raises:
            RuntimeCacheUnusable: The cache cannot be written, or the wait was too long.
        """
        word = f"{_checked(name)}-{_checked(version)}-{platform.word}"
        with _told(self.root):
            self._make_folder(self.root / LOCKS)
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.root / LOCKS / word, flags, SECRET_MODE)
        try:
            await self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    @asynccontextmanager
    async def made(
        self, name: str, version: str, platform: Platform
    ) -> AsyncGenerator["Making"]:
        """Make an entry, under its lock; it is seen when the block ends well.

        Raises:
            RuntimeCacheUnusable: The cache cannot be written.
        """
        folder = self._folder(name, version, platform)
        prefix = f"{PART}{name}-{version}-{platform.word}-"
        with _told(self.root):
            self._make_folder(folder.parent)
            # We have the lock: whoever left such a folder was cut off or killed.
            for left in self.root.glob(f"{prefix}*"):
                _remove(left)
            part = self.root / f"{prefix}{secrets.token_hex(8)}"
            part.mkdir(mode=FOLDER_MODE)
        try:
            making = Making(part)
            yield making
            assert making.record is not None, "an entry has a record"
            with _told(self.root):
                write_record(part / RECORD, making.record)
                part.rename(folder)
        finally:
            _remove(part)

    def entries(self) -> Iterator[Entry | Leftover]:
        """Tell all that is in the cache, in the order of the names.

        Raises:
            RuntimeCacheUnusable: It cannot be read or trusted.
        """
        with _told(self.root):
            if not self._check_folders(self.root):
                return
            found = sorted(self.root.iterdir())
        for path in found:
            if path.name.startswith(PART):
                yield self._leftover(path)
            elif path.name != LOCKS:
                for folder in sorted(path.glob("*/*")):
                    yield self._entry(folder)

    def remove(self, found: Entry | Leftover) -> None:
        """Remove an entry or a leftover.

        Raises:
            RuntimeCacheUnusable: It cannot be removed.
        """
        path = found.folder if isinstance(found, Entry) else found.path
        with _told(self.root):
            # First out of its name, so that nobody finds half of it.
            gone = self.root / f"{PART}gone-{secrets.token_hex(8)}"
            path.rename(gone)
            _remove(gone)

    def _leftover(self, path: Path) -> Leftover:
        word = path.name.removeprefix(PART).rpartition("-")[0]
        try:
            descriptor = os.open(self.root / LOCKS / word, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return Leftover(path, "its removal was cut off")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Leftover(path, "it is being made", goes_on=True)
        finally:
            os.close(descriptor)
        return Leftover(path, "its making was cut off")

    def _entry(self, folder: Path) -> Entry | Leftover:
        try:
            self._check_folders(folder)
            return Entry(folder=folder, record=read_record(folder / RECORD))
        except (FileUntrusted, RecordDamaged, OSError) as fault:
            return Leftover(folder, str(fault))

    def _folder(self, name: str, version: str, platform: Platform) -> Path:
        return self.root / _checked(name) / _checked(version) / _checked(platform.word)

    def _check_folders(self, folder: Path) -> bool:
        """Look at all folders from the cache's own down; False when one is missing."""
        steps = folder.relative_to(self.root.parent).parts
        path = self.root.parent
        try:
            check_folder(path)
            for step in steps:
                path = path / step
                check_folder(path)
        except FileNotFoundError:
            return False
        return True

    def _make_folder(self, folder: Path) -> None:
        self.root.parent.parent.mkdir(parents=True, exist_ok=True)
        path = self.root.parent.parent
        for step in folder.relative_to(path).parts:
            path = path / step
            path.mkdir(mode=FOLDER_MODE, exist_ok=True)
            check_folder(path)

    async def _lock(self, descriptor: int) -> None:
        with anyio.move_on_after(LOCK_SECONDS_MAX):
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await anyio.sleep(LOCK_POLL_SECONDS)
                else:
                    return
        reason = f"another process makes that entry for {LOCK_SECONDS_MAX:g} s"
        raise RuntimeCacheUnusable(str(self.root), reason)


@attrs.define
class Making:
    """An entry that is being made."""

    folder: Path
    record: Record | None = None
    """To be set before the block ends."""

    def program(self, name: str) -> Path:
        """Return where the program goes."""
        return self.folder / name

    def packed(self, name: str) -> Path:
        """Return where its packed form goes."""
        return self.folder / f"{name}.packed"


def cache_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the place of the cache of this user."""
    # An empty or relative value is as good as none, says the XDG specification.
    given = Path(environ.get("XDG_CACHE_HOME", ""))
    home = given if given.is_absolute() else Path.home() / ".cache"
    return home / "livery" / "runtimes"


@contextmanager
def _told(root: Path) -> Generator[None]:
    """Tell what breaks inside as the cache's."""
    try:
        yield
    except (FileUntrusted, RecordDamaged) as fault:
        raise RuntimeCacheUnusable(str(root), str(fault)) from fault
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise RuntimeCacheUnusable(str(root), reason) from fault


def _checked(word: str) -> str:
    if not _NAME.fullmatch(word):
        raise RuntimeCacheUnusable(word, "it is no name that a folder can have")
    return word


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
