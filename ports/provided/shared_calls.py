# SPDX-License-Identifier: Apache-2.0
"""Calls that outlive their callers, and that equal callers share.

Work is carried out once for a key, however many ask at the same time. A caller that
goes away does not end it; it is cancelled only when it may not be left alone for
longer, and nobody has come back by then.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import nullcontext
from typing import Generic, TypeVar, cast

import anyio
import anyio.abc
import attrs

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]
Wanted = Callable[[], Awaitable[bool]]


async def _unwanted() -> bool:
    return False


@attrs.define(eq=False)
class _Call(Generic[T]):
    """Work under way."""

    lingers: "_Lingers | None"
    """How it ends without a caller; None: it goes on to its end."""
    done: anyio.Event = attrs.field(factory=anyio.Event)
    result: tuple[T] | None = None
    error: Exception | None = None
    callers: int = 0
    visits: int = 0
    """How often somebody came; tells who left last."""


@attrs.frozen
class _Lingers:
    """What is cancelled when nobody has come back in time."""

    seconds: float
    wanted: Wanted
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)


@attrs.frozen
class SharedCalls:
    """The calls under way; the work runs in `group`."""

    group: anyio.abc.TaskGroup
    _calls: dict[Hashable, _Call[object]] = attrs.field(
        factory=dict[Hashable, _Call[object]], init=False
    )

    def under_way(self, key: Hashable) -> bool:
        """Whether somebody asked for that and it is not over."""
        return key in self._calls

    async def __call__(
        self,
        key: Hashable,
        work: Work[T],
        *,
        linger_seconds: float | None,
        wanted: Wanted = _unwanted,
    ) -> T:
        """Return what `work` comes to, begun now or when an equal caller came.

        `wanted` tells whether somebody waits for it who is no caller here.

        Raises:
            Exception: What it raises; to all who wait.
        """
        while True:
            call = cast("_Call[T] | None", self._calls.get(key))
            if call is None:
                lingers = None
                if linger_seconds is not None:
                    lingers = _Lingers(linger_seconds, wanted)
                made: _Call[T] = _Call(lingers)  # `_Call[T]()` costs twice.
                call = made
                self._calls[key] = cast("_Call[object]", call)
                self.group.start_soon(self._carry, key, call, work)
            await self._attended(call)
            if call.error is not None:
                raise call.error
            if call.result is not None:
                return call.result[0]
            # It was given up just when we came: what is left to do is begun anew.

    async def _attended(self, call: _Call[T]) -> None:
        call.callers += 1
        call.visits += 1
        try:
            await call.done.wait()
        finally:
            call.callers -= 1
            left = not call.callers and not call.done.is_set()
            if left and call.lingers is not None:
                self.group.start_soon(self._linger, call, call.lingers, call.visits)

    async def _linger(self, call: _Call[T], lingers: _Lingers, visits: int) -> None:
        while True:
            with anyio.move_on_after(lingers.seconds):
                await call.done.wait()
            if call.visits != visits or call.done.is_set():
                return
            if not await lingers.wanted():
                break
        # Who came while that was asked is not left alone.
        if call.visits == visits and not call.done.is_set():
            log.warning("Nobody asked for it any more: what runs is cancelled")
            lingers.scope.cancel()

    async def _carry(self, key: Hashable, call: _Call[T], work: Work[T]) -> None:
        try:
            # Without a scope where nobody cancels it: most of an episode's calls.
            with nullcontext() if call.lingers is None else call.lingers.scope:
                call.result = (await work(),)
        except Exception as error:
            call.error = error
        finally:
            del self._calls[key]
            call.done.set()
