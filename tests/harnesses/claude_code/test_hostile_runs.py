# SPDX-License-Identifier: Apache-2.0
"""What a program does to our own things in its sandbox is its doing, and read as that."""

from pathlib import Path

import pytest

from livery.adapters.harnesses.claude_code.command import Paths
from livery.domain.activations import Outcome

from .test_runs import (
    FINAL,
    INIT,
    SUCCESS,
    Runner,
    provider,
    root,
    runner,
    say,
    texts,
)

__all__ = ["provider", "root", "runner"]

pytestmark = pytest.mark.anyio


def transcript(runner: Runner) -> str:
    scratch = f"{runner.sandbox.scratch}/run-1"
    return Paths(scratch=scratch, workdir=runner.sandbox.workdir).transcript


@pytest.mark.parametrize(
    "planted",
    [
        "ln -s '{0}' '{0}'",
        "ln -s /etc/passwd '{0}'",
        "mkfifo '{0}'",
        "mkdir '{0}'",
        "ln -s nowhere '{0}'",
    ],
    ids=["a link to itself", "a link out", "a pipe", "a folder", "a dangling link"],
)
async def test_a_transcript_that_cannot_be_had_leaves_the_run_as_it_was(
    runner: Runner, planted: str
) -> None:
    path = transcript(runner)
    plant = f"mkdir -p '{Path(path).parent}'\n{planted.format(path)}"

    ending = await runner(f"{plant}\n{say(INIT, FINAL, SUCCESS)}")

    assert ending.outcome is Outcome.COMPLETED
    assert texts(ending) == ["done"]
