# SPDX-License-Identifier: Apache-2.0
"""Where sandboxes are claimed: opened at the first call, closed when NeMo Gym says so.

NeMo Gym makes a provider outside of any event loop, calls it from any task, and may
never close it. So what must be entered and left in one task stays in a task of its
own, for as long as the loop runs or until it is closed; a later call opens it again.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import attrs

from ...ports.provided.claim_sandbox import ClaimSandbox
from ...ports.provided.release_claim import ReleaseClaim
from ...ports.required.clock import Ids
from ...ports.required.sandbox_provider import SandboxProvider

log = logging.getLogger(__name__)

END_SECONDS_MAX: Final = 120.0
"""How long giving back what is left may take."""
CLOSE_SECONDS_MAX: Final = END_SECONDS_MAX + 30.0


@attrs.frozen(kw_only=True, eq=False)
class Workshop:
    """What a provider for NeMo Gym works with, open."""

    provider: SandboxProvider
    claim: ClaimSandbox
    release: ReleaseClaim
    ids: Ids


EndWork = Callable[[Workshop], Awaitable[None]]
OpenWorkshop = Callable[[], AbstractAsyncContextManager[Workshop]]


@attrs.frozen(kw_only=True, eq=False)
class _Stay:
    """One stay of a workshop, in one loop."""

    loop: asyncio.AbstractEventLoop
    task: "asyncio.Task[None]"
    opened: "asyncio.Future[Workshop]"
    leave: asyncio.Event


class WorkshopKeeper:
    """Opens the workshop of the running event loop, and closes it."""

    def __init__(self, open_workshop: OpenWorkshop, end_work: EndWork) -> None:
        """Open nothing yet; `end_work` is done before the workshop is closed."""
        self._open = open_workshop
        self._end_work = end_work
        self._stay: _Stay | None = None

    async def workshop(self) -> Workshop:
        """Return the open workshop.

        Raises:
            RuntimeError: Another event loop, which still runs, has it open.
            Fault: It could not be opened.
        """
        loop = asyncio.get_running_loop()
        stay = self._stay
        if stay is not None and stay.loop is not loop and stay.loop.is_running():
            raise RuntimeError(
                "This sandbox provider is in use by another event loop: make one for"
                " each loop"
            )
        if stay is None or stay.loop is not loop or stay.task.done():
            opened: asyncio.Future[Workshop] = loop.create_future()
            leave = asyncio.Event()
            # A context of its own: what the first caller is doing is not what for.
            task = loop.create_task(
                self._keep(opened, leave), context=contextvars.Context()
            )
            stay = _Stay(loop=loop, task=task, opened=opened, leave=leave)
            self._stay = stay
        return await asyncio.shield(stay.opened)

    def has_open(self, workshop: Workshop) -> bool:
        """Return whether it is this one that is open in the running loop."""
        stay = self._stay
        return (
            stay is not None
            and stay.loop is asyncio.get_running_loop()
            and stay.opened.done()
            and not stay.opened.cancelled()
            and stay.opened.exception() is None
            and stay.opened.result() is workshop
        )

    async def aclose(self) -> None:
        """Close the workshop of this loop, if it is open."""
        stay = self._stay
        if stay is None or stay.loop is not asyncio.get_running_loop():
            return
        self._stay = None
        stay.leave.set()
        with anyio.move_on_after(CLOSE_SECONDS_MAX, shield=True):
            await asyncio.wait([stay.task])
        if not stay.task.done():
            log.error("A sandbox provider did not close in %g s", CLOSE_SECONDS_MAX)

    async def _keep(
        self, opened: "asyncio.Future[Workshop]", leave: asyncio.Event
    ) -> None:
        try:
            async with self._open() as workshop:
                if not opened.done():
                    opened.set_result(workshop)
                try:
                    await leave.wait()
                finally:
                    # Also when the loop ends: it cancels what nobody closed.
                    with anyio.move_on_after(END_SECONDS_MAX, shield=True):
                        await self._end_work(workshop)
        except asyncio.CancelledError:
            opened.cancel()  # Without effect where it was opened: the loop just ends.
            raise
        except BaseException as error:
            if opened.done():
                log.error("A sandbox provider ended: %s", error)
            else:
                opened.set_exception(error)
                return
            if not isinstance(error, Exception):
                raise
