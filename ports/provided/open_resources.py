# SPDX-License-Identifier: Apache-2.0
"""What a process holds of an open resources session, beside what the journal knows."""

import hashlib
from typing import Final, Protocol

import attrs

from ...domain.claims import ClaimId
from ...domain.digests import RequestDigest, digest_of
from ...domain.resources_sessions import ResourcesSession, ResourcesSessionId
from ...domain.tasks import EpisodeId, Task
from ..required.participants import TaskState
from ..required.sandbox import Sandbox
from .carry_out import Standing
from .claim_sandbox import HeldSandbox
from .session_apps import OpenApps

WHICH_CHARACTERS: Final = 8


@attrs.define(eq=False)
class OpenResources:
    """What this process holds of an open session."""

    standing: Standing[ResourcesSession]
    held: HeldSandbox | None = None
    opened: OpenApps | None = None
    state: TaskState = attrs.field(factory=TaskState)
    """What the last finished call left."""
    ended: bool = False
    """Whether it takes no more calls."""

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox that is lent."""
        return None if self.held is None else self.held.sandbox


class Equip(Protocol):
    """Puts into a lent sandbox what an agent needs there beside the task's files."""

    async def __call__(
        self, session: ResourcesSessionId, sandbox: Sandbox, apps: OpenApps | None
    ) -> None:
        """Put it there; raises `Fault`."""
        ...

    async def let_go(self, session: ResourcesSessionId) -> None:
        """Let go of what was kept for the session."""
        ...


def claim_of(session: ResourcesSessionId, state: ResourcesSession) -> ClaimId:
    """Return the name of the claim of the sandbox that a session lends.

    A seed that is made anew, after one that came to nothing, has a claim of its own.
    """
    built = state.built
    if built is None:
        return ClaimId(str(session))
    which = hashlib.sha256(f"{built.request} {built.at!r}".encode()).hexdigest()
    return ClaimId(f"{session}-{which[:WHICH_CHARACTERS]}")


def episode_of(state: ResourcesSession) -> EpisodeId:
    """Return whose session it is, of one that was built."""
    assert state.built is not None, "what is graded was built"
    return state.built.episode


def task_digest(episode: EpisodeId, task: Task) -> RequestDigest:
    """Return what makes two seeds the same request."""
    return digest_of(
        {
            "episode": [episode.rollout_id, episode.attempt],
            "task": [task.task_id.taskset, task.task_id.task_id],
            "task_data": task.task_data,
        }
    )
