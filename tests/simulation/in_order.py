# SPDX-License-Identifier: Apache-2.0
"""Tasks and scopes that are ended in the order in which they began.

anyio keeps both in sets, and a set goes by the address of what it holds: whoever is
cancelled with others would be so in another order in each run, and a seed would tell
another story. Here their numbers are their hashes.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from anyio._backends._asyncio import CancelScope


class _NumberedTask(asyncio.Task[Any]):
    def __init__(
        self, number: int, coroutine: Coroutine[Any, Any, Any], **words: Any
    ) -> None:
        self._number = number
        super().__init__(coroutine, **words)

    def __hash__(self) -> int:
        return self._number


def numbering(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of loops whose tasks are numbered."""

    def made() -> asyncio.AbstractEventLoop:
        loop, numbers = loop_factory(), itertools.count(1)

        def begin(
            loop: asyncio.AbstractEventLoop,
            coroutine: Coroutine[Any, Any, Any],
            **words: Any,
        ) -> asyncio.Task[Any]:
            return _NumberedTask(next(numbers), coroutine, loop=loop, **words)

        loop.set_task_factory(begin)  # type: ignore[arg-type]  # Of any coroutine.
        return loop

    return made


@contextmanager
def numbered_scopes() -> Generator[None]:
    """Number the scopes that begin in the block, in which no other loop runs.

    anyio has no place to ask for it: the class of its scopes on asyncio is changed
    for as long as the block.
    """
    numbers, number_of = itertools.count(1), dict[int, int]()
    begin = CancelScope.__init__

    def begin_numbered(scope: CancelScope, *words: Any, **more: Any) -> None:
        number_of[id(scope)] = next(numbers)
        begin(scope, *words, **more)

    def number(scope: CancelScope) -> int:
        return number_of[id(scope)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CancelScope, "__init__", begin_numbered)
        patch.setattr(CancelScope, "__hash__", number)
        yield
