# SPDX-License-Identifier: Apache-2.0
"""What a program does to our own things in its sandbox is its doing, and read as that."""

import json
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.harnesses.claude_code.command import Paths
from livery.domain.activations import Ending, Outcome, Stillness
from livery.ports.provided.activate_harness import COLLECTED_BYTES_MAX, READ_BYTES_MAX

from ...channel import processes
from ...environment_server.good_partners import eventually
from .test_runs import (
    ANSWER,
    BOUND_SECONDS,
    FINAL,
    INIT,
    SUCCESS,
    Runner,
    gap_codes,
    observed,
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


async def test_of_a_transcript_of_any_size_the_beginning_is_kept(
    runner: Runner,
) -> None:
    path, more = transcript(runner), 5 * 1024 * 1024
    script = f"""
{say(INIT, ANSWER)}
mkdir -p '{Path(path).parent}'
cat > '{path}' <<'END'
{ANSWER}
{FINAL}
END
truncate -s {COLLECTED_BYTES_MAX + more} '{path}'
"""

    ending = await runner(script)

    kept = await runner.artifact("transcript.jsonl")
    assert len(kept) == COLLECTED_BYTES_MAX
    assert kept.startswith(ANSWER.encode())
    assert texts(ending) == ["done"]
    codes = ["transcript_not_observed", "usage_not_observed"]
    assert gap_codes(ending) == codes
    dropped = COLLECTED_BYTES_MAX + more - READ_BYTES_MAX
    assert f"{dropped} bytes" in observed(ending)["gaps"][0]["detail"]


async def test_usage_from_a_transcript_that_was_read_in_part_is_told_as_such(
    runner: Runner,
) -> None:
    path = transcript(runner)
    script = f"""
{say(INIT, ANSWER)}
mkdir -p '{Path(path).parent}'
echo '{FINAL}' > '{path}'
filler='{{"type": "attachment", "text": "'
printf '%s' "$filler" >> '{path}'
head -c {READ_BYTES_MAX} /dev/zero | tr '\\0' x >> '{path}'
echo '"}}' >> '{path}'
"""

    ending = await runner(script)

    assert json.loads(ending.reply)["usage"]["output_tokens"] == 7
    codes = ["transcript_not_observed", "usage_not_observed"]
    assert gap_codes(ending) == codes


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


@pytest.mark.parametrize(
    ("is_boundary", "outcome"), [(True, Outcome.FAILED), (False, Outcome.CANCELLED)]
)
async def test_a_program_that_removes_all_of_ours_is_ended_and_measured(
    runner: Runner, is_boundary: bool, outcome: Outcome
) -> None:
    """Where the sandbox is no boundary, the host may have removed it."""
    token = processes.token()
    script = f"{say(INIT)}\nrm -rf '{runner.sandbox.scratch}'\nexec sleep {token}"
    activate, attempt = await runner.attempt(script)
    equipment = attrs.evolve(attempt.equipment, is_boundary=is_boundary)

    with anyio.fail_after(BOUND_SECONDS):
        ending = await activate(attrs.evolve(attempt, equipment=equipment))

    assert ending.outcome is outcome
    assert ending.stillness is Stillness.PROCESSES_SEEN_DEAD
    assert processes.with_word(token) == []


async def test_what_removed_all_of_ours_is_over_when_it_is_said_to_be_still(
    runner: Runner,
) -> None:
    token = processes.token()
    removed = Path(runner.sandbox.workdir, "removed")
    # What is removed may end the program at once: the word to look for comes first.
    script = (
        f"trap '' TERM\nsleep {token} &\nrm -rf '{runner.sandbox.scratch}'\n"
        f"touch '{removed}'\nwait"
    )
    activate, attempt = await runner.attempt(script)
    endings: list[Ending] = []

    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(activate, attempt)
            await processes.until_there(token)
            await eventually(removed.exists)
            endings.append(await activate.stop(attempt))
            left = processes.with_word(token)

    (ending,) = endings
    assert ending.outcome is Outcome.CANCELLED
    assert ending.stillness is Stillness.PROCESSES_SEEN_DEAD
    assert left == []
