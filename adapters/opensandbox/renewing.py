# SPDX-License-Identifier: Apache-2.0
"""Renewal: a sandbox in use is kept alive piece by piece, never beyond its limit.

A server may cap how far ahead a sandbox can be asked for, and a sandbox whose user
was killed should not live for days. So it is asked to end a lease ahead, and again
before that is over, for as long as this process uses it.
"""

import logging
import time

import anyio
import attrs

from ...ports.required.sandbox_provider import ProviderForbidden, ProviderUnreachable
from .lifecycle import Lifecycle
from .lifecycle_facts import ApiRefused

LOOKS_IN_LEASE = 4
"""How often within a lease it is renewed."""
LOOK_SECONDS_MIN = 0.2

_log = logging.getLogger(__name__)


@attrs.define
class Renewals:
    """What is renewed, and until when at the latest."""

    lifecycle: Lifecycle
    lease_seconds: float
    _limits: dict[str, float] = attrs.field(factory=dict[str, float], init=False)

    def first(self, limit: float) -> float:
        """Return when a sandbox with this limit is to end for now."""
        return min(limit, time.time() + self.lease_seconds)

    def keep(self, sandbox_id: str, limit: float) -> None:
        """Renew a sandbox from now on."""
        if self.first(limit) < limit:
            self._limits[sandbox_id] = limit

    def forget(self, sandbox_id: str) -> None:
        """Renew it no more."""
        self._limits.pop(sandbox_id, None)

    async def run(self) -> None:
        """Renew what is to be renewed, for ever."""
        while True:
            await anyio.sleep(
                max(LOOK_SECONDS_MIN, self.lease_seconds / LOOKS_IN_LEASE)
            )
            for sandbox_id, limit in list(self._limits.items()):
                await self._renew(sandbox_id, limit)

    async def _renew(self, sandbox_id: str, limit: float) -> None:
        at = self.first(limit)
        try:
            await self.lifecycle.renew(sandbox_id, at)
        except (ApiRefused, ProviderUnreachable, ProviderForbidden) as fault:
            if _is_in_vain(fault):
                # Whoever uses it is told so by its next call.
                _log.warning("%s is renewed no more: %s", sandbox_id, fault)
                self.forget(sandbox_id)
                return
            _log.warning("%s could not be renewed yet: %s", sandbox_id, fault)
        else:
            if at >= limit:
                self.forget(sandbox_id)


def _is_in_vain(fault: Exception) -> bool:
    """Whether no renewal can help: it is gone, never ends, or has its time behind it.

    Any other no (the server is busy, or broken) may be another one at the next look.
    """
    if not isinstance(fault, ApiRefused):
        return False
    return fault.tells_absence or fault.status in {400, 409}
