# SPDX-License-Identifier: Apache-2.0
"""What is kept of an output: its first half, its last half, its true size."""

from __future__ import annotations


class Capture:
    """Keeps at most `bytes_max` of what it is fed, in at most twice the memory."""

    def __init__(self, bytes_max: int) -> None:
        self.size = 0
        self._head_max = (bytes_max + 1) // 2
        self._tail_max = bytes_max // 2
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the output."""
        self.size += len(data)
        room = self._head_max - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        if len(data) >= self._tail_max:
            data = data[len(data) - self._tail_max :]
            self._tail.clear()
        self._tail += data
        # Trimmed only now and then: each byte is moved once, however small the feeds.
        if len(self._tail) > 2 * self._tail_max:
            del self._tail[: len(self._tail) - self._tail_max]

    def kept(self) -> list[memoryview]:
        """Return the head and the tail."""
        excess = max(0, len(self._tail) - self._tail_max)
        return [memoryview(self._head), memoryview(self._tail)[excess:]]
