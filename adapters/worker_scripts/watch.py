# SPDX-License-Identifier: Apache-2.0
"""The watch over a run: what ends its command before the deadline.

One cause is a last line after which the command should have ended by itself; the
other is silence, on its outputs and in the files that it works on. A run that
asks for neither is not watched.
"""

from __future__ import annotations

import json
import os
import time
from typing import Callable, cast

LINE_BYTES_MAX = 8 * 1024 * 1024
"""A longer line is not looked into: it is none that ends a run."""
LOOK_SECONDS = 1.0
"""How often files are looked at for signs of life."""
FILES_MAX = 1000
"""Of a folder that is looked at for signs of life, no more than so many."""

LAST_LINE = "last_line"
SILENCE = "silence"


class Watch:
    """Is fed what the command says, and tells why it should be ended now."""

    def __init__(
        self, request: dict[str, object], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now
        self._last_line = cast("dict[str, object] | None", request.get(LAST_LINE))
        self._silence = cast("dict[str, object] | None", request.get(SILENCE))
        self._line = bytearray()
        self._too_long = False
        self._ended_at: float | None = None
        self._alive_at = self._looked_at = now()
        self._stamps: list[tuple[int, int, int]] = []

    def begin(self) -> None:
        """Count from now on."""
        self._alive_at = self._looked_at = self._now()
        self._stamps = self._look()

    def saw(self, piece: bytes, *, is_stdout: bool) -> None:
        """Take the next bytes of an output."""
        self._alive_at = self._now()
        if self._last_line is None or not is_stdout:
            return
        *lines, rest = piece.split(b"\n")
        for line in lines:
            self._add(line)
            self._take_line()
        self._add(rest)

    def cause(self) -> str:
        """Return why the command should be ended now; empty while it should not."""
        now = self._now()
        if self._is_overdue(now):
            return LAST_LINE
        if self._silence is None:
            return ""
        silent = now - self._alive_at >= cast("float", self._silence["seconds"])
        if silent or now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            stamps = self._look()
            if stamps != self._stamps:
                self._stamps = stamps
                self._alive_at = now
                silent = False
        return SILENCE if silent else ""

    def _is_overdue(self, now: float) -> bool:
        if self._last_line is None or self._ended_at is None:
            return False
        return now - self._ended_at >= cast("float", self._last_line["seconds"])

    def _add(self, piece: bytes) -> None:
        if len(self._line) + len(piece) > LINE_BYTES_MAX:
            self._too_long = True
            self._line.clear()
        if not self._too_long:
            self._line += piece
        if piece.strip():
            # Another line has begun, so the last one was not the last.
            self._ended_at = None

    def _take_line(self) -> None:
        if self._is_last_line():
            self._ended_at = self._now()
        self._line.clear()
        self._too_long = False

    def _is_last_line(self) -> bool:
        wanted = cast("dict[str, str]", self._last_line)
        # Most lines are others, and a look is cheaper than reading them.
        if wanted["value"].encode() not in self._line:
            return False
        try:
            words: object = json.loads(self._line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return False
        if not isinstance(words, dict):
            return False
        return bool(
            cast("dict[str, object]", words).get(wanted["key"]) == wanted["value"]
        )

    def _look(self) -> list[tuple[int, int, int]]:
        if self._silence is None:
            return []
        return [_stamp(path) for path in cast("list[str]", self._silence["paths"])]


def _stamp(path: str) -> tuple[int, int, int]:
    """Return what changes when something below `path` does: count, size, time."""
    count = size = changed = 0
    for one in _files(path):
        try:
            seen = os.stat(one, follow_symlinks=False)
        except OSError:
            continue
        count += 1
        size += seen.st_size
        changed = max(changed, seen.st_mtime_ns)
    return count, size, changed


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    found: list[str] = []
    for folder, _, names in os.walk(path):
        found += [os.path.join(folder, name) for name in names]
        if len(found) >= FILES_MAX:
            return found[:FILES_MAX]
    return found
