# SPDX-License-Identifier: Apache-2.0
"""Calls that outlive their callers, and that equal callers share.

Work is carried out once for a key, however many ask at the same time. A caller that
goes away does not end it; it is cancelled only when it may not be left alone for
longer, and nobody has come back by then.

Each call is a task of asyncio's own, which costs a fifth of one in anyio's group: there
are seven in an episode. What the group would see to is seen to here: who is cancelled is
so by a scope, which lets shielded work end, and none is left when the calls end.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar, cast

import anyio
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
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    done: asyncio.Event = attrs.field(factory=asyncio.Event)
    result: tuple[T] | None = None
    error: BaseException | None = None
    callers: int = 0
    visits: int = 0
    """How often somebody came; tells who left last."""


@attrs.frozen
class _Lingers:
    """When it is cancelled, unless somebody has come back in time."""

    seconds: float
    wanted: Wanted


@asynccontextmanager
async def open_shared_calls() -> AsyncGenerator["SharedCalls"]:
    """Have calls inside the block; on leaving, what is under way is cancelled."""
    calls = SharedCalls()
    try:
        yield calls
    finally:
        with anyio.CancelScope(shield=True):
            await calls.end()


@attrs.define(eq=False)
class SharedCalls:
    """The calls under way; `open_shared_calls` ends them."""

    _calls: dict[Hashable, _Call[object]] = attrs.field(
        factory=dict[Hashable, _Call[object]], init=False
    )
    _tasks: set[asyncio.Task[None]] = attrs.field(
        factory=set[asyncio.Task[None]], init=False
    )
    _over: bool = attrs.field(default=False, init=False)

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
            BaseException: What it raises; to all who wait.
            RuntimeError: The calls were ended.
        """
        while True:
            call = cast("_Call[T] | None", self._calls.get(key))
            if call is None:
                if self._over:
                    raise RuntimeError(
                        "nothing is begun any more: the calls were ended"
                    )
                lingers = None
                if linger_seconds is not None:
                    lingers = _Lingers(linger_seconds, wanted)
                made: _Call[T] = _Call(lingers)  # `_Call[T]()` costs twice.
                call = made
                self._calls[key] = cast("_Call[object]", call)
                self._begin(self._carry(key, call, work))
            await self._attended(call)
            if call.error is not None:
                raise call.error
            if call.result is not None:
                return call.result[0]
            # It was given up just when we came: what is left to do is begun anew.

    async def end(self) -> None:
        """Begin no more, cancel what is under way, and wait until it has ended."""
        self._over = True
        for call in self._calls.values():
            call.scope.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A call ended by what no call should raise", exc_info=error)

    async def _attended(self, call: _Call[T]) -> None:
        call.callers += 1
        call.visits += 1
        try:
            await call.done.wait()
        finally:
            call.callers -= 1
            left = not call.callers and not call.done.is_set()
            if left and call.lingers is not None:
                self._begin(self._linger(call, call.lingers, call.visits))

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
            call.scope.cancel()

    async def _carry(self, key: Hashable, call: _Call[T], work: Work[T]) -> None:
        try:
            with call.scope:
                call.result = (await work(),)
        except asyncio.CancelledError:
            raise  # The loop ends, with all who wait.
        except Exception as error:
            call.error = error
        except BaseException as error:
            call.error = error
            raise
        finally:
            del self._calls[key]
            call.done.set()
