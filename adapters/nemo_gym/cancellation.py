# SPDX-License-Identifier: Apache-2.0
"""Calls from a host that cancels as asyncio does, carried out as anyio wants.

asyncio throws a cancellation once, wherever the task happens to wait, also where
anyio's shields stand; a second one would cut the clean-up short. So the work has a
task of its own, and the caller stays until it is over.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def carried_out(
    work: Callable[[], Awaitable[T]], *, to_its_end: bool = False
) -> T:
    """Return what `work` returns; one that is cancelled cleans up before this ends.

    With `to_its_end` the work is not cancelled with its caller: it has a bound of
    its own.
    """
    scope = anyio.CancelScope()

    async def inner() -> T:
        with scope:
            return await work()
        raise asyncio.CancelledError

    task = asyncio.get_running_loop().create_task(inner())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            if not to_its_end:
                scope.cancel()
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # Looked at: the caller has gone.
        raise cancelled
    return task.result()
