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


@attrs.define(eq=False)
class _Lock:
    """A key that somebody holds."""

    users: int = 1
    waiting: deque[anyio.Event] | None = None
    """The turns of those who wait, in order; None: nobody ever did."""

    def pass_on(self) -> bool:
        """Let the next one have it; tell whether there is one."""
        self.users -= 1
        if not self.waiting:
            return False
        self.waiting.popleft().set()
        return True


@attrs.frozen
class KeyedLocks:
    """The locks of one process."""

    _locks: dict[Hashable, _Lock] = attrs.field(
        factory=dict[Hashable, _Lock], init=False
    )

    def __len__(self) -> int:
        """Return how many keys are in use."""
        return len(self._locks)

    def users(self, key: Hashable) -> int:
        """Return how many hold or await the key's lock."""
        kept = self._locks.get(key)
        return 0 if kept is None else kept.users

    def holding(self, key: Hashable) -> AbstractAsyncContextManager[None]:
        """Hold the key's lock inside the block."""
        return _Holding(self._locks, key)


@attrs.frozen(eq=False)
class _Holding(AbstractAsyncContextManager[None]):
    """A class, and no generator: it is entered several times in an episode."""

    locks: dict[Hashable, _Lock]
    key: Hashable

    async def __aenter__(self) -> None:
        lock = self.locks.get(self.key)
        if lock is None:
            self.locks[self.key] = _Lock()
            return
        turn = anyio.Event()
        lock.users += 1
        if lock.waiting is None:
            lock.waiting = deque()
        lock.waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():  # It came at the same moment, and is for the next one.
                await self.__aexit__()
            else:
                lock.waiting.remove(turn)
                lock.users -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        if not self.locks[self.key].pass_on():
            del self.locks[self.key]
