# SPDX-License-Identifier: Apache-2.0
"""The routes of the environment server.

Whatever became of an episode is answered 200, with its result or its failure. When a
client has left, its episode goes on for a while, and is joined by who asks again.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ...domain.digests import Json
from ...ports.provided.secret_values import SecretValues
from ...ports.provided.serve_episodes import ServedEpisodes
from ...ports.required.participants import ParticipantFailed
from ..http_serving.answering import (
    HEALTH_PATHS,
    READY_PATH,
    Answer,
    Answering,
    Asked,
    alive,
    readiness,
)
from ..http_serving.answers import JsonAnswer
from ..http_serving.bodies import wrong_value
from .messages import to_aggregate, to_run
from .openapi import document

WITHOUT_KIND: Final = (404, 405)
"""Told by the detail alone where routing refuses, as NeMo Gym's environment tells it."""
Aggregate = Callable[[Mapping[str, Json]], Awaitable[Mapping[str, Json]]]


@attrs.frozen(kw_only=True)
class EnvironmentRoutes:
    """The handlers, over the episodes that are served."""

    served: ServedEpisodes
    aggregate: Aggregate
    """Asks the resources participant."""
    body_bytes_max: int
    secrets: SecretValues
    more: Sequence[Route] = ()
    """What is told of the server itself."""

    def routes(self) -> Sequence[Route]:
        """Return the routes of the application."""
        answering = Answering(
            cookies=None, body_bytes_max=self.body_bytes_max, secrets=self.secrets
        )
        return [
            Route("/run", answering(self._run), methods=["POST"]),
            Route("/aggregate_metrics", answering(self._aggregate), methods=["POST"]),
            *(Route(path, alive, methods=["GET"]) for path in HEALTH_PATHS),
            *self.more,
            Route(READY_PATH, readiness(lambda: self.served.draining), methods=["GET"]),
            Route("/openapi.json", self._described, methods=["GET"]),
        ]

    async def _described(self, request: Request) -> JSONResponse:
        return JSONResponse(document(measured=bool(self.more)))

    async def _run(self, asked: Asked) -> Answer:
        run = to_run(asked.body)
        row = await self.served(run.episode, run.task)
        failure = row["failure"]
        if isinstance(failure, Mapping):
            reason = self.secrets.masked(str(failure["failure_reason"]))
            row = {**row, "failure": {**failure, "failure_reason": reason}}
        return Answer(JsonAnswer(row))

    async def _aggregate(self, asked: Asked) -> Answer:
        rows = to_aggregate(asked.body)
        try:
            return Answer(JsonAnswer(await self.aggregate(rows)))
        except ParticipantFailed as failed:
            if not failed.not_taken:
                raise
            # The rows are passed on as they came, so it is the caller who can mend them.
            raise wrong_value((), self.secrets.masked(failed.reason), None) from failed
