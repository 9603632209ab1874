# SPDX-License-Identifier: Apache-2.0
"""One shelf on disk: its artifacts' files, and the list that says what they are.

`.shelf.json` names each artifact's file, digest, size and readers. Replacing that
list is the one moment at which an artifact comes to stand: a file that it does not
name is not there, whatever a crash left. An artifact that is replaced gets another
file, and the old one goes when the list no longer names it. Everything here blocks;
`folder.py` calls it in threads.
"""

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Protocol

import attrs

from ...ports.required.artifact_store import (
    Artifact,
    ArtifactStoreUnusable,
    Reader,
    Shelf,
)
from .file_names import free_file_name
from .shelf_list import Entry, Unreadable, from_text, to_text

LIST: Final = ".shelf.json"
LOCK: Final = ".lock"
PART: Final = ".part-"
LIST_BYTES_MAX: Final = 16 * 1024 * 1024
LOCK_SECONDS_MAX: Final = 10.0
LOCK_TRY_SECONDS: Final = 0.005
STALE_SECONDS: Final = 24 * 3600.0
"""How long nobody has written to a part before it is taken for a crash's."""
OPEN_TRIES_MAX: Final = 16
"""How often an artifact may be replaced while it is being opened."""
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class _Digest(Protocol):
    def update(self, content: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


@attrs.define(kw_only=True)
class Part:
    """A file under a name that nobody reads, on its way to become an artifact."""

    path: Path
    file: IO[bytes]
    size: int = 0
    _digest: _Digest = attrs.field(factory=hashlib.sha256, init=False)

    def write(self, content: bytes) -> None:
        """Add `content` at the end."""
        rest = memoryview(content)
        while rest:
            rest = rest[self.file.write(rest) :]
        self._digest.update(content)
        self.size += len(content)

    def finish(self) -> str:
        """See it safely on disk and return its sha256."""
        os.fsync(self.file.fileno())
        self.file.close()
        return self._digest.hexdigest()

    def discard(self) -> None:
        """Remove it, as far as that is possible."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


@attrs.frozen(kw_only=True)
class ShelfFolder:
    """One shelf's folder. Every method may raise OSError."""

    path: Path
    shelf: Shelf

    def begin(self) -> Part:
        """Open a new part, in a folder that is made where there is none."""
        _make_folder(self.path.parent)
        _make_folder(self.path)
        path = self.path / f"{PART}{secrets.token_hex(8)}"
        return Part(path=path, file=_create(path))

    def place(self, part: Part, name: str, readers: frozenset[Reader]) -> Artifact:
        """Let the part stand under `name`, in place of what stood there."""
        artifact = Artifact(
            shelf=self.shelf,
            name=name,
            sha256=part.finish(),
            size=part.size,
            readers=readers,
        )
        with self._locked():
            entries = self.entries()
            taken = {entry.file.casefold() for entry in entries.values()}
            file = free_file_name(name, taken)
            part.path.rename(self.path / file)
            # The file has its name on disk before the list says so.
            _sync_folder(self.path)
            try:
                self._write_list({**entries, name: Entry(file=file, artifact=artifact)})
            except BaseException:
                (self.path / file).unlink()
                raise
            _sync_folder(self.path)
            if replaced := entries.get(name):
                with suppress(OSError):
                    (self.path / replaced.file).unlink(missing_ok=True)
            self._sweep()
        return artifact

    def entries(self) -> Mapping[str, Entry]:
        """Return what stands on the shelf, by name.

        Raises:
            ArtifactStoreUnusable: The list cannot be read.
        """
        try:
            with (self.path / LIST).open("rb") as file:
                text = file.read(LIST_BYTES_MAX + 1)
        except FileNotFoundError:
            return {}
        try:
            return from_text(text, self.shelf)
        except Unreadable as unreadable:
            raise self._unusable(unreadable.reason) from unreadable

    def open(self, name: str) -> tuple[Artifact, IO[bytes] | None] | None:
        """Return the artifact with its open file; None when there is none.

        The file is None when the list names one that is not there.
        """
        entry = self.entries().get(name)
        for _ in range(OPEN_TRIES_MAX):
            if entry is None:
                return None
            file = _open(self.path / entry.file)
            # A replacement in between may have given the name to another content.
            now = self.entries().get(name)
            if now == entry:
                return entry.artifact, file
            if file is not None:
                file.close()
            entry = now
        raise self._unusable(f"{name} was replaced {OPEN_TRIES_MAX} times meanwhile")

    def _write_list(self, entries: Mapping[str, Entry]) -> None:
        text = to_text(self.shelf, entries).encode()
        if len(text) > LIST_BYTES_MAX:
            raise self._unusable(f"its list would exceed {LIST_BYTES_MAX} bytes")
        part = self.begin()
        try:
            part.write(text)
            part.finish()
            part.path.rename(self.path / LIST)
        except BaseException:
            part.discard()
            raise

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Hold the shelf, among threads and processes, for as long as it takes.

        Raises:
            ArtifactStoreUnusable: Another held it for `LOCK_SECONDS_MAX`.
        """
        lock = os.open(
            self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE
        )
        try:
            deadline = time.monotonic() + LOCK_SECONDS_MAX
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise self._unusable(
                        f"another process has held it for {LOCK_SECONDS_MAX:g} s"
                    )
                time.sleep(LOCK_TRY_SECONDS)
            yield
        finally:
            os.close(lock)

    def _sweep(self) -> None:
        """Remove what crashes left, on the way."""
        stale = time.time() - STALE_SECONDS
        with suppress(OSError), os.scandir(self.path) as found:
            for each in found:
                if each.name.startswith(PART) and each.stat().st_mtime < stale:
                    os.unlink(each.path)

    def _unusable(self, reason: str) -> ArtifactStoreUnusable:
        return ArtifactStoreUnusable(where=str(self.path), reason=reason)


def _make_folder(path: Path) -> None:
    if not path.is_dir():
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _sync_folder(path.parent)


def _create(path: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, FILE_MODE), "wb", buffering=0)


def _open(path: Path) -> IO[bytes] | None:
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(path, flags), "rb", buffering=0)
    except FileNotFoundError:
        return None


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
