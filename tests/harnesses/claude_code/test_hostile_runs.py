# SPDX-License-Identifier: Apache-2.0
"""What a program does to our own things in its sandbox is its doing, and read as that."""

from pathlib import Path

import pytest

from livery.adapters.harnesses.claude_code.command import Paths
from livery.domain.activations import Outcome, Stillness

from .test_runs import (
    FINAL,
    INIT,
    SUCCESS,
    Runner,
    gap_codes,
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


@pytest.mark.parametrize("name", ["stdout", "stdout.head"])
@pytest.mark.parametrize(
    "planted",
    ["mkdir '{0}'", "mkfifo '{0}'", "ln -s '{0}' '{0}'"],
    ids=["a folder", "a pipe", "a link"],
)
async def test_what_stands_where_an_output_was_kept_is_the_programs_doing(
    runner: Runner, name: str, planted: str
) -> None:
    run = f"{runner.sandbox.scratch}/runs"
    plant = f"cd '{run}'/*; rm -f {name}; {planted.format(name)}"

    ending = await runner(f"{say(INIT, FINAL, SUCCESS)}\n{plant}")

    assert ending.outcome in (Outcome.INCOMPLETE, Outcome.COMPLETED)
    assert ending.stillness is Stillness.PROCESSES_SEEN_DEAD
    assert not ending.upstream_failed
    assert ("output_cut" in gap_codes(ending)) is (texts(ending) == [])
