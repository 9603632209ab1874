# SPDX-License-Identifier: Apache-2.0
"""The two participants of an episode, as the environment sees them.

Each is asked under an id that the environment chose, and asking again is safe. They
may be in this process or at the other end of NeMo Gym's session protocol.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Protocol

import attrs

from ...domain.activations import Outcome, Stillness
from ...domain.agent_sessions import AgentSessionId
from ...domain.digests import Json, RequestDigest, digest_of
from ...domain.failures import FailureKind
from ...domain.resources_sessions import ResourcesSessionId
from ...domain.tasks import EpisodeId, Task, TaskId
from .faults import Fault
from .harness import ToolAccess
from .sandbox import SandboxAccess


@attrs.frozen
class ParticipantFailed(Fault):
    """A participant could not do what it was asked; the words are for the failure."""

    kind: ClassVar[str] = "participant_failed"
    message: ClassVar[str] = "{participant} failed to {step}: {reason}"

    participant: str
    step: str
    failure_kind: FailureKind
    reason: str
    terminal: bool
    not_taken: bool = False
    """Whether it read what it was asked with, and that is not what it takes."""


@attrs.frozen(kw_only=True)
class Turn:
    """One finished activation, as far as the environment needs to know."""

    response: Mapping[str, Json]
    """A Responses object."""
    outcome: Outcome
    upstream_failed: bool = False
    reason: str = ""
    runtime: Mapping[str, Json] | None = None
    """The program that was brought for it, where that is known."""
    seconds: float = 0.0
    """How long its run took, where that is known; else 0."""

    @cached_property
    def answer(self) -> RequestDigest:
        """What makes two turns the same answer: the digest of the response."""
        return digest_of(self.response)


@attrs.frozen(kw_only=True)
class AgentClosed:
    """What a closed agent session tells."""

    observations: Mapping[str, Json] | None
    stillness: Stillness | None
    """Why nothing of the harness can write any more; None when nobody saw that."""
    handed_back: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    """The cookies that its tool calls ended with, which the world is to be asked with
    from now on; None: those that it was given still hold."""


@attrs.frozen(kw_only=True)
class Lent:
    """What a seeded resources session lends the agent."""

    access: SandboxAccess | None = None
    """The sandbox, if it lends one."""
    tools: tuple[ToolAccess, ...] = ()
    """How the task's apps are reached by the agent's own calls, in the order tried."""
    written: Mapping[str, Json] | None = attrs.field(default=None, repr=False)
    """The access as another server wrote it, to be passed on as it stands."""


@attrs.frozen(kw_only=True)
class TaskState:
    """What the last finished tool call left of a task."""

    complete: bool = False
    revision: int = 0
    """How many calls have finished."""


class Resources(Protocol):
    """Owns the task's world and the grade. Methods raise `ParticipantFailed`."""

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> Lent:
        """Build the world; return what it lends."""
        ...

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        """Return what the last finished tool call left."""
        ...

    async def verify(
        self,
        session: ResourcesSessionId,
        episode: EpisodeId,
        task: Task,
        turn: Turn,
        *,
        stillness: Stillness | None,
        handed_back: Mapping[str, str] | None = None,
    ) -> Mapping[str, Json]:
        """Grade the work; return the verify reply of NeMo Gym's protocol.

        `handed_back` is the closed agent's `AgentClosed.handed_back`.
        """
        ...

    async def close(self, session: ResourcesSessionId, episode: EpisodeId) -> None:
        """End the world and release its sandbox."""
        ...


class Agent(Protocol):
    """Runs a harness under a session. Methods raise `ParticipantFailed`."""

    async def seed(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        task: TaskId,
        lent: Lent,
    ) -> None:
        """Set the session up with what the resources lend."""
        ...

    async def activate(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        parameters: Mapping[str, Json],
    ) -> Turn:
        """Run the harness once for this request, and return how that ended."""
        ...

    async def close(self, session: AgentSessionId, episode: EpisodeId) -> AgentClosed:
        """End the session, whatever it is doing, and return what was observed."""
        ...
