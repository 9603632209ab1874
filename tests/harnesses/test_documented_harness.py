# SPDX-License-Identifier: Apache-2.0
"""The harness on the page for authors works as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest

from livery.adapters.harnesses import command
from livery.domain.activations import Outcome
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.required.harness import (
    Capture,
    Harness,
    HarnessRequest,
    Place,
    RequestRefused,
)
from livery.ports.required.sandbox import (
    Exited,
    How,
    Lost,
    NotStarted,
    Output,
    Signalled,
    TimedOut,
)

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "authors" / "harnesses.md"
TEXT = PAGE.read_text(encoding="utf-8")
PLACE = Place(workdir="/w", scratch="/s")


def documented() -> Harness:
    codes = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    space: dict[str, Any] = {"__name__": "documented"}
    exec(compile("\n".join(codes), str(PAGE), "exec"), space)
    harness: Harness = space["ReviewerHarness"]()
    return harness


def asking(**parameters: Any) -> HarnessRequest:
    return HarnessRequest(
        episode=EpisodeId("r"), task=TaskId("s", "t"), parameters=parameters
    )


async def test_it_runs_its_program_on_the_text() -> None:
    launch = await documented().prepare(asking(input="look"), PLACE)

    assert launch.files[0].content == b"look"
    assert launch.run is not None
    assert launch.run.argv == ("reviewer", "--prompt-file", launch.files[0].path)


async def test_it_refuses_what_it_cannot_honour() -> None:
    with pytest.raises(RequestRefused, match=r"responses_create_params\.input"):
        documented().check(asking(input=[]))


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        (Exited(0), Outcome.COMPLETED),
        (Exited(1), Outcome.FAILED),
        (Signalled(9), Outcome.FAILED),
        (TimedOut(1.0), Outcome.TIMEOUT),
        (NotStarted("x"), Outcome.SANDBOX_ERROR),
        (Lost("x"), Outcome.SANDBOX_ERROR),
        (None, Outcome.SANDBOX_ERROR),
    ],
)
async def test_it_reads_how_its_program_ended(
    how: How | None, outcome: Outcome
) -> None:
    capture = Capture(how=how, stdout=Output(head=b"fine", size=4))

    reading = await documented().read(asking(input="x"), capture)

    assert reading.outcome is outcome
    assert "fine" in str(reading.output)
    assert reading.observations.gaps


def test_the_variables_on_the_page_are_the_ones_that_are_set() -> None:
    told = set(re.findall(r"^\| `(LIVERY_\w+)`", TEXT, re.MULTILINE))

    assert told == {command.PROMPT, command.PROMPT_FILE, command.MODEL, command.EPISODE}
