# SPDX-License-Identifier: Apache-2.0
"""What an agent session answers, and the names that come from it."""

import hashlib
import json
from collections.abc import Mapping

from ...domain.activations import Ending, RunId, Stillness
from ...domain.agent_sessions import AgentSession, AgentSessionId
from ...domain.digests import Json, RequestDigest, digest_of
from ...domain.tasks import EpisodeId, TaskId
from ..required.participants import AgentClosed, Turn
from ..required.sandbox import SandboxAccess


def to_run_id(session: AgentSessionId, request: RequestDigest) -> RunId:
    """Return the id of an activation's run, the same after a restart."""
    name = hashlib.sha256(f"{session}/{request}".encode()).hexdigest()
    return RunId(f"run-{name[:32]}")


def seed_digest(
    episode: EpisodeId, task: TaskId, access: SandboxAccess | None
) -> RequestDigest:
    """Return what makes two seeds the same request."""
    return digest_of(
        {
            "episode": [episode.rollout_id, episode.attempt],
            "task": [task.taskset, task.task_id],
            "access": None
            if access is None
            else [access.provider, dict(access.descriptor), access.workdir],
        }
    )


def turn_of(ending: Ending) -> Turn:
    """Return what the environment needs to know of an ending."""
    return Turn(
        response=json.loads(ending.reply),
        outcome=ending.outcome,
        upstream_failed=ending.upstream_failed,
        reason=ending.reason,
        runtime=json.loads(ending.runtime) if ending.runtime else None,
        seconds=ending.seconds,
    )


def closed_reply(state: AgentSession, reason: str = "") -> dict[str, Json]:
    """Return what a closed session answers, from all of its activations.

    `reason` says why it was closed, where nobody asked for it.
    """
    endings = [a.ending for a in state.activations.standing if a.ending is not None]
    bundles = [json.loads(e.observations) for e in endings if e.observations]
    still = Stillness.NOTHING_RAN if not endings else endings[-1].stillness
    observed = None if state.seeded is None else _merged(bundles)
    told: dict[str, Json] = {"observations": observed, "stillness": still}
    return {**told, "reason": reason} if reason else told


def _merged(bundles: list[Mapping[str, Json]]) -> Mapping[str, Json]:
    """Return one bundle of all activations'; without any, the gap that says so."""
    if not bundles:
        gap: Mapping[str, Json] = {
            "code": "no_activation",
            "invocation_id": None,
            "detail": "the session was closed without an activation",
        }
        return {"source": "livery", "records": [], "gaps": [gap]}
    records: list[Json] = []
    gaps: list[Json] = []
    for bundle in bundles:
        records += _list(bundle["records"])
        gaps += _list(bundle["gaps"])
    return {"source": bundles[0]["source"], "records": records, "gaps": gaps}


def _list(value: Json) -> list[Json]:
    return list(value) if isinstance(value, list) else []


def to_closed(reply: str) -> AgentClosed:
    """Read a closed session's reply."""
    known = json.loads(reply)
    still = known["stillness"]
    return AgentClosed(
        observations=known["observations"],
        stillness=None if still is None else Stillness(still),
    )
