# SPDX-License-Identifier: Apache-2.0
"""The two ends of an output that is passed on whole: what an answer is read from."""

from collections import deque
from collections.abc import AsyncIterator

import attrs


@attrs.define(kw_only=True)
class OutputEnds:
    """The first and the last bytes of what passed through."""

    bytes_max: int
    """How much is held, half of it from each end."""
    head: bytearray = attrs.field(factory=bytearray, init=False)
    size: int = attrs.field(default=0, init=False)
    _tail: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    _tail_size: int = attrs.field(default=0, init=False)

    async def through(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield what `chunks` yields."""
        half = self.bytes_max // 2
        async for chunk in chunks:
            self.size += len(chunk)
            room = half - len(self.head)
            self.head += chunk[:room]
            rest = chunk[max(room, 0) :]
            if rest:
                self._tail.append(rest)
                self._tail_size += len(rest)
                while self._tail_size - len(self._tail[0]) >= half:
                    self._tail_size -= len(self._tail.popleft())
            yield chunk

    def last(self) -> bytes:
        """Return the last bytes that are not in `head`."""
        return b"".join(self._tail)[-(self.bytes_max // 2) :]
