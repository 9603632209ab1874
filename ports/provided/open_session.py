# SPDX-License-Identifier: Apache-2.0
"""What a process holds of one open agent session, beside what the journal knows."""

import anyio
import attrs

from ...domain.agent_sessions import AgentSession, SeedStarted
from ...domain.digests import RequestDigest
from ..required.sandbox import Sandbox
from .activate_harness import Equipment
from .carry_out import Standing
from .latch import Latch
from .lent_uses import Use
from .session_grants import SessionGrant


@attrs.define(eq=False)
class OpenSession:
    """An open session, in this process."""

    standing: Standing[AgentSession]
    seeded: SeedStarted
    grant: SessionGrant
    sandbox: Sandbox | None = None
    lent_use: Use | None = None
    """How its use of a lent sandbox stood when it began here."""
    equipment: Equipment = attrs.field(factory=Equipment)
    reached: Latch = attrs.field(factory=Latch)
    """Set when its setup here is over, whether it came to something or not."""
    running: RequestDigest | None = None
    """The request that a task of this process is running."""
    scope: anyio.CancelScope | None = None
    """Cancels what is under way here: the setup, or the activation."""
    ended: Latch = attrs.field(factory=Latch)
    """Set when the activation that runs here has its ending."""

    def learned(self, standing: Standing[AgentSession]) -> None:
        """Keep what is newer."""
        if standing.version > self.standing.version:
            self.standing = standing

    async def stop_run(self) -> None:
        """Cancel what runs here, if anything does, and wait for its ending."""
        if self.running is not None:
            self.cancel()
            await self.ended.wait()

    def cancel(self) -> None:
        """Cancel what is under way here, if anything is."""
        if self.scope is not None:
            self.scope.cancel()

    async def let_go(self) -> None:
        """Let go of the sandbox, without ending it."""
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.disconnect()
