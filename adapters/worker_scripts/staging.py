# SPDX-License-Identifier: Apache-2.0
"""The folder of one program in this sandbox: who stages it, and what arrived so far.

A part is there whole or not at all, under its number; parts of another form of the
program are in another folder. All of it is its user's alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time

FOLDER_MODE = 0o700
PARTS = "parts-"
WAIT_STEP_SECONDS = 0.01


class Refused(Exception):
    """Nothing is done; the words say why."""

    def __init__(self, state: str, **words: object) -> None:
        super().__init__(state)
        self.words: dict[str, object] = {"state": state, **words}


class Busy(Refused):
    """Another is at it."""

    def __init__(self, stager: str) -> None:
        super().__init__("busy", stager=stager)


class Place:
    """The folder of one program, with the words of a call."""

    def __init__(self, words: dict[str, object]) -> None:
        self.words = words
        # All who have the same user here share one.
        self.root = "%s-%d" % (words["root"], os.geteuid())
        self.folder = os.path.join(self.root, str(words["folder"]))
        # Of another form of the same program no part is taken for one of this.
        form = "%.16s-%s" % (words["packed_sha256"], words["chunk_bytes"])
        self.parts = os.path.join(self.folder, PARTS + form)
        self.staged = os.path.join(self.folder, "staged")
        self.final = os.path.join(self.folder, str(words["program"]))
        self.claim = os.path.join(self.folder, "stager")

    def number(self, name: str) -> int:
        """Return a word that is a number."""
        return int(str(self.words[name]))

    def make(self) -> None:
        """Make the folders, which are to be ours alone."""
        for path in (self.root, self.folder, self.parts):
            try:
                os.mkdir(path, FOLDER_MODE)
            except FileExistsError:
                pass
            seen = os.lstat(path)
            if not stat.S_ISDIR(seen.st_mode):
                raise Refused("forbidden", path=path, reason="it is no folder")
            if seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) & 0o077:
                raise Refused("forbidden", path=path, reason="it is not ours alone")

    def stager(self) -> str | None:
        """Return who stages, unless that one has been silent for too long."""
        try:
            with open(self.claim, encoding="utf-8") as file:
                name = file.read()
            fresh = max(os.stat(self.claim).st_mtime, os.stat(self.parts).st_mtime)
        except OSError:
            return None
        silent = time.time() - fresh
        return name if silent < float(str(self.words["stale_seconds"])) else None

    def write_claim(self) -> None:
        """Say that we stage."""
        with open(self.claim, "w", encoding="utf-8") as file:
            file.write(str(self.words["stager"]))

    def check_claim(self) -> None:
        """Refuse when another has taken over."""
        if self.stager() != self.words["stager"]:
            raise Refused("not_the_stager")

    def clear(self) -> None:
        """Leave nothing of what was staged."""
        for path in (self.staged, self.claim):
            try:
                os.unlink(path)
            except OSError:
                pass
        for name in os.listdir(self.folder):
            if name.startswith(PARTS):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)

    def part(self, number: int) -> str:
        """Return where a part is."""
        return os.path.join(self.parts, "%06d" % number)

    def part_size(self, number: int) -> int:
        """Return how long a part is when it is whole."""
        size, chunk = self.number("packed_size"), self.number("chunk_bytes")
        return min(chunk, size - number * chunk)

    def parts_count(self) -> int:
        """Return how many parts there are in all."""
        return -(-self.number("packed_size") // self.number("chunk_bytes"))

    def present(self) -> list[int]:
        """Return which parts are there and whole."""
        return [n for n in range(self.parts_count()) if self.is_present(n)]

    def is_present(self, number: int) -> bool:
        """Tell whether a part is there and whole."""
        try:
            return os.lstat(self.part(number)).st_size == self.part_size(number)
        except OSError:
            return False


class Lock:
    """The program's folder, for one call at a time; the kernel lets go of it."""

    def __init__(self, place: Place) -> None:
        self._path = os.path.join(place.folder, "lock")
        self._descriptor = -1

    def __enter__(self) -> None:
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise Busy("") from None

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class Parts:
    """The parts one after the other; one that is not there yet is waited for."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._next = 0

    def read(self) -> bytes:
        """Return the next part; empty at the end."""
        if self._next == self._place.parts_count():
            return b""
        self._wait()
        with open(self._place.part(self._next), "rb") as file:
            part = file.read()
        self._next += 1
        return part

    def _wait(self) -> None:
        until = time.monotonic() + float(str(self._place.words["stall_seconds"]))
        while not self._place.is_present(self._next):
            if time.monotonic() > until:
                raise Refused("stalled", reason="no more of it came")
            time.sleep(WAIT_STEP_SECONDS)
