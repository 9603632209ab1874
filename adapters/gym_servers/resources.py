# SPDX-License-Identifier: Apache-2.0
"""A resources server as the environment sees it."""

from collections.abc import Mapping
from typing import Final

import attrs

from ...domain.activations import Stillness
from ...domain.digests import Json
from ...domain.failures import (
    AGENT_RUN_ERROR,
    PROVIDER_UNAVAILABLE,
    SESSION_RELEASE_FAILED,
    VERIFIER_ERROR,
)
from ...domain.resources_sessions import ResourcesSessionId
from ...domain.scores import Evidence, unmeasured
from ...domain.tasks import EpisodeId, Task
from ...ports.provided.json_texts import finite
from ...ports.required.harness import ToolAccess, ToolTransport
from ...ports.required.participants import Lent, TaskState, Turn
from .asking import GymServer, Jar, Reply, Step
from .wire_names import (
    OUTCOME_HEADER,
    STILLNESS_HEADER,
    UPSTREAM_HEADER,
    episode_body,
    episode_prefix,
    task_body,
    to_access,
)

NAME: Final = "resources"
SESSION: Final = "resources_session_id"
MCP_PATH: Final = "/mcp"
MCP_TRANSPORT: Final = "http"
"""What is meant where a seed's reply leaves it out, as NeMo Gym reads it."""

_SEED: Final = Step(participant=NAME, words="seed", kind=PROVIDER_UNAVAILABLE)
_STATE: Final = Step(
    participant=NAME, words="tell the task's state", kind=AGENT_RUN_ERROR
)
_VERIFY: Final = Step(participant=NAME, words="verify", kind=VERIFIER_ERROR)
_CLOSE: Final = Step(participant=NAME, words="close", kind=SESSION_RELEASE_FAILED)
_AGGREGATE: Final = Step(participant=NAME, words="aggregate", kind=VERIFIER_ERROR)


def _is_reserved(key: str) -> bool:
    """Whether NeMo Gym's collector ends its whole run over such a key of a result."""
    return key.startswith("_ng_") or key in (
        "ng_trajectory",
        "ng_perf",
        "ng_model_call_capture",
    )


@attrs.frozen(kw_only=True)
class HttpResources:
    """The `Resources` of one server."""

    server: GymServer
    block: str = NAME
    """Its name in configurations, which names the tools that it grants."""
    transports: frozenset[ToolTransport] = frozenset()
    """How the agent may call its tools."""
    observability: bool = False
    """Whether paths carry the rollout's name."""
    _jars: dict[ResourcesSessionId, Jar] = attrs.field(
        factory=dict[ResourcesSessionId, Jar], init=False, repr=False
    )

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> Lent:
        """Seed the session, and return what it lends.

        Raises:
            ParticipantFailed: It could not be, or its reply cannot be used.
        """
        body: dict[str, Json] = {
            SESSION: session,
            "episode_id": episode_body(episode),
            "task_id": task_body(task.task_id),
            "task_data": task.task_data,
        }
        path = f"{self._prefix(episode)}/seed_session"
        reply = await self.server.post(_SEED, path, body)
        _check_session(_SEED, reply, session)
        if not reply.cookies:
            reason = "its reply sets no cookie, so nobody can ask for the session"
            raise _SEED.failed(reason, terminal=True)
        self._jars[session] = reply.cookies
        written = reply.body.get("sandbox_access")
        try:
            access = to_access(written) if isinstance(written, Mapping) else None
        except ValueError as error:
            raise _SEED.failed(str(error), terminal=True) from error
        return Lent(
            access=access,
            tools=self._tools(reply),
            written=written if isinstance(written, Mapping) else None,
        )

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        """Return how far the task is; raises `ParticipantFailed`."""
        reply = await self.server.get(
            _STATE, "/task_state", cookies=self._jars.get(session)
        )
        complete, revision = reply.body.get("complete"), reply.body.get("revision")
        if not isinstance(complete, bool) or not isinstance(revision, int):
            raise _STATE.failed("its answer is no task state", terminal=True)
        return TaskState(complete=complete, revision=revision)

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
        """Have the turn graded, and return the reply without keys that are reserved.

        Raises:
            ParticipantFailed: No verdict came of it.
        """
        if handed_back is not None:
            self._jars[session] = {**self._jars.get(session, {}), **handed_back}
        headers = {OUTCOME_HEADER: turn.outcome.value}
        if turn.upstream_failed:
            headers[UPSTREAM_HEADER] = "true"
        if stillness is not None:
            headers[STILLNESS_HEADER] = stillness.value
        body: dict[str, Json] = {
            **task.task_data,
            "responses_create_params": task.responses_create_params,
            "response": turn.response,
        }
        reply = await self.server.post(
            _VERIFY,
            f"{self._prefix(episode)}/verify",
            body,
            cookies=self._jars.get(session),
            headers=headers,
        )
        if finite(reply.body.get("reward")) is None:
            raise _VERIFY.failed("its answer has no reward", terminal=True)
        told = {k: v for k, v in reply.body.items() if not _is_reserved(k)}
        return {**told, **_mask(told, turn)}

    async def close(self, session: ResourcesSessionId, episode: EpisodeId) -> None:
        """Close the session, which needs no cookie; raises `ParticipantFailed`."""
        jar = self._jars.pop(session, None)
        body: dict[str, Json] = {SESSION: session, "episode_id": episode_body(episode)}
        path = f"{self._prefix(episode)}/close_session"
        reply = await self.server.post(_CLOSE, path, body, cookies=jar)
        _check_session(_CLOSE, reply, session)

    async def aggregate(self, rows: Mapping[str, Json]) -> Mapping[str, Json]:
        """Have rows aggregated, and return the reply; raises `ParticipantFailed`."""
        return (await self.server.post(_AGGREGATE, "/aggregate_metrics", rows)).body

    @property
    def sessions(self) -> int:
        """Of how many sessions something is kept."""
        return len(self._jars)

    def _prefix(self, episode: EpisodeId) -> str:
        return episode_prefix(episode) if self.observability else ""

    def _tools(self, reply: Reply) -> tuple[ToolAccess, ...]:
        tools: list[ToolAccess] = []
        if ToolTransport.DIRECT_HTTP in self.transports:
            tools.append(
                ToolAccess(
                    transport=ToolTransport.DIRECT_HTTP,
                    name=f"{self.block}.direct_http",
                    url=f"{self.server.url}/",
                    cookies=reply.cookies,
                )
            )
        if ToolTransport.MCP in self.transports:
            tools.append(self._mcp(reply.body.get("resources_tools")))
        return tuple(tools)

    def _mcp(self, told: Json) -> ToolAccess:
        if not isinstance(told, Mapping):
            reason = "Resources seed did not return requested MCP metadata"
            raise _SEED.failed(reason, terminal=True)
        name, path, headers = (
            told.get(word, usual)
            for word, usual in (
                ("server_name", None),
                ("url_path", MCP_PATH),
                ("headers", None),
            )
        )
        if not isinstance(name, str) or not isinstance(path, str):
            raise _SEED.failed("its MCP metadata names no server", terminal=True)
        transport = told.get("transport", MCP_TRANSPORT)
        if transport != MCP_TRANSPORT:
            reason = f"Unsupported resources MCP transport: {transport}"
            raise _SEED.failed(reason, terminal=True)
        sent: Mapping[str, Json] = headers if isinstance(headers, Mapping) else {}
        return ToolAccess(
            transport=ToolTransport.MCP,
            name=name,
            url=f"{self.server.url}/{path.lstrip('/')}",
            headers={word: str(value) for word, value in sent.items()},
        )


def _mask(told: Mapping[str, Json], turn: Turn) -> Mapping[str, Json]:
    """Return what masks a reward that measures nothing, where the server did not.

    A server of another make knows of the turn what its Responses object tells, and a
    model that gave no answer looks there like an agent that failed.
    """
    if told.get("mask_sample") is True:
        return {}
    verdict = unmeasured(
        Evidence(
            outcome=turn.outcome,
            upstream_failed=turn.upstream_failed,
            reason=turn.reason,
        )
    )
    if verdict is None:
        return {}
    return {
        "mask_sample": True,
        "failure_kind": verdict.failure_kind,
        "failure_reason": verdict.failure_reason,
    }


def _check_session(step: Step, reply: Reply, session: ResourcesSessionId) -> None:
    if reply.body.get(SESSION) != session:
        raise step.failed("its reply names another session", terminal=True)
