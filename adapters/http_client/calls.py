# SPDX-License-Identifier: Apache-2.0
"""Calls of one client that are under way: none outlives it.

A pool that is closed while a call opens a connection does not know of that one, and
nobody closes it. So calls are ended, and seen ended, before their client is closed;
a later one is refused.
"""

from collections.abc import Generator
from contextlib import contextmanager

import anyio
import attrs

from .retries import Delivery


@attrs.frozen
class ClientClosed(Exception):
    """The client was closed before the answer came."""

    delivery: Delivery

    def __str__(self) -> str:
        return "its client is closed"


class Calls:
    """The calls of a client."""

    def __init__(self) -> None:
        """Nothing is under way yet."""
        self._under_way: set[anyio.CancelScope] = set()
        self._is_over = False
        self._ended = anyio.Event()

    @contextmanager
    def one(self) -> Generator[None]:
        """Make a call in the block, which the end of the client ends.

        Raises:
            ClientClosed: The client was closed, before or meanwhile.
        """
        if self._is_over:
            raise ClientClosed(Delivery.NOT_SENT)
        with anyio.CancelScope() as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.remove(scope)
                if not self._under_way:
                    self._ended.set()
        if scope.cancelled_caught:
            raise ClientClosed(Delivery.POSSIBLY_DELIVERED)

    async def end(self) -> None:
        """End the calls that are under way, and wait until they have; begin no other."""
        self._is_over = True
        if self._under_way:
            self._ended = anyio.Event()
            for scope in self._under_way:
                scope.cancel()
            await self._ended.wait()
