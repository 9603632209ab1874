# SPDX-License-Identifier: Apache-2.0
"""One call of the exec channel: what came for it so far, and who waits for more.

asked → (opened) → over, by an answer, a failure or the end of the channel. The
reader of the channel feeds it; a single task waits for it.
"""

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

import anyio
import attrs

from ..required.faults import Fault
from .worker_faults import ChannelEnded, WorkerFailed
from .worker_frames import FramesBroken

Words = dict[str, object]


@attrs.define(kw_only=True, eq=False)
class Call:
    """What is known of one call."""

    number: int
    operation: str
    to_fault: Callable[[Words], Fault]
    bytes_max: int
    """How much content may be held here; more breaks the rules of the frames."""
    credit: int
    """How much content may be sent."""
    is_asked: bool = False
    is_opened: bool = False
    _chunks: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    _held: int = attrs.field(default=0, init=False)
    _answer: Words | None = attrs.field(default=None, init=False)
    _fault: Fault | None = attrs.field(default=None, init=False)
    _changed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes for the call."""
        return self._answer is not None or self._fault is not None

    async def until(self, is_so: Callable[[], bool], *, seconds: float) -> None:
        """Wait until `is_so`, which what comes for the call makes true.

        Raises:
            WorkerFailed: It took longer than `seconds`.
        """
        with anyio.move_on_after(seconds):
            while not is_so():
                self._changed = anyio.Event()
                await self._changed.wait()
        if not is_so():
            raise WorkerFailed(self.operation, f"no answer came for {seconds:g} s")

    async def answered(self, *, seconds: float) -> Words:
        """Return the answer; raise the failure that came instead."""
        await self.until(lambda: self.is_over, seconds=seconds)
        if self._answer is None:
            assert self._fault is not None
            raise self._fault
        return self._answer

    def content(self) -> bytes:
        """Return what came as content and was not taken yet."""
        found = b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        return found

    async def next_chunk(self, *, seconds: float) -> bytes:
        """Return the next piece of content; empty when the call has its answer."""
        await self.until(lambda: bool(self._chunks) or self.is_over, seconds=seconds)
        if self._chunks:
            chunk = self._chunks.popleft()
            self._held -= len(chunk)
            return chunk
        await self.answered(seconds=0.0)
        return b""

    def take_chunk(self, chunk: bytes) -> None:
        """Keep content that came."""
        self._held += len(chunk)
        if self._held > self.bytes_max:
            raise FramesBroken("it sent more than was asked for")
        self._chunks.append(chunk)
        self._changed.set()

    def take_credit(self, size: int) -> None:
        """Note that more may be sent."""
        self.credit += size
        self._changed.set()

    def take_opened(self) -> None:
        """Note that the file was opened."""
        self.is_opened = True
        self._changed.set()

    def take_answer(self, words: Words) -> None:
        """Keep the answer."""
        self._answer = words
        self._changed.set()

    def take_failure(self, words: Words) -> None:
        """Keep the failure."""
        self._fault = self.to_fault(words)
        self._changed.set()

    def take_end(self, reason: str) -> None:
        """Note that the channel ended; what was answered stays answered."""
        if not self.is_over:
            self._fault = ChannelEnded(reason)
        self._changed.set()


class Chunks:
    """The content of a file, each piece paid for with a credit once it was taken."""

    def __init__(
        self,
        call: Call,
        give_credit: Callable[[Call, int], Awaitable[None]],
        *,
        seconds: float,
    ) -> None:
        """Read what comes for `call`, which may take `seconds` a piece."""
        self._call = call
        self._give_credit = give_credit
        self._seconds = seconds

    def __aiter__(self) -> "Chunks":
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._call.next_chunk(seconds=self._seconds)
        if not chunk:
            raise StopAsyncIteration
        if not self._call.is_over:
            await self._give_credit(self._call, len(chunk))
        return chunk


async def in_pieces(
    chunks: AsyncIterable[bytes], size_max: int
) -> AsyncIterator[bytes]:
    """Yield the bytes of `chunks` in pieces of `size_max`, the last one shorter."""
    held = bytearray()
    async for chunk in chunks:
        view = memoryview(chunk)
        while view:
            room = size_max - len(held)
            held += view[:room]
            view = view[room:]
            if len(held) == size_max:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)
