# SPDX-License-Identifier: Apache-2.0
"""Build what a resources session is of: its apps, and the sandbox that it lends."""

from collections.abc import Callable

import attrs

from ...domain.claims import Borrower, ClaimNotUsable
from ...domain.resources_sessions import (
    ResourcesPhase,
    ResourcesSession,
    ResourcesSessionId,
)
from ...domain.tasks import EpisodeId, Task
from ..required.sandbox_provider import SandboxSpec
from ..required.world import World
from .call_apps import state_after
from .carry_out import Standing
from .claim_sandbox import ClaimSandbox, HeldSandbox, given_back
from .open_resources import Equip, OpenResources, claim_of, episode_of
from .place_files import place_files
from .session_apps import SessionApps


@attrs.frozen(kw_only=True)
class BuildResources:
    """The use case, for one world and one sandbox provider."""

    world: World
    configured: SandboxSpec
    claim: ClaimSandbox
    apps: SessionApps | None
    equip: Equip | None
    lends: bool
    check: Callable[[], None]

    async def __call__(
        self,
        session: ResourcesSessionId,
        episode: EpisodeId,
        task: Task,
        opened: OpenResources,
        standing: Standing[ResourcesSession],
    ) -> None:
        """Build what is missing of `opened`.

        Raises:
            Refusal, Fault: It could not be built; `opened` has what was.
        """
        seeding = standing.state.phase is ResourcesPhase.SEEDING
        if self.apps is not None and seeding:
            opened.opened = await self.apps.build(session, task)
            opened.state = await state_after(opened.opened)
        spec = self.spec(task)
        if spec is not None and opened.held is None:
            self.check()
            opened.held = await self.hold(session, episode, spec, standing)
        if seeding and opened.held is not None:
            sandbox = opened.held.sandbox
            if self.equip is not None:
                await self.equip(session, sandbox, opened.opened)
            # What the task brings goes over what every sandbox has.
            await place_files(sandbox, self.world.files(task))

    async def again(
        self,
        session: ResourcesSessionId,
        task: Task,
        opened: OpenResources,
    ) -> None:
        """Reach the sandbox that another process lent, if the session has one.

        Raises:
            Refusal, Fault: It cannot be reached.
        """
        state = opened.standing.state
        spec = self.spec(task)
        if opened.held is None and state.claim is not None and spec is not None:
            opened.held = await self.hold(
                session, episode_of(state), spec, opened.standing
            )

    def spec(self, task: Task) -> SandboxSpec | None:
        """Return the sandbox that the task needs; None: it needs none."""
        if not self.lends and self.apps is not None:
            return None
        return self.world.sandbox(task, self.configured)

    async def hold(
        self,
        session: ResourcesSessionId,
        episode: EpisodeId,
        spec: SandboxSpec,
        standing: Standing[ResourcesSession],
    ) -> HeldSandbox | None:
        """Claim the sandbox; none once grading has given it back before a restart.

        Raises:
            SandboxLost: It was given back, by a server that was stopped or by a reaper.
        """
        claim = claim_of(session, standing.state)
        try:
            return await self.claim(
                claim,
                spec,
                used_by=episode.key,
                lend_to=Borrower(episode.key),
            )
        except ClaimNotUsable as refused:
            if standing.state.verification is None:
                raise given_back(self.claim.provider.name, claim, refused) from refused
            return None
