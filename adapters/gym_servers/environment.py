# SPDX-License-Identifier: Apache-2.0
"""An environment server, which runs whole episodes for whoever asks."""

from collections.abc import Mapping
from typing import Final

import anyio
import attrs

from ...domain.digests import Json
from ...domain.failures import (
    AGENT_RUN_ERROR,
    CANCELLED,
    TRANSPORT_PEER_DROP,
    TRANSPORT_UNREACHABLE,
    Failure,
    Stage,
)
from ...domain.tasks import EpisodeId, Task
from ...ports.provided.episode_rows import failure_of, to_row
from ...ports.required.participants import ParticipantFailed
from .asking import GymServer, Step
from .reach import PAUSE_SECONDS
from .wire_names import episode_body, task_body

NAME: Final = "environment"

_LOOK: Final = Step(participant=NAME, words="be there", kind=AGENT_RUN_ERROR)
_RUN: Final = Step(participant=NAME, words="run the episode", kind=AGENT_RUN_ERROR)


@attrs.frozen(kw_only=True)
class HttpEnvironment:
    """Runs episodes on one server, as `RunEpisode` does in this process."""

    server: GymServer

    async def absent(self) -> str:
        """Return why the server cannot be reached; empty when it answers, whatever."""
        with anyio.move_on_after(self.server.reach_seconds + PAUSE_SECONDS):
            try:
                await self.server.get(_LOOK, "/")
            except ParticipantFailed as failed:
                if failed.failure_kind in (TRANSPORT_UNREACHABLE, TRANSPORT_PEER_DROP):
                    return failed.reason
        return ""

    async def __call__(
        self, episode: EpisodeId, task: Task, *, scope: anyio.CancelScope | None = None
    ) -> Mapping[str, Json]:
        """Have the episode run, and return its row.

        What the server could not do is a row with a failure. Cancelling `scope` leaves
        it to the server what becomes of the episode.
        """
        body: dict[str, Json] = {
            "episode_id": episode_body(episode),
            "task": {
                "task_id": task_body(task.task_id),
                "task_input": {
                    "responses_create_params": task.responses_create_params,
                    "task_data": task.task_data,
                },
            },
        }
        try:
            with scope or anyio.CancelScope():
                return await self._asked(body, episode, task)
        except ParticipantFailed as failed:
            failure = failure_of(failed)
            return _failed(episode, task, attrs.evolve(failure, stage=Stage.ADMISSION))
        failure = Failure(
            stage=Stage.ADMISSION,
            kind=CANCELLED,
            reason="the run was stopped",
            terminal=False,
        )
        return _failed(episode, task, failure)

    async def _asked(
        self, body: Mapping[str, Json], episode: EpisodeId, task: Task
    ) -> Mapping[str, Json]:
        row = (await self.server.post(_RUN, "/run", body)).body
        expected = episode_body(episode), task_body(task.task_id)
        if (row.get("episode_id"), row.get("task_id")) != expected:
            raise _RUN.failed("its answer is of another episode", terminal=True)
        result, failure = row.get("result"), row.get("failure")
        if isinstance(result, Mapping) == isinstance(failure, Mapping):
            reason = "its answer is not one of a result and a failure"
            raise _RUN.failed(reason, terminal=True)
        return row


def _failed(episode: EpisodeId, task: Task, failure: Failure) -> Mapping[str, Json]:
    return to_row(episode, task.task_id, result=None, failure=failure, response=None)
