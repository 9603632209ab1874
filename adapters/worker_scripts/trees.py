# SPDX-License-Identifier: Apache-2.0
"""Writing below a folder without ever leaving it.

Every step goes by a descriptor of the folder before, and none follows a link:
what stands in the way of a folder is taken away, be it a file or a link.
"""

from __future__ import annotations

import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = 0o700


class Folder:
    """A folder that is open, and what is written below it."""

    def __init__(self, descriptor: int) -> None:
        self._top = descriptor

    def make(self, parts: list[bytes]) -> None:
        """Make a folder and its parents."""
        os.close(self._open(parts))

    def open_new(self, parts: list[bytes]) -> int:
        """Open a new file, in the place of what has its name."""
        parent = self._open(parts[:-1])
        try:
            remove(parent, parts[-1])
            return os.open(parts[-1], _NEW_FILE, 0o600, dir_fd=parent)
        finally:
            os.close(parent)

    def make_link(self, parts: list[bytes], target: bytes) -> None:
        """Make a link, in the place of what has its name."""
        parent = self._open(parts[:-1])
        try:
            remove(parent, parts[-1])
            os.symlink(target, parts[-1], dir_fd=parent)
        finally:
            os.close(parent)

    def finish_folder(self, parts: list[bytes], mode: int, mtime: float) -> None:
        """Give a folder the mode and time that it is to have."""
        descriptor = self._open(parts)
        try:
            os.fchmod(descriptor, mode)
            set_time(descriptor, mtime)
        finally:
            os.close(descriptor)

    def _open(self, parts: list[bytes]) -> int:
        found = os.dup(self._top)
        for part in parts:
            try:
                below = _open_or_make(found, part)
            finally:
                os.close(found)
            found = below
        return found


def set_time(descriptor: int, mtime: float) -> None:
    """Give what is open that time; one that no clock can show is left away."""
    try:
        os.utime(descriptor, (mtime, mtime))
    except (OverflowError, ValueError):
        pass


def _open_or_make(parent: int, name: bytes) -> int:
    try:
        seen = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(name, 0o777, dir_fd=parent)
    else:
        if not stat.S_ISDIR(seen.st_mode):
            os.unlink(name, dir_fd=parent)
            os.mkdir(name, 0o777, dir_fd=parent)
        elif seen.st_mode & _OURS != _OURS:
            os.chmod(name, stat.S_IMODE(seen.st_mode) | _OURS, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def remove(parent: int, name: bytes) -> None:
    """Remove what has that name in an open folder, with all that is in it."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            raise
        below = _open_or_make(parent, name)
        try:
            empty_folder(below)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=parent)


def empty_folder(folder: int) -> None:
    """Remove all that is in an open folder."""
    for name in os.listdir(folder):
        remove(folder, os.fsencode(name))
