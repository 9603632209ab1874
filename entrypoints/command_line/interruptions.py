# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM: once stops in order, twice ends at once.

A terminal that is closed stops in order as well. It may say so several times, so that
alone ends nothing at once.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.abc
import attrs

from .shared import Status

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
FIRST: Final = (
    "Stopping: nothing more is begun, what runs is ended, every sandbox is given back."
    " Once more ends at once."
)
SECOND: Final = (
    "Ended at once. Sandboxes may be left: `livery claims reap` gives them back, and"
    " each ends itself at its expiry where the provider can do that."
)


@attrs.define
class Interruptions:
    """What the signals do; `stop` is the orderly end of what is going on."""

    say: Callable[[str], None]
    stop: Callable[[], None]
    stopped: bool = False

    async def watch(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Watch for signals until cancelled."""
        with anyio.open_signal_receiver(*_heeded()) as signals:
            task_status.started()
            async for number in signals:
                if self.stopped and number == signal.SIGHUP:
                    continue
                if self.stopped:
                    self.say(SECOND)
                    os._exit(Status.KILLED)
                self.stopped = True
                self.say(FIRST)
                self.stop()


def _heeded() -> tuple[signal.Signals, ...]:
    """Return what is heeded; what nohup began is to outlast its terminal."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return SIGNALS
    return (*SIGNALS, signal.SIGHUP)


async def until_stopped(
    work: Callable[[Interruptions], Awaitable[int]], say: Callable[[str], None]
) -> int | None:
    """Return what `work` returns; None when a signal stopped it.

    Signals are heeded until the work has cleaned up: a second one ends it at once.
    """
    status: int | None = None
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            signals = Interruptions(say=say, stop=scope.cancel)
            await group.start(signals.watch)
            status = await work(signals)
        group.cancel_scope.cancel()
    return status
