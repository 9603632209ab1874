# SPDX-License-Identifier: Apache-2.0
"""Files that come and go in chunks, and what the host is told of them.

A file that comes is written under a temporary name in its own folder and
renamed when it is whole; one that is cut leaves nothing. All is done with the
rights of the account that the file is for. How a call failed is a word (`kind`)
that the host knows, decided from the kernel's own error.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Iterator

from .accounts import Account, NoSuchAccount, acting_as, find_account
from .wire import (
    ANSWER,
    CHUNK,
    CHUNK_BYTES,
    CREDIT,
    FAILED,
    OPENED,
    WINDOW_BYTES,
    frame,
    told,
)

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ETXTBSY)
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


class Refused(Exception):
    """A call fails with these words."""

    def __init__(self, **words: object) -> None:
        super().__init__(words)
        self.words = words


class Writing:
    """A file that comes in."""

    def __init__(self, path: bytes, account: Account | None) -> None:
        self.path = path
        self.account = account
        self.mode = 0o644
        self.announced: int | None = None
        self.got = 0
        name = b".livery-%s.part" % os.urandom(8).hex().encode()
        self._temporary = os.path.join(os.path.dirname(path), name)
        self._descriptor = -1

    def open(self) -> None:
        """Make the parents and the temporary file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with acting_as(self.account):
            if _is_folder(self.path):
                raise Refused(kind="not_a_file", found="folder")
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._descriptor = os.open(self._temporary, flags, 0o600)

    def write(self, chunk: bytes) -> None:
        """Append all of `chunk`."""
        self.got += len(chunk)
        if self.announced is not None and self.got > self.announced:
            raise Refused(kind="cut", got=self.got, announced=self.announced)
        view = memoryview(chunk)
        with acting_as(self.account):
            while view:
                view = view[os.write(self._descriptor, view) :]

    def finish(self) -> None:
        """Give the file its mode and its name."""
        if self.announced is not None and self.got != self.announced:
            raise Refused(kind="cut", got=self.got, announced=self.announced)
        with acting_as(self.account):
            os.fchmod(self._descriptor, self.mode)
            os.close(self._descriptor)
            self._descriptor = -1
            os.rename(self._temporary, self.path)

    def abort(self) -> None:
        """Leave nothing of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        try:
            with acting_as(self.account):
                os.unlink(self._temporary)
        except OSError:
            pass  # It was never made, or the folder is gone with it.


class Reading:
    """A file that goes out."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size
        self.sent = 0
        self.credit = WINDOW_BYTES
        self.is_offered = False

    def next_chunk(self) -> bytes:
        """Return what is next; empty at the end of the file or of its first size."""
        wanted = min(CHUNK_BYTES, self.credit)
        # Files of /proc have the size 0 and content all the same.
        if self.size:
            wanted = min(wanted, self.size - self.sent)
        chunk = os.read(self.descriptor, wanted)
        self.sent += len(chunk)
        self.credit -= len(chunk)
        return chunk

    def abort(self) -> None:
        """Close the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Transfers:
    """The transfers under way, by call; each method returns frames to send."""

    def __init__(self) -> None:
        self._open: dict[int, Writing | Reading] = {}

    def stat(self, call: int, words: dict[str, object]) -> bytes:
        """Tell what is under a path, links not followed."""
        try:
            path, account = _target(words)
            with acting_as(account):
                seen = os.lstat(path)
        except (OSError, NoSuchAccount) as fault:
            return _failure(call, fault)
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
        found: dict[str, object] = {
            "kind": kinds.get(stat.S_IFMT(seen.st_mode), "other"),
            "size": seen.st_size,
            "mode": stat.S_IMODE(seen.st_mode),
        }
        return told(ANSWER, call, found)

    def rename(self, call: int, words: dict[str, object]) -> bytes:
        """Give a whole file that lies elsewhere the name that it was meant for."""
        try:
            path, account = _target(words)
            source = str(words["source"]).encode("utf-8", "surrogateescape")
            with acting_as(account):
                if _is_folder(path):
                    raise Refused(kind="not_a_file", found="folder")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.rename(source, path)
        except (OSError, NoSuchAccount, Refused) as fault:
            return _failure(call, fault, writes=True)
        return told(ANSWER, call, {})

    def begin_put(self, call: int, words: dict[str, object]) -> tuple[bytes, ...]:
        """Open the temporary file; chunks may come."""
        try:
            path, account = _target(words)
            writing = Writing(path, account)
            writing.open()
        except (OSError, NoSuchAccount, Refused) as fault:
            return (_failure(call, fault, writes=True),)
        size, mode = words["size"], words["mode"]
        writing.announced = size if isinstance(size, int) else None
        writing.mode = mode if isinstance(mode, int) else writing.mode
        self._open[call] = writing
        return ()

    def write(self, call: int, chunk: bytes) -> tuple[bytes, ...]:
        """Write a chunk and give credit for the next; one that failed gets none."""
        writing = self._open.get(call)
        if not isinstance(writing, Writing):
            return ()
        try:
            writing.write(chunk)
        except (OSError, Refused) as fault:
            return self._give_up(call, fault)
        return (frame(CREDIT, call, len(chunk).to_bytes(4, "big")),)

    def end_put(self, call: int) -> tuple[bytes, ...]:
        """Let the file be seen under its name."""
        writing = self._open.get(call)
        if not isinstance(writing, Writing):
            return ()
        try:
            writing.finish()
        except (OSError, Refused) as fault:
            return self._give_up(call, fault)
        del self._open[call]
        return (told(ANSWER, call, {"size": writing.got}),)

    def begin_get(self, call: int, words: dict[str, object]) -> tuple[bytes, ...]:
        """Open a file to be read; nothing but a file, and without waiting."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            path, account = _target(words)
            with acting_as(account):
                # Looked at first: to open a device may do something already.
                _check_file(os.stat(path))
                descriptor = os.open(path, flags)
            seen = os.fstat(descriptor)
            reading = Reading(descriptor, seen.st_size)
            try:
                _check_file(seen)
            except Refused:
                reading.abort()
                raise
        except (OSError, NoSuchAccount, Refused) as fault:
            return (_failure(call, fault),)
        self._open[call] = reading
        return (told(OPENED, call, {"size": reading.size}),)

    def credit(self, call: int, size: int) -> None:
        """Let more of a file go out."""
        reading = self.reading(call)
        if reading is not None:
            reading.credit += size

    def reading(self, call: int) -> Reading | None:
        """Return the file that goes out under `call`."""
        found = self._open.get(call)
        return found if isinstance(found, Reading) else None

    def chunks(self, call: int) -> Iterator[bytes]:
        """Yield what may go out now; the last frame of all ends the call."""
        reading = self.reading(call)
        while reading is not None and reading.credit > 0:
            try:
                chunk = reading.next_chunk()
                if not chunk and reading.sent < reading.size:
                    raise Refused(kind="cut", got=reading.sent, announced=reading.size)
            except (OSError, Refused) as fault:
                yield from self._give_up(call, fault)
                return
            if not chunk:
                del self._open[call]
                reading.abort()
                yield told(ANSWER, call, {"size": reading.sent})
                return
            yield frame(CHUNK, call, chunk)
            reading = self.reading(call)
        if reading is not None:
            reading.is_offered = False

    def abort(self, call: int) -> tuple[bytes, ...]:
        """End a transfer that the host gave up; one that is over was answered."""
        found = self._open.pop(call, None)
        if found is None:
            return ()
        found.abort()
        return (told(ANSWER, call, {"size": 0}),)

    def abort_all(self) -> None:
        """Leave nothing half done."""
        for call in list(self._open):
            self.abort(call)

    def _give_up(self, call: int, fault: Exception) -> tuple[bytes, ...]:
        found = self._open.pop(call)
        found.abort()
        return (_failure(call, fault, writes=isinstance(found, Writing)),)


def _target(words: dict[str, object]) -> tuple[bytes, Account | None]:
    user = words["user"]
    path = str(words["path"]).encode("utf-8", "surrogateescape")
    return path, find_account(None if user is None else str(user))


def _is_folder(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False  # What keeps it from being looked at keeps it from being made.


def _check_file(seen: os.stat_result) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise Refused(kind="not_a_file", found=_kind_of(seen.st_mode))


def _kind_of(mode: int) -> str:
    names: list[tuple[object, str]] = [
        (stat.S_ISDIR, "folder"),
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISSOCK, "socket"),
    ]
    for test, name in names:
        if callable(test) and test(mode):
            return name
    return "device"


def _failure(call: int, fault: Exception, *, writes: bool = False) -> bytes:
    return told(FAILED, call, _words_of(fault, writes=writes))


def _words_of(fault: Exception, *, writes: bool) -> dict[str, object]:
    if isinstance(fault, Refused):
        return dict(fault.words)
    if isinstance(fault, NoSuchAccount):
        return {"kind": "forbidden", "reason": str(fault)}
    number = fault.errno if isinstance(fault, OSError) else None
    reason = os.strerror(number) if number else str(fault)
    if number == errno.EISDIR:
        return {"kind": "not_a_file", "found": "folder"}
    if number in _FULL:
        return {"kind": "disk_full"}
    if number in _FORBIDDEN:
        return {"kind": "forbidden", "reason": reason}
    if number in _NO_FOLDER and writes:
        return {"kind": "forbidden", "reason": "a part of the path is no folder"}
    if number in (errno.ENOENT, errno.ENOTDIR) and not writes:
        return {"kind": "missing"}
    if number in _NO_PATH:
        return {"kind": "refused", "reason": reason}
    return {"kind": "failed", "reason": reason}
