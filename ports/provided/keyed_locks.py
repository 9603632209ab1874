# SPDX-License-Identifier: Apache-2.0
"""Locks by key, which live as long as somebody holds or awaits them.

First come, first served. A key that nobody uses any more leaves nothing behind, and
one that somebody waits for keeps its lock, so two never hold the same key.
"""

from collections import deque
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager

import anyio
import attrs

_Waiting = deque[anyio.Event]
"""The turns of those who wait for a key that somebody holds, in order."""


@attrs.frozen
class KeyedLocks:
    """The locks of one process."""

    _held: dict[Hashable, _Waiting] = attrs.field(
        factory=dict[Hashable, _Waiting], init=False
    )

    def __len__(self) -> int:
        """Return how many keys are in use."""
        return len(self._held)

    def users(self, key: Hashable) -> int:
        """Return how many hold or await the key's lock."""
        waiting = self._held.get(key)
        return 0 if waiting is None else 1 + len(waiting)

    def holding(self, key: Hashable) -> AbstractAsyncContextManager[None]:
        """Hold the key's lock inside the block."""
        return _Holding(self._held, key)


@attrs.frozen(eq=False)
class _Holding(AbstractAsyncContextManager[None]):
    """A class, and no generator: it is entered several times in an episode."""

    held: dict[Hashable, _Waiting]
    key: Hashable

    async def __aenter__(self) -> None:
        waiting = self.held.get(self.key)
        if waiting is None:
            self.held[self.key] = deque()
            return
        turn = anyio.Event()
        waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():  # It came at the same moment, and is for the next one.
                self._pass_on()
            else:
                waiting.remove(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        if waiting := self.held[self.key]:
            waiting.popleft().set()
        else:
            del self.held[self.key]
