# SPDX-License-Identifier: Apache-2.0
"""The harness `command`: any command line, the prompt in a file and a variable."""

import os
import time
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.harnesses.command import (
    EPISODE,
    MODEL,
    PROMPT,
    PROMPT_FILE,
    VARIABLE_BYTES_MAX,
    CommandHarness,
)
from livery.adapters.harnesses.readings import MESSAGE_BYTES_MAX
from livery.adapters.harnesses.requests import AGENT_TIMEOUT_SECONDS_MAX
from livery.domain.activations import Outcome
from livery.domain.digests import Json
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.required.harness import (
    Capture,
    Harness,
    HarnessRequest,
    Launch,
    Place,
    Reading,
    RequestRefused,
)
from livery.ports.required.sandbox import (
    Exited,
    ExitUnknown,
    How,
    Lost,
    NotStarted,
    Output,
    Signalled,
    TimedOut,
)

pytestmark = pytest.mark.anyio

PLACE = Place(workdir="/w", scratch="/s")
READ_IT = 'cat "$LIVERY_PROMPT_FILE"; printf "|%s" "${LIVERY_PROMPT-absent}"'
RUN_SECONDS = 30.0


def asking(input: Json, **parameters: Json) -> HarnessRequest:
    return HarnessRequest(
        episode=EpisodeId("r1", 2),
        task=TaskId("set", "one"),
        parameters={"input": input, **parameters},
    )


def harness(*argv: str, **fields: float) -> Harness:
    command: Harness = CommandHarness(argv=argv or ("agent",), **fields)  # type: ignore[arg-type]
    return command


async def prepared(request: HarnessRequest) -> Launch:
    return await harness().prepare(request, PLACE)


async def really_run(folder: Path, request: HarnessRequest, *argv: str) -> Capture:
    """Do what the use case does, on this host, without a supervisor."""
    launch = await harness(*argv).prepare(
        request, Place(workdir=str(folder), scratch=str(folder))
    )
    for file in launch.files:
        path = folder / file.path
        path.write_bytes(file.content)
        path.chmod(file.mode)
    assert launch.run is not None
    with anyio.fail_after(RUN_SECONDS):
        ended = await anyio.run_process(
            launch.run.argv,
            env={"PATH": os.environ["PATH"], **launch.run.env},
            stdin=None,
            input=b"",
            cwd=folder,
            check=False,
        )
    return Capture(
        how=Exited(ended.returncode),
        stdout=Output(head=ended.stdout, size=len(ended.stdout)),
        stderr=Output(head=ended.stderr, size=len(ended.stderr)),
    )


def text_of(reading: Reading) -> str:
    (item,) = reading.output
    (part,) = item["content"]  # type: ignore[misc, union-attr]
    return str(part["text"])  # type: ignore[index, call-overload]


async def test_the_prompt_is_in_a_file_and_in_a_variable() -> None:
    launch = await prepared(asking("Mend it.", model="m1"))

    (file,) = launch.files
    assert (file.path, file.content, file.mode) == ("/s/prompt.txt", b"Mend it.", 0o600)
    assert launch.run is not None
    assert launch.run.argv == ("agent",)
    assert launch.run.env == {
        PROMPT: "Mend it.",
        PROMPT_FILE: "/s/prompt.txt",
        MODEL: "m1",
        EPISODE: "r1-a2",
    }


@pytest.mark.case("FC-203")
async def test_a_long_prompt_is_in_the_file_alone(tmp_path: Path) -> None:
    prompt = "x" * 300_000

    capture = await really_run(tmp_path, asking(prompt), "sh", "-c", READ_IT)

    assert capture.stdout.head.decode() == f"{prompt}|absent"


@pytest.mark.case("FC-203")
@pytest.mark.parametrize("surplus", [0, 1])
async def test_the_longest_prompt_for_a_variable_is_one_that_the_kernel_takes(
    tmp_path: Path, surplus: int
) -> None:
    room = VARIABLE_BYTES_MAX - len(f"{PROMPT}=\0")
    prompt = "x" * (room + surplus)

    capture = await really_run(tmp_path, asking(prompt), "sh", "-c", READ_IT)

    told = "absent" if surplus else prompt
    assert capture.stdout.head.decode() == f"{prompt}|{told}"


async def test_a_users_own_variable_does_not_pose_as_the_prompt() -> None:
    command = CommandHarness(argv=("agent",), env={PROMPT: "old", "A": "b"})

    launch = await command.prepare(asking("x" * VARIABLE_BYTES_MAX), PLACE)

    assert launch.run is not None
    assert PROMPT not in launch.run.env
    assert launch.run.env["A"] == "b"


@pytest.mark.case("FC-204")
@pytest.mark.parametrize("prompt", ["--help", "-p", "--", "-", "$(id)", "`id`", "a\nb"])
async def test_a_prompt_is_text_whatever_it_begins_with(
    tmp_path: Path, prompt: str
) -> None:
    capture = await really_run(tmp_path, asking(prompt), "sh", "-c", READ_IT)

    assert capture.stdout.head.decode() == f"{prompt}|{prompt}"


@pytest.mark.case("FC-205")
async def test_a_command_that_reads_to_the_end_of_its_input_ends(
    tmp_path: Path,
) -> None:
    before = time.monotonic()

    capture = await really_run(tmp_path, asking("p"), "sh", "-c", "cat; echo done")

    assert capture.stdout.head == b"done\n"
    assert time.monotonic() - before < RUN_SECONDS


async def test_messages_become_one_prompt_in_their_order() -> None:
    parts: Json = [
        {"type": "input_text", "text": "two"},
        {"type": "text", "text": "three"},
    ]
    launch = await prepared(
        asking(
            [
                {"role": "system", "content": "one", "type": "message"},
                {"role": "user", "content": parts, "phase": None, "id": "x"},
            ],
            instructions="zero",
        )
    )

    assert launch.files[0].content == b"zero\n\none\n\ntwo\n\nthree"


async def test_what_asks_for_nothing_is_accepted() -> None:
    harness().check(
        asking(
            "p",
            tools=[],
            tool_choice="auto",
            parallel_tool_calls=True,
            stream=False,
            temperature=None,
            metadata={"agent_timeout_sec": None},
        )
    )


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": "\ud800"}, "input"),
        ({"input": ["text"]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"type": "function_call_output", "output": "x"}]},
            "input[0].type",
        ),
        (
            {"input": [{"role": "user", "content": "x", "name": "y"}]},
            "input[0].name",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0].text",
        ),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"temperature": 0.0}, "temperature"),
        ({"max_output_tokens": 5}, "max_output_tokens"),
        ({"stream": True}, "stream"),
        ({"model": 5}, "model"),
        ({"instructions": []}, "instructions"),
        ({"nonsense": 1}, "nonsense"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"agent_timeout": 5}}, "metadata.agent_timeout"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_field(
    fields: dict[str, Json], path: str
) -> None:
    request = asking("p")
    request = attrs.evolve(request, parameters={**request.parameters, **fields})

    with pytest.raises(RequestRefused) as caught:
        harness().check(request)

    assert caught.value.field == f"responses_create_params.{path}"
    assert caught.value.reason


@pytest.mark.case("FC-258")
@pytest.mark.parametrize(
    "seconds",
    [
        0,
        -1,
        1e12,
        float("inf"),
        float("nan"),
        "1.5s",
        "nan",
        "inf",
        "1_0",
        "",
        True,
        [],
        10**400,
    ],
)
def test_a_timeout_that_is_no_duration_is_refused(seconds: Json) -> None:
    with pytest.raises(RequestRefused) as caught:
        harness().check(asking("p", metadata={"agent_timeout_sec": seconds}))

    assert caught.value.field == "responses_create_params.metadata.agent_timeout_sec"
    assert f"{AGENT_TIMEOUT_SECONDS_MAX:g}" in caught.value.reason


@pytest.mark.case("FC-258")
@pytest.mark.parametrize(
    ("asked", "got"),
    [(1.5, 1.5), ("1.5", 1.5), ("20", 20.0), (500, 60.0), (None, 60.0)],
)
async def test_a_timeout_caps_the_run_and_never_lengthens_it(
    asked: Json, got: float
) -> None:
    launch = await harness("agent", timeout_seconds=60.0).prepare(
        asking("p", metadata={"agent_timeout_sec": asked}), PLACE
    )

    assert launch.run is not None
    assert launch.run.timeout_seconds == got


@pytest.mark.case("FC-247")
@pytest.mark.parametrize(
    ("how", "outcome", "status"),
    [
        (Exited(0), Outcome.COMPLETED, "completed"),
        (Exited(3), Outcome.FAILED, "failed"),
        (Signalled(9), Outcome.FAILED, "failed"),
        (TimedOut(5.0), Outcome.TIMEOUT, "incomplete"),
        (NotStarted("no such program"), Outcome.SANDBOX_ERROR, "unknown"),
        (ExitUnknown("out of sight"), Outcome.SANDBOX_ERROR, "unknown"),
        (Lost("removed"), Outcome.SANDBOX_ERROR, "unknown"),
        (Lost("out of memory"), Outcome.OOM, "failed"),
        (None, Outcome.SANDBOX_ERROR, "unknown"),
    ],
)
async def test_the_outcome_follows_the_evidence(
    how: How | None, outcome: Outcome, status: str
) -> None:
    reading = await harness().read(asking("p"), Capture(how=how, duration_seconds=2.0))

    assert reading.outcome is outcome
    (record,) = reading.observations.records
    assert record["status"] == status
    assert record["duration_ms"] == (None if how is None else 2000.0)
    assert bool(reading.reason) == (outcome is not Outcome.COMPLETED)
    if isinstance(how, NotStarted | ExitUnknown | Lost):
        assert how.reason in reading.reason


async def test_a_stopped_command_is_cancelled_however_it_ended() -> None:
    capture = Capture(how=ExitUnknown("stopped"), stopped=True)

    assert (await harness().read(asking("p"), capture)).outcome is Outcome.CANCELLED


async def test_the_output_is_the_message_and_the_last_complaint_the_reason(
    tmp_path: Path,
) -> None:
    script = "echo said; echo first >&2; echo last >&2; exit 3"
    capture = await really_run(tmp_path, asking("p"), "sh", "-c", script)

    reading = await harness().read(asking("p"), capture)

    assert text_of(reading) == "said\n"
    assert reading.reason == "the command exited with status 3; last"


async def test_a_command_that_said_nothing_has_no_message() -> None:
    assert (await harness().read(asking("p"), Capture(how=Exited(0)))).output == ()


@pytest.mark.parametrize(
    "stdout",
    [
        Output(head=b"a" * 100_000, size=100_000),
        Output(head=b"a" * 50_000, tail=b"a" * 50_000, size=10_000_000),
        Output(head=b"a" * 50, tail=b"a" * 50, size=101),
    ],
)
async def test_a_cut_message_says_how_much_is_missing(stdout: Output) -> None:
    reading = await harness().read(asking("p"), Capture(how=Exited(0), stdout=stdout))

    note, _, rest = text_of(reading).partition("\n")
    assert len(rest) <= MESSAGE_BYTES_MAX
    assert note == f"[{stdout.size - len(rest)} bytes before this are left out]"
    assert "output_cut" in [gap["code"] for gap in reading.observations.gaps]


async def test_what_is_not_observed_is_said() -> None:
    reading = await harness().read(asking("p"), Capture(how=Lost("gone")))

    codes = {gap["code"] for gap in reading.observations.gaps}
    assert codes == {
        "model_calls_not_observed",
        "tool_calls_not_observed",
        "end_not_observed",
    }


def test_a_command_without_words_is_no_command() -> None:
    with pytest.raises(ValueError, match="argv"):
        CommandHarness(argv=())
