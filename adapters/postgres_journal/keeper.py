# SPDX-License-Identifier: Apache-2.0
"""Keeping the lease of this process, by the event loop that does its work.

A loop that stands still keeps nothing: what such a process has is not being worked at.
A database that does not answer takes no lease away; it is asked again.
"""

import asyncio
import logging
from collections.abc import Callable

import attrs

from ...ports.required.journal import JournalUnusable
from ..journals.database_thread import DatabaseThread
from .database import Link
from .leases import RENEWALS, Lease, Leases
from .reads import Read

log = logging.getLogger(__name__)


@attrs.define(kw_only=True, eq=False)
class Keeper:
    """Renews the lease, if there is one, until it is closed or the lease is lost."""

    leases: Leases
    lease: Lease | None
    reads: DatabaseThread[Link, Read, object]
    on_lost: Callable[[], None]
    _timer: asyncio.TimerHandle | None = attrs.field(default=None, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def open(self) -> None:
        """Begin to renew."""
        if self.lease is not None:
            self._wait(self.lease)

    async def aclose(self) -> None:
        """Renew no more, and give the lease back if it can be."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        lease = self.lease
        if lease is None:
            return
        try:
            await self.reads.ask(lambda link: self.leases.leave(link, lease))
        except JournalUnusable as unusable:
            log.warning("The lease of this process ends by itself: %s", unusable)

    def _wait(self, lease: Lease) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(lease.seconds / RENEWALS, self._renew, lease)

    def _renew(self, lease: Lease) -> None:
        self.reads.post(
            lambda connection: self.leases.renew(connection, lease), self._renewed
        )

    def _renewed(self, answer: object) -> None:
        lease = self.lease
        if self._closed or lease is None:
            return
        if answer is False:
            lease.lose()
        if lease.is_lost:
            log.error("%s lost its lease: others go on with what it had", lease.holder)
            self.on_lost()
            return
        if isinstance(answer, Exception):
            log.warning("The lease could not be renewed: %s", answer)
        self._wait(lease)
