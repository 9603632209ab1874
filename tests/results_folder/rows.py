# SPDX-License-Identifier: Apache-2.0
"""Rows as episodes leave them."""

from collections.abc import Mapping

from livery.domain.digests import Json


def result(
    rollout: str = "t.r0",
    attempt: int = 0,
    *,
    reward: float = 1.0,
    masked: bool = False,
    task: str = "t",
    reason: str | None = None,
    seconds: Mapping[str, Json] | None = None,
    runtime: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    return {
        "episode_id": {"rollout_id": rollout, "attempt": attempt},
        "task_id": {"taskset": "set", "task_id": task},
        "result": {
            "responses_create_params": {"input": "do it"},
            "response": {"id": "r"},
            "reward": reward,
            "mask_sample": masked,
            "failure_kind": "session_lost" if masked else None,
            "failure_reason": reason,
            "ng_agent_observations": None,
            **_ours(seconds=seconds, runtime=runtime),
        },
        "failure": None,
    }


def _ours(**told: Mapping[str, Json] | None) -> dict[str, Json]:
    ours = {name: table for name, table in told.items() if table is not None}
    return {"livery": ours} if ours else {}


def failure(
    rollout: str = "t.r0",
    attempt: int = 0,
    *,
    terminal: bool = False,
    kind: str | None = "provider_unavailable",
    stage: str | None = "seed",
    task: str = "t",
    reason: str = "it broke",
) -> dict[str, Json]:
    told: dict[str, Json] = {
        "failure_reason": reason,
        "terminal": terminal,
        "partial_response": None,
    }
    if kind is not None:
        told["failure_kind"] = kind
    if stage is not None:
        told["stage"] = stage
    return {
        "episode_id": {"rollout_id": rollout, "attempt": attempt},
        "task_id": {"taskset": "set", "task_id": task},
        "result": None,
        "failure": told,
    }
