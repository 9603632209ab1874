# SPDX-License-Identifier: Apache-2.0
"""One of NeMo Gym's own servers, around an episode of nothing: the floor of a bench.

    python their_servers.py resources | agent | environment

It runs under the Python of an installed NeMo Gym, not under ours, and is configured as
`gym env start` configures its servers: by two variables of the environment.
"""

import sys

from environment_servers.single_agent_turn.app import SingleAgentTurnEnvironmentServer
from fastapi import Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.base_responses_api_agent import (
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSessionState,
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)


class NothingResources(SimpleResourcesServer):
    """Whatever was done is right."""

    ray_enabled = False
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Grade."""
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class NothingAgent(SimpleResponsesAPIAgent):
    """Nothing is done."""

    ray_enabled = False
    config: BaseResponsesAPIAgentConfig

    async def responses(
        self,
        request: Request,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymResponse:
        """Answer at once."""
        self._require_agent_session(self._agent_session_id_from_request(request) or "")
        return NeMoGymResponse(
            id="resp_nothing",
            created_at=0,
            model="none",
            object="response",
            output=[],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )

    async def run(self, body: dict[str, object] = Body()) -> BaseVerifyResponse:  # noqa: B008
        """Refuse the flow without an environment server."""
        raise NotImplementedError

    async def _seed_agent_session_state(
        self, body: AgentSeedSessionRequest
    ) -> AgentSessionState:
        return AgentSessionState(request=body)

    async def _close_agent_session_state(
        self, state: AgentSessionState
    ) -> AgentCloseSessionResponse:
        return AgentCloseSessionResponse(
            agent_session_id=state.request.agent_session_id
        )


class Environment(SingleAgentTurnEnvironmentServer):
    """As shipped, without the Ray cluster that it would start and never use."""

    ray_enabled = False


if __name__ == "__main__":
    {
        "agent": NothingAgent,
        "environment": Environment,
        "resources": NothingResources,
    }[sys.argv[1]].run_webserver()
