# SPDX-License-Identifier: Apache-2.0
"""What a session's harness is given beside its sandbox: a program, a way to a model."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ...domain.agent_sessions import AgentSessionId, SeedStarted
from ..required.sandbox import Sandbox
from .activate_harness import Equipment
from .session_grants import SessionGrant


class Outfit(Protocol):
    """Brings a session what its harness needs, and takes it back."""

    async def bring(
        self, seeded: SeedStarted, grant: SessionGrant, sandbox: Sandbox | None
    ) -> Equipment:
        """Return what the session has now; the same when it is asked again.

        Raises:
            Refusal, Fault: The session cannot work; its seed is refused.
        """
        ...

    def reach(
        self,
        seeded: SeedStarted,
        grant: SessionGrant,
        sandbox: Sandbox | None,
        equipment: Equipment,
        *,
        model_prefix: str,
    ) -> AbstractAsyncContextManager[Equipment]:
        """Keep in reach of the sandbox, while a run goes on, what is not in it.

        It yields the equipment as the sandbox reaches it, the same after a restart.

        Raises:
            Fault: The sandbox reaches nothing.
        """
        ...

    async def take_back(self, session: AgentSessionId) -> None:
        """End what was granted to the session; nothing happens the second time."""
        ...
