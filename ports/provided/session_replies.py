# SPDX-License-Identifier: Apache-2.0
"""What an agent session answers, and the names that come from it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from ...domain.activations import Ending, RunId, Stillness
from ...domain.agent_sessions import AgentSession, AgentSessionId
from ...domain.digests import Json, RequestDigest, digest_of
from ...domain.tasks import EpisodeId, TaskId
from ..required.participants import AgentClosed, Turn
from ..required.sandbox import SandboxAccess

_INVOCATIONS: Final = ("invocation_id", "parent_invocation_id")
"""Where a record or a gap names an invocation."""


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
    taken: set[str] = set()
    for number, bundle in enumerate(bundles, 1):
        own = _invocations(bundle)
        names = _names_apart(own, taken, number)
        taken.update(names.get(one, one) for one in own)
        records += (_named(each, names) for each in _list(bundle["records"]))
        gaps += (_named(each, names) for each in _list(bundle["gaps"]))
    return {"source": bundles[0]["source"], "records": records, "gaps": gaps}


def _invocations(bundle: Mapping[str, Json]) -> list[str]:
    """Return the invocations that a bundle speaks of, the first one first."""
    found: dict[str, None] = {}
    for each in (*_list(bundle["records"]), *_list(bundle["gaps"])):
        if not isinstance(each, Mapping):
            continue
        for word in _INVOCATIONS:
            if isinstance(named := each.get(word), str):
                found[named] = None
    return list(found)


def _names_apart(own: list[str], taken: set[str], number: int) -> dict[str, str]:
    """Return other names for invocations of an activation whose own are taken.

    A harness names them anew in each activation, and a bundle may have each name once.
    """
    names: dict[str, str] = {}
    for one in own:
        if one not in taken:
            continue
        name = f"activation-{number}"
        while name in taken or name in own or name in names.values():
            name = f"{name}-{one}"
        names[one] = name
    return names


def _named(each: Json, names: Mapping[str, str]) -> Json:
    if not names or not isinstance(each, Mapping):
        return each
    said = {word: each.get(word) for word in _INVOCATIONS}
    return {
        **each,
        **{
            word: names[name]
            for word, name in said.items()
            if isinstance(name, str) and name in names
        },
    }


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
