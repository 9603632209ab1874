# SPDX-License-Identifier: Apache-2.0
"""Recorded output of the real program, and runs made of it."""

from pathlib import Path
from typing import Any

import pytest

from livery.adapters.harnesses.claude_code import ClaudeCodeConfig, ClaudeCodeHarness
from livery.domain.digests import Json
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.required.harness import (
    Capture,
    HarnessRequest,
    Place,
    Reading,
    ToolAccess,
)
from livery.ports.required.model_access import ModelGrant
from livery.ports.required.sandbox import Exited, Output

CAPTURES = Path(__file__).parents[4] / "shared" / "captures" / "claude-code"

needs_captures = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the recorded outputs are not here"
)

PLACE = Place(
    workdir="/workspace",
    scratch="/s/run",
    is_boundary=True,
    model=ModelGrant(base_url="http://gateway:8080", placeholder="placeholder-1"),
)


def recorded(name: str) -> bytes:
    return (CAPTURES / f"{name}.jsonl").read_bytes()


def asking(
    input: Json = "Mend it.", *, accesses: tuple[ToolAccess, ...] = (), **more: Json
) -> HarnessRequest:
    return HarnessRequest(
        episode=EpisodeId("r1", 0),
        task=TaskId("set", "one"),
        parameters={"input": input, **more},
        tool_accesses=accesses,
    )


def harness(**fields: Any) -> ClaudeCodeHarness:
    return ClaudeCodeHarness(config=ClaudeCodeConfig(**fields))


def output(content: bytes) -> Output:
    return Output(head=content, size=len(content))


def left(stdout: bytes, *, code: int = 0, **fields: Any) -> Capture:
    given: dict[str, Any] = {"how": Exited(code), "duration_seconds": 2.0, **fields}
    return Capture(stdout=output(stdout), **given)


async def read(capture: Capture, **fields: Any) -> Reading:
    return await harness(**fields).read(asking(), capture)


def gaps(reading: Reading) -> list[Json]:
    return [gap["code"] for gap in reading.observations.gaps]


def records(reading: Reading, kind: str) -> list[Any]:
    return [one for one in reading.observations.records if one["kind"] == kind]
