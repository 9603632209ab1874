# SPDX-License-Identifier: Apache-2.0
"""Files that are trusted: whose they are, who may change them, and their digests.

A file's digest is computed once and holds for as long as device, inode, size and
both times of the file are the same; a file that changed is read again.
"""

import hashlib
import os
import stat
from collections import OrderedDict
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

FOLDER_MODE: Final = 0o700
PIECE_BYTES: Final = 4 * 1024 * 1024
DIGESTS_MAX: Final = 256
"""How many files are remembered; of more, the oldest are read again."""


@attrs.frozen
class FileUntrusted(Exception):
    """A file or folder is not what its user alone made; `reason` says why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


@attrs.frozen
class Identity:
    """What changes when a file does."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@attrs.frozen
class Digest:
    """What a file held when it was read last."""

    identity: Identity
    sha256: str


@attrs.define(eq=False)
class Digests:
    """The digests that this process knows."""

    most: int = DIGESTS_MAX
    reads: int = 0
    """How many files were read to the end so far."""
    _known: OrderedDict[Path, Digest] = attrs.field(factory=OrderedDict[Path, Digest])
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock)

    async def of(self, path: Path, *, own: bool, most: int = 0o777) -> Digest:
        """Return the digest of a file, read when it is not known or has changed.

        `own` demands a file of this user that is no link; `most` are the permission
        bits that it may have.

        Raises:
            FileUntrusted: It is another's, a link, open to others, or changes.
            OSError: It cannot be read.
        """
        async with self._turn:  # Whoever comes meanwhile finds it known.
            descriptor = open_trusted(path, own=own, most=most)
            try:
                identity = identity_of(descriptor)
                known = self._known.get(path)
                if known is not None and known.identity == identity:
                    self._known.move_to_end(path)
                    return known
                self._known.pop(path, None)
                found = Digest(identity, await _sha256(descriptor))
                self.reads += 1
                if identity_of(descriptor) != identity:
                    raise FileUntrusted(path, "changes while it is read")
            finally:
                os.close(descriptor)
            self._keep(path, found)
            return found

    def remember(self, path: Path, sha256: str) -> None:
        """Keep a digest that was computed while the file was written."""
        descriptor = open_trusted(path, own=True, most=0o777)
        try:
            self._keep(path, Digest(identity_of(descriptor), sha256))
        finally:
            os.close(descriptor)

    def _keep(self, path: Path, found: Digest) -> None:
        self._known[path] = found
        self._known.move_to_end(path)
        while len(self._known) > self.most:
            self._known.popitem(last=False)


def open_trusted(path: Path, *, own: bool, most: int) -> int:
    """Open a file for reading, and look at what was opened.

    Raises:
        FileUntrusted: It is another's, a link, no file, or open to others.
        OSError: It cannot be opened.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    if own and path.is_symlink():
        raise FileUntrusted(path, "is a link")
    descriptor = os.open(path, flags | (os.O_NOFOLLOW if own else 0))
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise FileUntrusted(path, "is not a file")
        if own:
            _check_own(path, seen, most)
    except FileUntrusted:
        os.close(descriptor)
        raise
    return descriptor


def check_folder(path: Path) -> None:
    """Look whether a folder is its user's alone.

    Raises:
        FileUntrusted: It is another's, a link, no folder, or open to others.
        OSError: There is none.
    """
    seen = path.lstat()
    if stat.S_ISLNK(seen.st_mode):
        raise FileUntrusted(path, "is a link")
    if not stat.S_ISDIR(seen.st_mode):
        raise FileUntrusted(path, "is not a folder")
    _check_own(path, seen, FOLDER_MODE)


def identity_of(descriptor: int) -> Identity:
    """Return the identity of an open file."""
    seen = os.fstat(descriptor)
    return Identity(
        seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
    )


def _check_own(path: Path, seen: os.stat_result, most: int) -> None:
    if seen.st_uid != os.geteuid():
        raise FileUntrusted(path, f"belongs to user {seen.st_uid}")
    mode = stat.S_IMODE(seen.st_mode)
    if mode & ~most:
        told = f"has the mode {mode:04o}; no more than {most:04o} is trusted"
        raise FileUntrusted(path, told)


async def _sha256(descriptor: int) -> str:
    """Read an open file from its beginning, a piece at a time."""
    found = hashlib.sha256()
    offset = 0

    def add_piece() -> int:
        piece = os.pread(descriptor, PIECE_BYTES, offset)
        found.update(piece)
        return len(piece)

    while size := await anyio.to_thread.run_sync(add_piece):
        offset += size
    return found.hexdigest()
