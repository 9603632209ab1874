# SPDX-License-Identifier: Apache-2.0
"""An agent in this process: a harness under sessions, in borrowed sandboxes.

Who asks for an activation runs it: when the caller is cancelled, so is the run.
"""

from collections.abc import Mapping
from typing import Protocol

import attrs

from ...domain.activations import Ending
from ...domain.agent_sessions import AgentSessionId, SessionClosed
from ...domain.digests import Json
from ...domain.failures import (
    AGENT_RUN_ERROR,
    PROVIDER_UNAVAILABLE,
    REQUEST_REFUSED,
    SESSION_LOST,
    FailureKind,
)
from ...domain.refusals import Refusal
from ...domain.tasks import EpisodeId, TaskId
from ..required.faults import Fault
from ..required.harness import RequestRefused
from ..required.participants import AgentClosed, Lent, ParticipantFailed, Turn
from ..required.sandbox import SandboxLost
from .log_context import logged_as
from .session_grants import SessionGrant
from .session_replies import to_closed, turn_of


class Sessions(Protocol):
    """The sessions of one harness, as they are or as they are served."""

    async def seed(
        self, session: AgentSessionId, episode: EpisodeId, grant: SessionGrant
    ) -> None:
        """Set a session up."""
        ...

    async def activate(
        self, session: AgentSessionId, parameters: Mapping[str, Json]
    ) -> Ending:
        """Run the harness for this request, at most once."""
        ...

    async def close(self, session: AgentSessionId, episode: EpisodeId) -> SessionClosed:
        """End a session."""
        ...


@attrs.frozen
class InProcessAgent:
    """The `Agent` of one harness."""

    sessions: Sessions

    async def seed(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        task: TaskId,
        lent: Lent,
    ) -> None:
        """Set the session up and reach its sandbox.

        Raises:
            ParticipantFailed: It cannot work; nothing of it is kept.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                grant = SessionGrant(task=task, access=lent.access, tools=lent.tools)
                await self.sessions.seed(session, episode, grant)
            except (Fault, Refusal) as error:
                raise _failed("seed", error) from error

    async def activate(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        parameters: Mapping[str, Json],
    ) -> Turn:
        """Run the harness for this request, at most once, and tell how it ended.

        Raises:
            ParticipantFailed: The request is refused, or conflicts with another.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                return turn_of(await self.sessions.activate(session, parameters))
            except (Fault, Refusal) as error:
                raise _failed("activate", error) from error

    async def close(self, session: AgentSessionId, episode: EpisodeId) -> AgentClosed:
        """End the session, whatever it is doing, and tell what was observed.

        Raises:
            ParticipantFailed: It could not be ended; closing may be asked again.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                closed = await self.sessions.close(session, episode)
            except (Fault, Refusal) as error:
                raise _failed("close", error) from error
        return to_closed(closed.reply)


def _failed(step: str, error: Fault | Refusal) -> ParticipantFailed:
    if isinstance(error, ParticipantFailed):
        return error
    return ParticipantFailed(
        participant="agent",
        step=step,
        failure_kind=_kind(error),
        reason=str(error),
        terminal=not isinstance(error, SandboxLost)
        and not (isinstance(error, Fault) and error.can_retry),
    )


def _kind(error: Fault | Refusal) -> FailureKind:
    if isinstance(error, SandboxLost):
        return SESSION_LOST
    if isinstance(error, Refusal | RequestRefused):
        return REQUEST_REFUSED
    if error.can_retry:
        return PROVIDER_UNAVAILABLE
    return AGENT_RUN_ERROR
