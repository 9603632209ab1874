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
_Held = dict[Hashable, _Waiting | None]
"""The keys that somebody holds; None: nobody has waited, as nearly always."""


@attrs.frozen
class KeyedLocks:
    """The locks of one process."""

    _held: _Held = attrs.field(factory=dict[Hashable, _Waiting | None], init=False)

    def __len__(self) -> int:
        """Return how many keys are in use."""
        return len(self._held)

    def users(self, key: Hashable) -> int:
        """Return how many hold or await the key's lock."""
        return 1 + len(self._held[key] or ()) if key in self._held else 0

    def holding(self, key: Hashable) -> AbstractAsyncContextManager[None]:
        """Hold the key's lock inside the block."""
        return _Holding(self._held, key)


@attrs.frozen(eq=False)
class _Holding(AbstractAsyncContextManager[None]):
    """A class, and no generator: it is entered several times in an episode."""

    held: _Held
    key: Hashable

    async def __aenter__(self) -> None:
        if self.key not in self.held:
            self.held[self.key] = None
            return
        waiting = self.held[self.key]
        if waiting is None:
            waiting = self.held[self.key] = deque()
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
