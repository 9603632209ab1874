# SPDX-License-Identifier: Apache-2.0
"""An agent server as the environment sees it."""

import re
from collections.abc import Mapping
from typing import Final

import attrs

from ...domain.activations import Outcome
from ...domain.agent_sessions import AgentSessionId
from ...domain.digests import Json
from ...domain.failures import (
    AGENT_RUN_ERROR,
    PROVIDER_UNAVAILABLE,
    SESSION_RELEASE_FAILED,
)
from ...domain.tasks import EpisodeId, TaskId
from ...ports.required.participants import AgentClosed, Lent, Turn
from ...ports.required.tool_servers import ABOUT
from .asking import GymServer, Jar, Reply, Step
from .wire_names import (
    OUTCOME_HEADER,
    READS_OUTCOME_HEADER,
    UPSTREAM_HEADER,
    AboutAgent,
    access_body,
    episode_body,
    episode_prefix,
    task_body,
    tool_body,
)

NAME: Final = "agent"
SESSION: Final = "agent_session_id"

_SEED: Final = Step(participant=NAME, words="seed", kind=PROVIDER_UNAVAILABLE)
_ACTIVATE: Final = Step(participant=NAME, words="activate", kind=AGENT_RUN_ERROR)
_CLOSE: Final = Step(participant=NAME, words="close", kind=SESSION_RELEASE_FAILED)
_DESCRIBE: Final = Step(participant=NAME, words="describe itself", kind=AGENT_RUN_ERROR)
_NEEDED: Final = (
    "id",
    "created_at",
    "model",
    "object",
    "output",
    "parallel_tool_calls",
    "tool_choice",
    "tools",
)
"""What a Responses object has, by its readers."""
_SENDABLE: Final = re.compile(r"[ -~]*")
"""What a header can hold."""
_WORDS: Final = frozenset(outcome.value for outcome in Outcome)
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "incomplete": Outcome.INCOMPLETE,
    "failed": Outcome.FAILED,
    "cancelled": Outcome.CANCELLED,
}


@attrs.frozen(kw_only=True)
class HttpAgent:
    """The `Agent` of one server."""

    server: GymServer
    token_capture: bool = False
    """Whether activations ask for the tokens of training to be captured."""
    _jars: dict[AgentSessionId, Jar] = attrs.field(
        factory=dict[AgentSessionId, Jar], init=False, repr=False
    )

    async def seed(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        task: TaskId,
        lent: Lent,
    ) -> None:
        """Seed the session; raises `ParticipantFailed`."""
        access = lent.written
        if access is None and lent.access is not None:
            access = access_body(lent.access)
        body: dict[str, Json] = {
            SESSION: session,
            "episode_id": episode_body(episode),
            "task_id": task_body(task),
            "tool_accesses": [tool_body(tool) for tool in lent.tools],
            "sandbox_access": access,
        }
        reply = await self.server.post(_SEED, "/v1/agent_sessions", body)
        _check_session(_SEED, reply, session)
        self._jars[session] = reply.cookies

    async def activate(
        self,
        session: AgentSessionId,
        episode: EpisodeId,
        parameters: Mapping[str, Json],
    ) -> Turn:
        """Have the harness run once for this request, and return how that ended.

        Raises:
            ParticipantFailed: Nobody knows, or what came is no Responses object.
        """
        capture = "/training-token-capture" if self.token_capture else ""
        path = f"{episode_prefix(episode)}{capture}/v1/responses"
        jar = self._jars.get(session)
        reads = {READS_OUTCOME_HEADER: "true"}
        reply = await self.server.post(
            _ACTIVATE, path, parameters, cookies=jar, headers=reads
        )
        if session in self._jars:
            self._jars[session] |= reply.cookies
        missing = [name for name in _NEEDED if name not in reply.body]
        if missing or not isinstance(reply.body["output"], list):
            words = ", ".join(missing) or "a list as its output"
            reason = f"its answer is no Responses object: {words} is missing"
            raise _ACTIVATE.failed(reason, terminal=True)
        return Turn(
            response=reply.body,
            outcome=_outcome(reply),
            upstream_failed=reply.headers.get(UPSTREAM_HEADER) == "true",
            reason=_reason(reply.body),
        )

    async def close(self, session: AgentSessionId, episode: EpisodeId) -> AgentClosed:
        """Close the session, which needs no cookie; raises `ParticipantFailed`."""
        jar = self._jars.pop(session, None)
        body: dict[str, Json] = {SESSION: session, "episode_id": episode_body(episode)}
        path = "/v1/agent_sessions/close"
        reply = await self.server.post(_CLOSE, path, body, cookies=jar)
        _check_session(_CLOSE, reply, session)
        observed = reply.body.get("agent_observations")
        cookies = reply.body.get("resources_cookies")
        return AgentClosed(
            observations=observed if isinstance(observed, Mapping) else None,
            stillness=None,
            handed_back=None
            if not isinstance(cookies, Mapping)
            else {
                name: str(value)
                for name, value in cookies.items()
                if _SENDABLE.fullmatch(name) and _SENDABLE.fullmatch(str(value))
            },
        )

    async def about(self) -> AboutAgent:
        """Return what the server tells of itself; raises `ParticipantFailed`."""
        reply = await self.server.get(_DESCRIBE, "/openapi.json")
        described = reply.body.get("info")
        told = described.get(ABOUT) if isinstance(described, Mapping) else None
        if not isinstance(told, Mapping):
            return AboutAgent()
        concurrency, stepwise = told.get("concurrency"), told.get("stepwise")
        return AboutAgent(
            concurrency=concurrency if isinstance(concurrency, int) else None,
            stepwise=stepwise if isinstance(stepwise, bool) else None,
        )

    @property
    def sessions(self) -> int:
        """Of how many sessions something is kept."""
        return len(self._jars)


def _check_session(step: Step, reply: Reply, session: AgentSessionId) -> None:
    if reply.body.get(SESSION) != session:
        raise step.failed("its reply names another session", terminal=True)


def _outcome(reply: Reply) -> Outcome:
    """Return how it ended: by a server of ours as it says, else by the status."""
    told = reply.headers.get(OUTCOME_HEADER, "")
    if told in _WORDS:
        return Outcome(told)
    return _OUTCOMES.get(str(reply.body.get("status")), Outcome.COMPLETED)


def _reason(response: Mapping[str, Json]) -> str:
    error = response.get("error")
    return str(error.get("message", "")) if isinstance(error, Mapping) else ""
