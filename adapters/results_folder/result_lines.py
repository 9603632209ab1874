# SPDX-License-Identifier: Apache-2.0
"""The file of results: lines appended whole, synced together, healed after a kill.

Several appends that come at once share one write and one sync, and its failure. A write
that fails leaves the file as it was, or at worst with a torn last line, which the next
opening cuts off.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

from ...domain.digests import Json
from ...domain.rollouts import Record
from ...ports.required.result_log import ResultLogUnusable, RowRefused
from .faults import unusable
from .rows import is_row, read_rows, to_record

FILE_MODE: Final = 0o644
TAIL_BYTES: Final = 64 * 1024


@attrs.define(eq=False)
class _Line:
    """One row on its way to the disk."""

    content: bytes
    failure: ResultLogUnusable | None = None
    """Why it is not there, once its write was tried."""


@attrs.define(kw_only=True)
class FileResultLog:
    """The results of a run that this process alone writes."""

    path: Path
    _descriptor: int = attrs.field(alias="descriptor")
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    _waiting: list[_Line] = attrs.field(factory=list[_Line], init=False)
    _torn_at: int | None = attrs.field(default=None, init=False)
    """Where what was not written whole begins, as long as it is still there."""

    def records(self) -> tuple[Record, ...]:
        """Return what came of each finished attempt, in the order of their end.

        Raises:
            RowDamaged: A line is no row.
            ResultLogUnusable: It cannot be read.
        """
        return tuple(row.record for row in read_rows(self.path))

    async def append(self, row: Mapping[str, Json]) -> Record:
        """Write one episode's row, whole and durable, and return it as a record.

        Raises:
            RowRefused: It is no row.
            ResultLogUnusable: It is not there; the file is as it was.
        """
        try:
            record = to_record(row)
            text = json.dumps(row, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError) as error:
            raise RowRefused(str(error)) from error
        line = _Line(text.encode("utf-8", "backslashreplace") + b"\n")
        self._waiting.append(line)
        # A finished episode is kept, whoever has gone meanwhile.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if line in self._waiting:
                    lines, self._waiting = self._waiting, []
                    await self._keep(lines)
        if line.failure is not None:
            raise attrs.evolve(line.failure)
        return record

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    async def _keep(self, lines: Sequence[_Line]) -> None:
        """Write them together; each learns of a failure."""
        content = b"".join(line.content for line in lines)
        try:
            await anyio.to_thread.run_sync(self._write, content)
        except (OSError, RuntimeError) as error:  # No thread can be begun, say.
            for line in lines:
                line.failure = unusable(self.path, error)

    def _write(self, lines: bytes) -> None:
        self._mend()
        before = os.fstat(self._descriptor).st_size
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError:
            self._torn_at = before
            with suppress(OSError):
                self._mend()
            raise

    def _mend(self) -> None:
        """Cut off what was not written whole: what came after it would be one line."""
        if self._torn_at is not None:
            os.ftruncate(self._descriptor, self._torn_at)
            self._torn_at = None


def check_result_lines(path: Path) -> None:
    """See that a run can go on with the file; nothing is written.

    Raises:
        RowDamaged: A line is no row.
        ResultLogUnusable: It cannot be read.
    """
    for _ in read_rows(path):
        pass


def open_result_lines(path: Path) -> tuple[FileResultLog, int]:
    """Open or make the file; return it with how many torn bytes were cut off.

    Raises:
        ResultLogUnusable: It cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, FILE_MODE)
    except OSError as error:
        raise unusable(path, error) from error
    try:
        torn = _heal(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise unusable(path, error) from error
    return FileResultLog(path=path, descriptor=descriptor), torn


def _heal(descriptor: int) -> int:
    """Cut off what follows the last end of a line; a row that lacks no more gets one.

    Who put a line right, as we ask for, may have an editor that ends no last line.
    """
    size = end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - TAIL_BYTES)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end == size:
        return 0
    whole = is_row(_tail(descriptor, end, size))
    if whole:
        os.write(descriptor, b"\n")
    else:
        os.ftruncate(descriptor, end)
    os.fsync(descriptor)
    return 0 if whole else size - end


def _tail(descriptor: int, start: int, end: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(start)
        return file.read(end - start)
