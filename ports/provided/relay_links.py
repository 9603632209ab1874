# SPDX-License-Identifier: Apache-2.0
"""One connection that a relay carries: its two directions and their windows.

What the sandbox sent waits in a bounded buffer until the far end takes it; what
the far end sends waits in its own socket until the sandbox gave credit for it.
"""

from collections import deque

import anyio
import attrs

from ..required.sandbox_streams import DuplexStream
from .worker_frames import FramesBroken

PIECE_BYTES = 64 * 1024
"""The most bytes of one connection that go in one frame."""
WINDOW_BYTES = 4 * PIECE_BYTES
"""How much of one connection and direction may be under way without a credit."""


@attrs.define(eq=False)
class Link:
    """A connection of the sandbox, under the number that the relay gave it."""

    number: int
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    """Cancelled when the other end of it is gone."""
    _held: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    _held_bytes: int = attrs.field(default=0, init=False)
    _is_ended: bool = attrs.field(default=False, init=False)
    _credit: int = attrs.field(default=WINDOW_BYTES, init=False)
    _moved: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def take_chunk(self, piece: bytes) -> None:
        """Hold what the sandbox sent.

        Raises:
            FramesBroken: It sent more than its window.
        """
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > WINDOW_BYTES:
            raise FramesBroken("the relay keeps to no window")
        self._move()

    def take_end(self) -> None:
        """Note that the sandbox sends no more."""
        self._is_ended = True
        self._move()

    def take_credit(self, size: int) -> None:
        """Note that the sandbox took so many bytes."""
        self._credit += size
        self._move()

    async def next_piece(self) -> bytes:
        """Return what the sandbox sent next; empty at its end."""
        while not self._held:
            if self._is_ended:
                return b""
            await self._moved.wait()
        piece = self._held.popleft()
        self._held_bytes -= len(piece)
        return piece

    async def spend(self, far: DuplexStream) -> bytes:
        """Return what the far end sends next, once there is credit for it."""
        while self._credit <= 0:
            await self._moved.wait()
        piece = await far.receive()
        self._credit -= len(piece)
        return piece

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()
