# SPDX-License-Identifier: Apache-2.0
"""Resources in this process: sessions, with their failures in the words of an episode."""

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from ...domain.activations import Stillness
from ...domain.claims import BornExpired, ClaimNotUsable
from ...domain.digests import Json
from ...domain.failures import (
    PROVIDER_QUOTA_EXHAUSTED,
    PROVIDER_UNAVAILABLE,
    REQUEST_REFUSED,
    SESSION_LOST,
    SESSION_RELEASE_FAILED,
    FailureKind,
)
from ...domain.refusals import Refusal
from ...domain.resources_sessions import ResourcesSessionId
from ...domain.tasks import EpisodeId, Task
from ..required.faults import Fault
from ..required.harness import ToolAccess
from ..required.participants import Lent, ParticipantFailed, TaskState, Turn
from ..required.sandbox import SandboxLost
from ..required.sandbox_provider import CapacityExhausted
from ..required.world import TaskRefused
from .log_context import logged_as
from .open_resources import OpenResources


class Sessions(Protocol):
    """The sessions of one world, as they are or as they are served."""

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> OpenResources:
        """Build a session's world."""
        ...

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        """Return what the last finished call left."""
        ...

    async def verify(
        self,
        session: ResourcesSessionId,
        task: Task,
        turn: Turn,
        *,
        stillness: Stillness | None,
    ) -> Mapping[str, Json]:
        """Grade a session, once."""
        ...

    async def close(self, session: ResourcesSessionId, episode: EpisodeId) -> object:
        """End a session."""
        ...


@attrs.frozen(kw_only=True)
class InProcessResources:
    """The `Resources` of one world and one sandbox provider."""

    sessions: Sessions
    tools: Callable[[ResourcesSessionId], tuple[ToolAccess, ...]] = lambda session: ()
    """How the agent's own calls reach a session's apps."""

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> Lent:
        """Build the world; return what it lends.

        Raises:
            ParticipantFailed: It could not be built; what was made was given back.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                opened = await self.sessions.seed(session, episode, task)
            except (Fault, Refusal) as error:
                raise _failed("seed", error) from error
        sandbox = opened.sandbox
        return Lent(
            access=None if sandbox is None else sandbox.access(),
            tools=() if opened.opened is None else self.tools(session),
        )

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        """Return what the last finished call left."""
        return await self.sessions.task_state(session)

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
        """Grade the work once; the first verdict is replayed from then on.

        Raises:
            ParticipantFailed: No verdict came of it.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                return await self.sessions.verify(
                    session, task, turn, stillness=stillness
                )
            except (Fault, Refusal) as error:
                raise _failed("verify", error) from error

    async def close(self, session: ResourcesSessionId, episode: EpisodeId) -> None:
        """End the world and release every sandbox of it.

        Raises:
            ParticipantFailed: One is not seen gone; closing may be asked again.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                await self.sessions.close(session, episode)
            except (Fault, Refusal) as error:
                raise _failed("close", error) from error


def _failed(step: str, error: Fault | Refusal) -> ParticipantFailed:
    return ParticipantFailed(
        participant="resources",
        step=step,
        failure_kind=_kind(step, error),
        reason=str(error),
        terminal=not _is_lost(error)
        and not (isinstance(error, Fault) and error.can_retry),
    )


def _is_lost(error: Fault | Refusal) -> bool:
    """Tell whether the sandbox is gone, or its claim given back by another process.

    One that was born expired came slowly, or the clock was set: another one may do.
    """
    return isinstance(error, SandboxLost | ClaimNotUsable | BornExpired)


def _kind(step: str, error: Fault | Refusal) -> FailureKind:
    if step == "close":
        return SESSION_RELEASE_FAILED
    if isinstance(error, CapacityExhausted):
        return PROVIDER_QUOTA_EXHAUSTED
    if _is_lost(error):
        return SESSION_LOST
    if isinstance(error, Refusal | TaskRefused):
        return REQUEST_REFUSED
    return PROVIDER_UNAVAILABLE
