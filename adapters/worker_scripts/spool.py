# SPDX-License-Identifier: Apache-2.0
"""An output on disk: its first half, its last half, its true size.

While it grows, the beginning is in NAME.head and what came last in the one or
two newest of NAME.tail.N. `join` makes NAME of them, whole or not at all, and
gives the same again when it was cut off; so what a supervisor wrote is there
also when it was killed.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

COPY_BYTES = 256 * 1024


class Kept(NamedTuple):
    """How much of an output is in its file: from its beginning and from its end."""

    head: int
    tail: int


class Spool:
    """Takes an output and keeps at most one and a half times `bytes_max` on disk."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self.size = 0
        self.fault = ""
        """Why nothing more is kept, in the kernel's words."""
        self._path = path
        self._head_left = (bytes_max + 1) // 2
        self._tail_max = bytes_max // 2
        self._tail_left = 0
        self._number = 0
        self._file = _open_new(path + ".head")

    def feed(self, data: bytes) -> None:
        """Take the next bytes; a disk that is full is noted, and they are counted."""
        self.size += len(data)
        if self.fault:
            return
        view = memoryview(data)
        try:
            while view:
                room = self._room()
                if room == 0:
                    return  # Nothing of the end is wanted.
                written = os.write(self._file, view[:room])
                self._take_room(written)
                view = view[written:]
        except OSError as fault:
            self.fault = os.strerror(fault.errno) if fault.errno else str(fault)

    def _room(self) -> int:
        if self._head_left:
            return self._head_left
        if not self._tail_left and self._tail_max:
            self._turn_over()
        return self._tail_left

    def _take_room(self, written: int) -> None:
        if self._head_left:
            self._head_left -= written
        else:
            self._tail_left -= written

    def _turn_over(self) -> None:
        os.close(self._file)
        self._file = -1
        if self._number >= 2:
            os.unlink(_tail(self._path, self._number - 1))
        self._number += 1
        self._file = _open_new(_tail(self._path, self._number))
        self._tail_left = self._tail_max

    def close(self) -> None:
        """Put what was taken safely on disk."""
        if self._file >= 0:
            try:
                os.fsync(self._file)
            except OSError as fault:
                self.fault = self.fault or str(fault.strerror)
            os.close(self._file)
            self._file = -1


def kept_of(path: str, bytes_max: int) -> tuple[Kept, str]:
    """Join the output `path`, and tell what is kept and what is wrong with it."""
    try:
        return join(path, bytes_max), ""
    except OSError as fault:
        return Kept(0, 0), fault.strerror or str(fault)


def join(path: str, bytes_max: int) -> Kept:
    """Make the file `path` of its parts, and tell what it holds of the output.

    Where the disk has no room for both, the beginning alone is kept.

    Raises:
        OSError: What is in their places is none of ours, or they cannot be had.
    """
    head_path = path + ".head"
    tails = _tails(path)
    for one in (path, head_path, *tails):
        _check_ours(one)
    if os.path.exists(head_path):
        try:
            _join_parts(path, head_path, tails, bytes_max // 2)
        except OSError:
            _unlink_all([path + ".part", *tails])
            os.rename(head_path, path)
    size = os.path.getsize(path) if os.path.exists(path) else 0
    head = min(size, (bytes_max + 1) // 2)
    return Kept(head, size - head)


def _check_ours(path: str) -> None:
    """Refuse what the command has put there: to open a pipe, say, may never end."""
    try:
        seen = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(seen.st_mode):
        raise OSError(errno.EINVAL, "what stands where it was kept is no file", path)


def _join_parts(path: str, head_path: str, tails: list[str], tail_max: int) -> None:
    if not tails:
        os.rename(head_path, path)
        return
    skipped = max(0, sum(map(os.path.getsize, tails)) - tail_max)
    part = path + ".part"
    target = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _copy(head_path, target, 0)
        for one in tails:
            size = os.path.getsize(one)
            _copy(one, target, min(skipped, size))
            skipped -= min(skipped, size)
        os.fsync(target)
    finally:
        os.close(target)
    os.rename(part, path)
    # The head goes first: without it nothing is joined a second time.
    _unlink_all([head_path, *tails])


def _unlink_all(paths: list[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def _copy(path: str, target: int, begin: int) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    source = os.open(path, flags)
    try:
        os.lseek(source, begin, os.SEEK_SET)
        while True:
            view = memoryview(os.read(source, COPY_BYTES))
            if not view:
                return
            while view:
                view = view[os.write(target, view) :]
    finally:
        os.close(source)


def _open_new(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def _tail(path: str, number: int) -> str:
    return "%s.tail.%09d" % (path, number)


def _tails(path: str) -> list[str]:
    folder, name = os.path.split(path)
    found = [one for one in os.listdir(folder) if one.startswith(name + ".tail.")]
    return [os.path.join(folder, one) for one in sorted(found)[-2:]]
