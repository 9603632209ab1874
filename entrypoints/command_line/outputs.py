# SPDX-License-Identifier: Apache-2.0
"""Standard output and error that outlast whoever reads them.

What is told on the way must not decide what becomes of the work. The first write that
fails is kept, and what follows it goes nowhere: everything above, be it a table, a
progress bar or a log line, prints as ever. A character that an output cannot write is
written as its escape.
"""

import io
import os
import select
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_DESCRIPTORS: Final = (0, 1, 2)


class LastingFile(io.FileIO):
    """A file whose writes never fail."""

    failure: OSError | None = None
    """Why nothing is written any more."""

    def write(self, b: "ReadableBuffer", /) -> int:
        """Write the bytes, or some; after a failure all of them count as written."""
        while self.failure is None:
            try:
                return os.write(self.fileno(), b)
            except BlockingIOError:
                # Who shares the pipe made it one that does not wait: we wait ourselves.
                self._wait_for_room()
            except OSError as error:
                self.failure = error
        return memoryview(b).nbytes

    def _wait_for_room(self) -> None:
        """Wait until a write goes on, or fails for good, as one that waits does."""
        room = select.poll()
        room.register(self.fileno(), select.POLLOUT)
        room.poll()


def lasting_outputs() -> LastingFile:
    """Put lasting ones in the place of both, and return standard output's file."""
    _fill_closed()
    out, sys.stdout = _lasting(sys.stdout)
    _, sys.stderr = _lasting(sys.stderr)
    return out


def _fill_closed() -> None:
    """Open those that this process was begun without.

    The next file or socket would get the number, and words meant for the user with it.
    """
    for descriptor in STANDARD_DESCRIPTORS:
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _lasting(stream: TextIO | None) -> tuple[LastingFile, io.TextIOWrapper]:
    """Return a lasting file where the stream writes, and the same stream over it.

    There is no stream where this process was begun without one.
    """
    if stream is None:
        file = LastingFile(os.devnull, "w")
        return file, io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8")
    file = LastingFile(stream.fileno(), "w", closefd=False)
    return file, io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )
