# SPDX-License-Identifier: Apache-2.0
"""Give back what a resources session holds: its sandbox, its graders', its relay."""

from collections.abc import Callable

import attrs

from ...domain.activations import Outcome, Stillness
from ...domain.claims import ClaimId, OwnerId
from ...domain.resources_sessions import ResourcesSession, ResourcesSessionId
from ...domain.tasks import Task
from ..required.faults import Fault
from ..required.participants import Turn
from ..required.sandbox_provider import ClaimLabel
from .carry_out import Standing
from .grade_work import GRADER_CLAIMS_MAX, grader_claim
from .open_resources import Equip, OpenResources, claim_of
from .release_claim import ReleaseClaim
from .stop_processes import StopProcesses


@attrs.frozen(kw_only=True)
class GiveBackResources:
    """The use case, for one owner of claims."""

    owner: OwnerId
    release: ReleaseClaim
    equip: Equip | None
    stop: StopProcesses | None
    looks_inside: Callable[[Task], bool]
    """Whether a task is judged by what its sandbox holds."""

    async def still(
        self,
        session: ResourcesSessionId,
        task: Task,
        opened: OpenResources,
        turn: Turn,
        stillness: Stillness | None,
    ) -> Stillness | None:
        """Return why nothing of the agent can write any more, making it so if need be."""
        if not self.looks_inside(task):
            # Nothing in the sandbox is graded, so it goes, with whatever runs in it.
            await self.sandbox(session, opened, "what is graded is not in it")
            return Stillness.SANDBOX_GONE
        if stillness is None and opened.sandbox is not None and self.stop is not None:
            stillness = await self.stop(opened.sandbox)
            if stillness is None:
                await self.sandbox(session, opened, "what ran in it did not end")
                return Stillness.SANDBOX_GONE
        if stillness is None and turn.outcome is Outcome.FAILED:
            # The agent ended what watched it, so what it left running is ended the
            # only sure way. Its work goes with it, and that is its own doing.
            await self.sandbox(session, opened, "the agent ended what supervised it")
            return Stillness.SANDBOX_GONE
        return stillness

    def owes_nothing(self, opened: OpenResources) -> bool:
        """Tell whether no sandbox was ever made for the session, nor is being made."""
        state = opened.standing.state
        is_graded = state.verification is None or state.verdict is not None
        return opened.held is None and _lends_nothing(state) and is_graded

    async def sandbox(
        self, session: ResourcesSessionId, opened: OpenResources, reason: str
    ) -> None:
        """Release the sandbox that the session lends."""
        known = None
        await self.let_go(session)
        if opened.held is not None:
            await opened.held.sandbox.disconnect()
            known = opened.held.standing
        elif _lends_nothing(opened.standing.state):
            return
        claim = claim_of(session, opened.standing.state)
        label = ClaimLabel(claim=claim, owner=self.owner)
        await self.release(label, reason=reason, known=known)
        opened.held = None

    async def everything(
        self,
        session: ResourcesSessionId,
        opened: OpenResources,
        standing: Standing[ResourcesSession],
    ) -> None:
        """Release every sandbox of the session.

        Raises:
            Fault: One is not seen gone.
        """
        await self.let_go(session)
        if opened.held is not None:
            await opened.held.sandbox.disconnect()
        claims: list[ClaimId] = []
        if not _lends_nothing(standing.state):
            claims.append(claim_of(session, standing.state))
        if standing.state.verification is not None and standing.state.verdict is None:
            # A grader's claim is released by whoever graded, unless that was cut off.
            claims += [grader_claim(str(session), n) for n in range(GRADER_CLAIMS_MAX)]
        failure: Fault | None = None
        for claim in claims:
            label = ClaimLabel(claim=claim, owner=self.owner)
            known = None
            if opened.held is not None and opened.held.label == label:
                known = opened.held.standing
            try:
                await self.release(label, reason="the episode is over", known=known)
            except Fault as fault:
                failure = failure or fault
        if failure is not None:
            raise failure

    async def let_go(self, session: ResourcesSessionId) -> None:
        """Let go of what is kept for the session beside its sandboxes."""
        if self.equip is not None:
            await self.equip.let_go(session)


def _lends_nothing(state: ResourcesSession) -> bool:
    """Whether the session was built without a sandbox, so that there is no claim."""
    return state.world_built and state.claim is None
