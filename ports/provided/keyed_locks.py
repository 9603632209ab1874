# SPDX-License-Identifier: Apache-2.0
"""Locks by key, which live as long as somebody holds or awaits them.

First come, first served. A key that nobody uses any more leaves nothing behind, and
one that somebody waits for keeps its lock, so two never hold the same key.
"""

from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

import anyio
import attrs


@attrs.define(eq=False)
class _Lock:
    lock: anyio.Lock = attrs.field(factory=lambda: anyio.Lock(fast_acquire=True))
    users: int = 0


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

    @asynccontextmanager
    async def holding(self, key: Hashable) -> AsyncGenerator[None]:
        """Hold the key's lock inside the block."""
        kept = self._locks.setdefault(key, _Lock())
        kept.users += 1
        try:
            async with kept.lock:
                yield
        finally:
            kept.users -= 1
            if not kept.users:
                del self._locks[key]
