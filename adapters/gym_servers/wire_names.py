# SPDX-License-Identifier: Apache-2.0
"""How what the core names is written in the protocol's bodies and paths."""

import json
from collections.abc import Mapping
from typing import Final

import attrs

from ...domain.digests import Json
from ...domain.tasks import EpisodeId, TaskId
from ...ports.required.harness import ToolAccess, ToolTransport
from ...ports.required.sandbox import SandboxAccess

OUTCOME_HEADER: Final = "x-livery-outcome"
"""How an activation ended, in more words than a Responses object has."""
READS_OUTCOME_HEADER: Final = "x-livery-reads-outcome"
"""`true` from who reads the outcome; to others the status has to tell of a failure."""
UPSTREAM_HEADER: Final = "x-livery-upstream-failed"
"""`true` when the model's side failed, by the agent's own record."""
STILLNESS_HEADER: Final = "x-livery-stillness"
"""Why nothing of the harness can still write, by the agent's word."""


@attrs.frozen(kw_only=True)
class AboutAgent:
    """What an agent server tells of itself."""

    concurrency: int | None = None
    """How many sessions it has open at once; None when it does not say."""
    stepwise: bool | None = None
    """Whether one activation is one step; None when it does not say."""


def episode_body(episode: EpisodeId) -> dict[str, Json]:
    """Return an episode's name."""
    return {"rollout_id": episode.rollout_id, "attempt": episode.attempt}


def task_body(task: TaskId) -> dict[str, Json]:
    """Return a task's name."""
    return {"taskset": task.taskset, "task_id": task.task_id}


def episode_prefix(episode: EpisodeId) -> str:
    """Return what comes before a path that carries the rollout's name."""
    return f"/ng-rollout/{episode.key}"


def tool_body(tool: ToolAccess) -> dict[str, Json]:
    """Return a granted tool access."""
    if tool.transport is ToolTransport.DIRECT_HTTP:
        return {
            "kind": tool.transport.value,
            "name": tool.name,
            "required": tool.required,
            "base_url": tool.url,
            "cookies": dict(tool.cookies),
            "headers": dict(tool.headers),
        }
    return {
        "kind": tool.transport.value,
        "name": tool.name,
        "required": tool.required,
        "connection": {
            "transport": "streamable_http",
            "url": tool.url,
            "headers": dict(tool.headers),
        },
    }


def access_body(access: SandboxAccess) -> dict[str, Json]:
    """Return access to a lent sandbox."""
    return {
        "connection": {
            "kind": "direct",
            "provider_config_ref": access.provider,
            "descriptor": dict(access.descriptor),
        },
        "workdir": access.workdir,
    }


def to_access(written: Mapping[str, Json]) -> SandboxAccess:
    """Read access to a lent sandbox; `ValueError` for what is none."""
    connection = written.get("connection")
    if not isinstance(connection, Mapping):
        raise ValueError("sandbox_access has no connection")
    descriptor = connection.get("descriptor")
    provider, workdir = connection.get("provider_config_ref"), written.get("workdir")
    if not isinstance(descriptor, Mapping) or not isinstance(provider, str):
        raise ValueError("sandbox_access.connection is not one that is known")
    if not isinstance(workdir, str):
        raise ValueError("sandbox_access has no workdir")
    return SandboxAccess(
        provider=provider,
        descriptor={
            word: value if isinstance(value, str) else json.dumps(value)
            for word, value in descriptor.items()
            if value is not None
        },
        workdir=workdir,
    )
