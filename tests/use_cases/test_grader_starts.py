# SPDX-License-Identifier: Apache-2.0
"""Who keeps a grader from starting: its agent is measured for it, a task is not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from livery.domain.digests import Json
from livery.domain.tasks import EpisodeId, Task

from .stable import Ground, task

pytestmark = pytest.mark.anyio

PROGRAM: Json = {"text": '#!/bin/sh\nread -r mark; echo "$mark"\n', "mode": "0755"}
OTHER: Json = {"text": "#!/nowhere/sh\n", "mode": "0755"}
TAKEN = {
    "away": 'cd /; rm -rf "$OLDPWD"',
    "for a file": 'cd ..; mv "$OLDPWD" gone; echo x > "$OLDPWD"',
    "for a link that leads nowhere": 'cd ..; mv "$OLDPWD" gone; ln -s nil "$OLDPWD"',
}
SPOILT = {
    "removed": "rm bin/grade",
    "removed with its folder": "rm -r bin",
    "not executable": "chmod -x bin/grade",
    "of another interpreter": "echo '#!/nowhere/sh' > bin/grade",
    "a folder": "rm bin/grade; mkdir bin/grade",
    "a link": "rm bin/grade; ln -s nil bin/grade",
}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def graded(where: str, at_start: Mapping[str, Json], **grader: Json) -> Task:
    """Return a task with these files, and this grader beside its own."""
    asked = task()
    asked.task_data["files"] = dict(at_start)
    asked.task_data["grader"] = {"command": ["true"], "grade": where, **grader}
    return asked


async def result_of(ground: Ground, script: str, asked: Task) -> dict[str, Any]:
    async with ground.stable(ground.counting(script)) as it:
        row = await it.run_episode(EpisodeId("starts"), asked)
    assert isinstance(row["result"], dict), row["failure"]
    return row["result"]


@pytest.mark.parametrize("files", [{}, {"tests/grade.sh": "exit 1\n"}], ids=len)
@pytest.mark.parametrize("script", TAKEN.values(), ids=TAKEN)
async def test_an_agent_that_takes_its_folder_away_is_measured(
    ground: Ground, script: str, files: dict[str, Json]
) -> None:
    asked = graded("same", {}, files=files)

    result = await result_of(ground, script, asked)

    assert (result["reward"], result["mask_sample"]) == (0.0, False)


@pytest.mark.parametrize("script", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("where", ["fresh", "same"])
async def test_an_agent_that_spoils_the_grader_s_program_is_measured(
    ground: Ground, script: str, where: str
) -> None:
    asked = graded(where, {"bin/grade": PROGRAM}, command=["./bin//grade"])

    result = await result_of(ground, script, asked)

    assert (result["reward"], result["mask_sample"]) == (0.0, False)
    assert "the agent removed or changed" in result["failure_reason"]


@pytest.mark.parametrize(
    ("files", "program", "script"),
    [
        ({"grade": OTHER}, "./grade", "true"),
        ({"grade": "#!/bin/sh\n"}, "./grade", "rm grade"),
        ({}, "./grade", "true"),
        ({}, "no-such-grader", "true"),
        ({}, "/no/such/grader", "true"),
    ],
    ids=["its interpreter", "its mode", "its file", "its name", "its path"],
)
async def test_a_grader_that_never_could_start_measures_nobody(
    ground: Ground, files: dict[str, Json], program: str, script: str
) -> None:
    result = await result_of(ground, script, graded("fresh", files, command=[program]))

    assert (result["reward"], result["mask_sample"]) == (0.0, True)
    assert result["failure_kind"] == "verifier_error"


async def test_a_program_that_is_laid_over_is_nobody_s_to_spoil(
    ground: Ground,
) -> None:
    laid_over: Json = {"grade": OTHER}
    asked = graded("same", {"grade": PROGRAM}, files=laid_over, command=["./grade"])

    result = await result_of(ground, "rm grade", asked)

    assert result["mask_sample"] is True
