# SPDX-License-Identifier: Apache-2.0
"""What the real program wrote is read as what happened, one capture after the other."""

import json
from typing import Any

import attrs
import jsonschema
import pytest

from livery.adapters.harnesses.claude_code.transcripts import TRANSCRIPT
from livery.domain.activations import Outcome
from livery.ports.required.harness import Reading
from livery.ports.required.sandbox import Exited, Output

from ..test_wire_shapes import bundle_schema, needs_transcripts
from .captures import gaps, left, needs_captures, output, read, recorded, records

pytestmark = [pytest.mark.anyio, needs_captures]


@attrs.frozen(kw_only=True)
class Told:
    """What is expected of one capture."""

    outcome: Outcome = Outcome.COMPLETED
    code: int = 0
    error_type: str | None = None
    upstream_failed: bool = False
    tools: tuple[tuple[str, str], ...] = ()
    gaps: tuple[str, ...] = ()
    tokens: tuple[int, int] | None = None
    """Read and written."""
    text: str = ""
    """Of the last message."""


EXPECTED = {
    "success-write-bash-edit": Told(
        tools=(("Write", "completed"), ("Bash", "completed"), ("Edit", "completed")),
        tokens=(48638, 155),
        text="Done.",
    ),
    "tool-errors-parallel": Told(
        tools=(
            ("Bash", "failed"),
            ("Read", "failed"),
            ("NoSuchTool", "failed"),
            ("Bash", "failed"),
        ),
        tokens=(24908, 118),
        text="after",
    ),
    "partial-messages": Told(
        tools=(("Bash", "completed"),), tokens=(24674, 51), text="end"
    ),
    "subagent": Told(
        tools=(("Agent", "completed"), ("Bash", "completed")),
        tokens=(41965, 97),
        text="end",
    ),
    "background-task-two-results": Told(
        tools=(("Bash", "completed"),), tokens=(37423, 54), text="second"
    ),
    "mcp-http": Told(
        tools=(("mcp__fk__echo_upper", "completed"),),
        gaps=("tool_server_unreachable",),
        tokens=(25138, 36),
        text="x",
    ),
    "bare-three-tools": Told(
        tools=(("Write", "failed"), ("Bash", "completed"), ("Edit", "failed")),
        text="Done.",
    ),
    "error-max-turns": Told(
        outcome=Outcome.INCOMPLETE,
        code=1,
        error_type="max_turns",
        tools=(("Bash", "completed"), ("Bash", "completed")),
        tokens=(24669, 72),
        text="loop",
    ),
    "api-401": Told(
        outcome=Outcome.FAILED,
        code=1,
        error_type="model_error_401",
        upstream_failed=True,
    ),
    "api-429-retry-after": Told(tokens=(12298, 9), text="ok after"),
    "connection-dropped-default-retries": Told(
        outcome=Outcome.FAILED, code=1, error_type="model_error", upstream_failed=True
    ),
    "max-tokens-resume": Told(text="end"),
    "refusal": Told(text="end"),
    "sigint-mid-tool": Told(
        outcome=Outcome.FAILED,
        error_type="aborted_tools",
        tools=(("Bash", "cancelled"),),
        text="sleeping",
    ),
    "sigterm-mid-stream": Told(
        outcome=Outcome.FAILED,
        code=143,
        error_type="exit",
        gaps=("transcript_not_observed",),
    ),
    "non-utf8-tool-output": Told(tools=(("Bash", "completed"),)),
}


def tools_of(reading: Reading) -> tuple[tuple[str, str], ...]:
    calls = records(reading, "tool_call")
    return tuple((call["tool_name"], call["status"]) for call in calls)


def texts_of(reading: Reading) -> list[str]:
    found: list[str] = []
    for item in reading.output:
        if item["type"] == "message":
            (part,) = item["content"]  # type: ignore[misc, union-attr]
            found.append(str(part["text"]))  # type: ignore[index, call-overload]
    return found


def tokens_of(reading: Reading) -> tuple[object, object] | None:
    usage = reading.usage
    return None if usage is None else (usage["input_tokens"], usage["output_tokens"])


@pytest.mark.parametrize("name", sorted(EXPECTED))
async def test_a_capture_is_read_as_what_happened(name: str) -> None:
    told = EXPECTED[name]

    reading = await read(left(recorded(name), code=told.code))

    assert reading.outcome is told.outcome, reading.reason
    assert reading.upstream_failed is told.upstream_failed
    assert records(reading, "agent_invocation")[0]["error_type"] == told.error_type
    assert gaps(reading) == list(told.gaps)
    if told.tools:
        assert tools_of(reading) == told.tools
    if told.tokens is not None:
        assert tokens_of(reading) == told.tokens
    if told.text:
        assert texts_of(reading)[-1] == told.text
    assert (reading.reason == "") is (told.outcome is Outcome.COMPLETED)
    json.dumps(reading.output, allow_nan=False).encode()


@needs_transcripts
@pytest.mark.parametrize("name", sorted(EXPECTED))
async def test_the_bundle_of_a_capture_keeps_to_the_recorded_schema(name: str) -> None:
    found = (await read(left(recorded(name)))).observations

    bundle: Any = {
        "source": found.source,
        "records": json.loads(json.dumps(found.records)),
        "gaps": list(found.gaps),
    }
    jsonschema.validate(bundle, bundle_schema())


async def test_calls_and_answers_are_items_with_the_programs_own_ids() -> None:
    reading = await read(left(recorded("success-write-bash-edit")))

    kinds = [item["type"] for item in reading.output]
    pair = ["function_call", "function_call_output"]
    assert kinds == ["message", *pair, "message", *pair, *pair, "message"]
    call, answer = reading.output[1], reading.output[2]
    assert call["call_id"] == answer["call_id"] == "toolu_40616b54648648a28c85ad87"
    assert json.loads(str(call["arguments"])) == {
        "file_path": "/workspace/hello.txt",
        "content": "hello\n",
    }
    assert str(answer["output"]).startswith("File created successfully")


async def test_tool_calls_have_their_times() -> None:
    reading = await read(left(recorded("success-write-bash-edit")))

    for call in records(reading, "tool_call"):
        assert call["timing_source"] == "harness"
        assert call["completed_at"] >= call["started_at"] > 1.7e9
        assert 0 <= call["duration_ms"] < 5000


@pytest.mark.parametrize("name", ["api-401", "connection-dropped-default-retries"])
async def test_a_failing_model_is_no_answer_of_the_model(name: str) -> None:
    # The second time as the program once did it: with status 0.
    for code in (1, 0):
        reading = await read(left(recorded(name), code=code))

        assert reading.upstream_failed
        assert reading.output == ()
        assert reading.outcome is Outcome.FAILED


async def test_a_subagent_is_an_invocation_of_its_own() -> None:
    reading = await read(left(recorded("subagent")))

    root, sub = records(reading, "agent_invocation")
    assert root["parent_invocation_id"] is None
    assert sub["parent_invocation_id"] == "root"
    assert sub["spawned_by_tool_call_id"] == "toolu_d04c5e7c7ad0400587d8a953"
    assert (sub["status"], sub["duration_ms"]) == ("completed", 849)
    assert [item["type"] for item in sub["conversation"]] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert sub["conversation"][-1]["content"][0]["text"] == "sub final"
    (own,) = [
        call
        for call in records(reading, "tool_call")
        if call["invocation_id"] == sub["invocation_id"]
    ]
    assert own["tool_name"] == "Bash"


async def test_the_transcript_fills_what_the_output_lacks() -> None:
    whole = recorded("success-write-bash-edit")
    lines = whole.splitlines(keepends=True)
    files = {TRANSCRIPT: output(recorded("transcript-of-success"))}
    short = b"".join(lines[:3])

    reading = await read(left(short, how=Exited(143), files=files))

    assert reading.output == (await read(left(whole))).output
    assert tokens_of(reading) == (48638, 155)
    assert gaps(reading) == []


async def test_what_both_sources_tell_is_told_once() -> None:
    whole = recorded("success-write-bash-edit")
    files = {TRANSCRIPT: output(recorded("transcript-of-success"))}

    both = await read(left(whole, files=files))

    assert both == await read(left(whole))


async def test_an_output_cut_in_the_middle_is_filled_in_its_order() -> None:
    whole = recorded("success-write-bash-edit")
    third = len(whole) // 3
    cut = Output(head=whole[:third], tail=whole[-third:], size=len(whole))
    files = {TRANSCRIPT: output(recorded("transcript-of-success"))}
    capture = attrs.evolve(left(whole, files=files), stdout=cut)

    reading = await read(capture)

    assert reading.output == (await read(left(whole))).output
    assert gaps(reading) == ["output_cut"]
    assert reading.outcome is Outcome.COMPLETED


async def test_nothing_of_ours_hangs_on_the_programs_session_id() -> None:
    whole = recorded("success-write-bash-edit")
    lines = whole.splitlines(keepends=True)
    other = lines[-1].replace(b"a1adddaf-1d29", b"99999999-1d29")

    assert await read(left(b"".join([*lines[:-1], other]))) == await read(left(whole))
