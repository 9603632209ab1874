# SPDX-License-Identifier: Apache-2.0
"""Lent uses: a lent sandbox serves one session, whichever worker asks first.

A use is written down before the sandbox is reached, and taken back when its session is
over. A session whose worker died in between has left its use behind: whoever is refused
because of it looks whether that session is over, and goes on.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from ...domain.agent_sessions import AgentSession, AgentSessionId, SandboxInUse
from ...domain.lent_sandboxes import (
    DECIDER,
    BeginUse,
    EndUse,
    LentSandbox,
)
from ..required.clock import Clock
from ..required.journal import Journal, StreamMoved, lent_sandbox_stream
from .carry_out import ATTEMPTS_MAX, Standing, carry_out, read_state
from .session_grants import SessionGrant, from_text

_FREE: Final = Standing(DECIDER.initial, 0)

Use = Standing[LentSandbox]
"""What was known of a sandbox when its use began."""


@attrs.frozen(kw_only=True)
class LentUses:
    """The use case, over the sessions of all workers."""

    journal: Journal
    clock: Clock
    session: Callable[[AgentSessionId], Awaitable[Standing[AgentSession]]]
    """What the journal knows of a session."""

    async def begin(self, session: AgentSessionId, grant: SessionGrant) -> Use | None:
        """Have the lent sandbox serve the session; None where none was lent.

        Raises:
            SandboxInUse: It serves another one, and not both asked to share it.
            Fault: The journal's.
        """
        lent, digest = grant.lent, grant.sandbox_digest
        if lent is None or digest is None:
            return None
        begin = BeginUse(
            session=session,
            shares=grant.shares,
            provider=lent.provider,
            sandbox=lent.descriptor.get("sandbox_id")
            or json.dumps(dict(lent.descriptor)),
            at=self.clock.now(),
        )
        stream = lent_sandbox_stream(digest)
        known: Use | None = _FREE
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await carry_out(
                    self.journal, stream, DECIDER, begin, known=known
                )
            except SandboxInUse as refused:
                if attempt == ATTEMPTS_MAX or not await self._is_over(refused, grant):
                    raise
                await self.end(refused.session, grant)
                known = None
        raise AssertionError("the loop returns or raises")

    async def end(
        self, session: AgentSessionId, grant: SessionGrant, known: Use | None = None
    ) -> None:
        """Have the lent sandbox serve the session no more; once is as good as twice.

        `known` is what `begin` returned, where this process has it.

        Raises:
            Fault: The journal's.
        """
        digest = grant.sandbox_digest
        if digest is None:
            return
        stream = lent_sandbox_stream(digest)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            known = known or await read_state(self.journal, stream, DECIDER)
            if session not in known.state.users:
                return
            try:
                if len(known.state.users) > 1:
                    end = EndUse(session=session, at=self.clock.now())
                    await carry_out(
                        self.journal,
                        stream,
                        DECIDER,
                        end,
                        known=known,
                        attempts_max=1,
                    )
                else:
                    await self.journal.forget(stream, expected_version=known.version)
            except StreamMoved:
                if attempt == ATTEMPTS_MAX:
                    raise
                known = None
            else:
                return

    async def _is_over(self, refused: SandboxInUse, grant: SessionGrant) -> bool:
        """Tell whether the session that is there uses the sandbox no more."""
        state = (await self.session(refused.session)).state
        if state.seeded is None or state.closed is not None:
            return True
        theirs = from_text(state.seeded.grant)
        # Its name may be that of a later session, which has another sandbox.
        return theirs is None or theirs.sandbox_digest != grant.sandbox_digest
