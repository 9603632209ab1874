# SPDX-License-Identifier: Apache-2.0
"""The routes of the agent server.

When a client has left, its seed or close goes on to its end, an activation by its own
rules.
"""

import json
from collections.abc import Sequence
from typing import Final

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...adapters.gym_servers.wire_names import (
    OUTCOME_HEADER,
    READS_OUTCOME_HEADER,
    UPSTREAM_HEADER,
    AboutAgent,
)
from ...domain.agent_sessions import AgentSessionId, SessionPhase
from ...domain.digests import Json
from ...domain.refusals import Refusal
from ...domain.scores import Evidence, Verdict, unmeasured
from ...ports.provided.log_context import known_as
from ...ports.provided.secret_values import SecretValues
from ...ports.provided.serve_sessions import ServedSessions
from ...ports.required.faults import Fault
from ..http_serving.answering import (
    HEALTH_PATHS,
    READY_PATH,
    Answer,
    Answering,
    Asked,
    alive,
    readiness,
)
from ..http_serving.answers import JsonAnswer, Texts, conflict, not_done, refused
from ..http_serving.session_cookies import SessionCookies, Visitor
from . import answers
from .messages import to_close, to_parameters, to_seed
from .openapi import document

COOKIE_KEY: Final = "agent_session_id"
"""What the cookie's payload calls the session."""
_BAD_GATEWAY: Final = 502
ACTIVATION_PATHS: Final = (
    "/v1/responses",
    "/ng-rollout/{key}/v1/responses",
    "/ng-rollout/{key}/training-token-capture/v1/responses",
)


@attrs.frozen(kw_only=True)
class AgentRoutes:
    """The handlers, over the sessions that are served."""

    served: ServedSessions
    cookies: SessionCookies
    body_bytes_max: int
    secrets: SecretValues
    more: Sequence[Route] = ()
    """What is told of the server itself."""

    def routes(self) -> Sequence[Route]:
        """Return the routes of the application."""
        answering = Answering(
            cookies=self.cookies,
            body_bytes_max=self.body_bytes_max,
            secrets=self.secrets,
        )
        return [
            Route("/v1/agent_sessions", answering(self._seed), methods=["POST"]),
            Route("/v1/agent_sessions/close", answering(self._close), methods=["POST"]),
            *(
                Route(path, answering(self._activate), methods=["POST"])
                for path in ACTIVATION_PATHS
            ),
            *(Route(path, alive, methods=["GET"]) for path in HEALTH_PATHS),
            *self.more,
            Route(
                READY_PATH,
                readiness(lambda: self.served.draining),
                methods=["GET"],
            ),
            Route("/openapi.json", self._described, methods=["GET"]),
        ]

    async def _described(self, request: Request) -> JSONResponse:
        about = AboutAgent(
            concurrency=self.served.admit.places,
            stepwise=self.served.sessions.harness.stepwise,
        )
        return JSONResponse(document(about, measured=bool(self.more)))

    async def _seed(self, asked: Asked) -> Answer:
        seed = to_seed(asked.body)
        known_as(episode=seed.episode.key, session=seed.session)
        if (other := await self._other(asked.visitor, seed.session)) is not None:
            return Answer(other)
        try:
            await self.served.seed(seed.session, seed.episode, seed.grant)
        except tuple(answers.SEEDING) as error:
            return Answer(await self._conflict(seed.session, error, answers.SEEDING))
        told = {COOKIE_KEY: seed.session}
        return Answer(JSONResponse(told), seed.session)

    async def _activate(self, asked: Asked) -> Answer:
        if asked.visitor.session is None:
            return Answer(_unknown())
        session = AgentSessionId(asked.visitor.session)
        known_as(session=session)
        parameters = to_parameters(asked.body)
        try:
            ending = await self.served.activate(
                session, parameters, model_prefix=_prefix(asked.request)
            )
        except tuple(answers.ACTIVATING) as error:
            return Answer(await self._conflict(session, error, answers.ACTIVATING))
        except (Refusal, Fault) as error:
            return Answer(self._not_done(error, parameters))
        if asked.request.headers.get(READS_OUTCOME_HEADER) != "true":
            # It would take the answer for the agent's own work, and have it graded.
            evidence = Evidence(
                outcome=ending.outcome,
                upstream_failed=ending.upstream_failed,
                reason=ending.reason,
            )
            if (verdict := unmeasured(evidence)) is not None:
                return Answer(self._not_measured(verdict))
        headers = {OUTCOME_HEADER: ending.outcome.value}
        if ending.upstream_failed:
            headers[UPSTREAM_HEADER] = "true"
        # As `JsonAnswer`: it is JSON already.
        content = ending.reply.encode("utf-8", "backslashreplace")
        reply = Response(content, headers=headers, media_type="application/json")
        return Answer(reply)

    async def _close(self, asked: Asked) -> Answer:
        close = to_close(asked.body)
        known_as(episode=close.episode.key, session=close.session)
        if (other := await self._other(asked.visitor, close.session)) is not None:
            return Answer(other)
        try:
            closed = await self.served.close(close.session, close.episode)
        except tuple(answers.CLOSING_IT) as error:
            return Answer(
                await self._conflict(close.session, error, answers.CLOSING_IT)
            )
        told = {
            COOKIE_KEY: close.session,
            "agent_observations": json.loads(closed.reply)["observations"],
            "resources_cookies": None,
        }
        return Answer(JsonAnswer(told), close.session)

    async def _other(
        self, visitor: Visitor, session: AgentSessionId
    ) -> JSONResponse | None:
        """Return the conflict when the cookie names another session, or a forgotten one."""
        if visitor.session is None:
            return None
        # Whether it was forgotten: one that is open here was not, and is not looked up.
        state = (await self.served.sessions.known(session)).state
        if visitor.session != session:
            return conflict(answers.OTHER_COOKIE, "cookie_mismatch", state.phase)
        if state.phase is SessionPhase.ABSENT:
            return _unknown()
        return None

    async def _conflict(
        self,
        session: AgentSessionId,
        error: Exception,
        texts: Texts,
    ) -> JSONResponse:
        assert isinstance(error, Refusal), "only refusals have such texts"
        state = (await self.served.sessions.standing(session)).state
        reason = state.reason
        if state.closed is not None:
            reason = str(json.loads(state.closed.reply).get("reason", ""))
        return conflict(texts[type(error)], error.kind, state.phase, reason)

    def _not_measured(self, verdict: Verdict) -> JSONResponse:
        reason = self.secrets.masked(verdict.failure_reason or "")
        return refused(_BAD_GATEWAY, str(verdict.failure_kind), reason)

    def _not_done(self, error: Refusal | Fault, found: Json = None) -> JSONResponse:
        return not_done(error, found=found, masked=self.secrets.masked)


def _prefix(request: Request) -> str:
    """Return what goes before `ACTIVATION_PATHS[0]`, its escapes untouched."""
    raw = request.scope.get("raw_path") or request.url.path.encode()
    path: str = raw.partition(b"?")[0].decode("latin-1")
    return path.removesuffix(ACTIVATION_PATHS[0])


def _unknown() -> JSONResponse:
    return conflict(answers.UNKNOWN, "session_unknown", SessionPhase.ABSENT)
