# SPDX-License-Identifier: Apache-2.0
"""Output as it comes: its first and its last half are kept, and its true size."""

from ...ports.required.sandbox import Output


class BoundedOutput:
    """One output of one command."""

    def __init__(self, *, bytes_max: int) -> None:
        """Keep at most `bytes_max` bytes."""
        self._head_max = (bytes_max + 1) // 2
        self._tail_max = bytes_max // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._size += len(piece)
        room = self._head_max - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        # Cut now and then only: each cut moves what is kept.
        if len(self._tail) > 2 * self._tail_max + len(piece):
            self._cut()

    def told(self) -> Output:
        """Return what was kept."""
        self._cut()
        return Output(head=bytes(self._head), tail=bytes(self._tail), size=self._size)

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_max)]
