# SPDX-License-Identifier: Apache-2.0
"""How a run ended is told by all the evidence, and what was seen by what there is."""

import json
from typing import Any

import pytest

from livery.adapters.harnesses.claude_code.events import written
from livery.adapters.harnesses.claude_code.transcripts import TRANSCRIPT
from livery.domain.activations import Outcome
from livery.domain.deciders import Instant
from livery.domain.digests import Json
from livery.ports.required.harness import (
    Capture,
    EarlyEnd,
    Reading,
    ToolAccess,
    ToolTransport,
)
from livery.ports.required.model_access import CallEnd, ModelCall, ModelRecord
from livery.ports.required.sandbox import (
    Exited,
    ExitUnknown,
    How,
    Lost,
    NotStarted,
    Signalled,
    TimedOut,
)

from .captures import asking, gaps, harness, left, output, read, records

pytestmark = pytest.mark.anyio

Event = dict[str, Json]

INIT: Event = {
    "type": "system",
    "subtype": "init",
    "session_id": "s",
    "model": "m1",
    "mcp_servers": [{"name": "tools", "status": "failed"}, "odd"],
}
RETRY: Event = {"type": "system", "subtype": "api_retry", "attempt": 1}
SUCCESS: Event = {"type": "result", "subtype": "success", "is_error": False}


def said(*blocks: Event, id: str = "msg_1", **more: Json) -> Event:
    message: Json = {"id": id, "model": "m1", "content": list(blocks)}
    return {"type": "assistant", "message": message, **more}


def text(words: str) -> Event:
    return {"type": "text", "text": words}


def call(id: str = "t1", name: str = "Bash") -> Event:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def answered(id: str = "t1", content: Json = "ok", **more: Json) -> Event:
    error = more.pop("is_error", None)
    block: Event = {"type": "tool_result", "tool_use_id": id, "content": content}
    if error is not None:
        block["is_error"] = error
    return {"type": "user", "message": {"content": [block]}, **more}


def lines(*events: Event) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def ran(*events: Event, how: How | None = None, **fields: Any) -> Capture:
    return left(lines(*events), how=how or Exited(0), **fields)


WORKED = (INIT, said(text("done")), SUCCESS)


@pytest.mark.parametrize(
    ("capture", "outcome"),
    [
        (ran(*WORKED), Outcome.COMPLETED),
        (ran(*WORKED, stopped=True), Outcome.CANCELLED),
        (ran(*WORKED, how=Lost("gone")), Outcome.SANDBOX_ERROR),
        (ran(*WORKED, how=Lost("out of memory")), Outcome.OOM),
        (ran(how=NotStarted("no such program")), Outcome.SANDBOX_ERROR),
        (Capture(how=None), Outcome.SANDBOX_ERROR),
        (ran(INIT, how=ExitUnknown("killed")), Outcome.SANDBOX_ERROR),
        (ran(*WORKED, how=ExitUnknown("killed")), Outcome.COMPLETED),
        (ran(*WORKED, how=TimedOut(9.0)), Outcome.COMPLETED),
        (ran(*WORKED, how=Exited(1)), Outcome.FAILED),
        (ran(*WORKED, how=Signalled(9)), Outcome.FAILED),
        (ran(INIT, said(text("x")), how=TimedOut(9.0)), Outcome.TIMEOUT),
        (ran(INIT, said(text("x"))), Outcome.INCOMPLETE),
        (ran(INIT, said(text("x")), how=Exited(1)), Outcome.FAILED),
        (ran(INIT, said(text("x")), how=Signalled(11)), Outcome.FAILED),
        (ran(how=Exited(1)), Outcome.SANDBOX_ERROR),
        (ran(how=Exited(0)), Outcome.INCOMPLETE),
    ],
)
async def test_the_receipt_and_the_result_are_weighed(
    capture: Capture, outcome: Outcome
) -> None:
    reading = await read(capture)

    assert reading.outcome is outcome, reading.reason
    assert not reading.upstream_failed
    assert bool(reading.reason) is (outcome is not Outcome.COMPLETED)


@pytest.mark.case("FC-214")
async def test_the_program_s_own_session_id_changes_nothing_of_ours() -> None:
    def named(id: str) -> Capture:
        return ran(*({**event, "session_id": id} for event in WORKED))

    assert await read(named("first")) == await read(named("resumed"))


@pytest.mark.parametrize(
    ("fields", "outcome", "error_type"),
    [
        ({"subtype": "error_max_turns"}, Outcome.INCOMPLETE, "max_turns"),
        ({"terminal_reason": "max_turns"}, Outcome.INCOMPLETE, "max_turns"),
        ({"subtype": "error_max_budget_usd"}, Outcome.INCOMPLETE, "budget"),
        (
            {"subtype": "error_during_execution", "errors": ["why", 5]},
            Outcome.FAILED,
            "error_during_execution",
        ),
        ({"subtype": None}, Outcome.FAILED, "unknown_result"),
        ({"subtype": "error_of_tomorrow"}, Outcome.FAILED, "error_of_tomorrow"),
    ],
)
async def test_a_result_that_is_no_success(
    fields: Event, outcome: Outcome, error_type: str
) -> None:
    result: Event = {"type": "result", "is_error": True, **fields}

    reading = await read(ran(INIT, said(text("x")), result, how=Exited(1)))

    assert (reading.outcome, reading.upstream_failed) == (outcome, False)
    assert records(reading, "agent_invocation")[0]["error_type"] == error_type
    assert reading.reason


@pytest.mark.case("FC-196")
@pytest.mark.parametrize(
    ("status", "words", "outcome"),
    [
        (401, "no", Outcome.FAILED),
        (429, "slow down", Outcome.FAILED),
        (500, "context length exceeded, says a broken server", Outcome.FAILED),
        (None, "", Outcome.FAILED),
        (400, "bad field", Outcome.FAILED),
        (400, "prompt is too long: 300000 tokens > 200000", Outcome.INCOMPLETE),
        (400, "This model's maximum context length is 4096", Outcome.INCOMPLETE),
        (413, "too large", Outcome.INCOMPLETE),
    ],
)
async def test_an_error_of_the_model_is_told_from_a_prompt_that_grew_too_long(
    status: int | None, words: str, outcome: Outcome
) -> None:
    result: Event = {
        **SUCCESS,
        "is_error": True,
        "api_error_status": status,
        "result": words,
    }
    failed = said(text(words), error="x", api_error_status=status)
    failed["message"] = {"model": "<synthetic>", "content": [text(words)]}

    by_result = await read(ran(INIT, result, how=Exited(1)))
    by_message = await read(ran(INIT, failed, how=Exited(1)))

    for reading in (by_result, by_message):
        assert reading.outcome is outcome
        assert reading.upstream_failed is (outcome is Outcome.FAILED)
        assert reading.output == ()


@pytest.mark.case("FC-191")
@pytest.mark.parametrize(
    ("end", "outcome", "upstream"),
    [
        (CallEnd.CONTEXT_LENGTH, Outcome.INCOMPLETE, False),
        (CallEnd.NOT_FORWARDED, Outcome.INCOMPLETE, False),
        (CallEnd.THROTTLED, Outcome.FAILED, True),
        (CallEnd.REQUEST_REFUSED, Outcome.FAILED, True),
    ],
)
async def test_the_gateways_word_on_the_last_call_goes_first(
    end: CallEnd, outcome: Outcome, upstream: bool
) -> None:
    def one(end: CallEnd, *, is_side: bool = False) -> ModelCall:
        return ModelCall(
            number=1, at=Instant(1), method="POST", path="/", end=end, is_side=is_side
        )

    record = ModelRecord(
        calls=2,
        failures=1,
        entries=(one(CallEnd.ANSWERED), one(end), one(CallEnd.CUT, is_side=True)),
    )
    words = "context length" if end is CallEnd.THROTTLED else "no"
    result: Event = {**SUCCESS, "is_error": True, "result": words}

    reading = await read(ran(INIT, said(text("x")), result, model=record))

    assert (reading.outcome, reading.upstream_failed) == (outcome, upstream)


async def test_a_success_without_a_model_is_none() -> None:
    made_up = said(text("/compact isn't available"))
    made_up["message"] = {"model": "<synthetic>", "content": [text("no")]}

    reading = await read(ran(INIT, made_up, SUCCESS))

    assert reading.outcome is Outcome.FAILED
    assert reading.upstream_failed


@pytest.mark.case("FC-195")
@pytest.mark.parametrize(
    ("events", "upstream"),
    [
        ((INIT,), True),
        ((INIT, said(call()), answered()), True),
        ((INIT, said(call())), False),
        ((), False),
    ],
)
async def test_whose_silence_it_was(events: tuple[Event, ...], upstream: bool) -> None:
    how = ExitUnknown("ended")
    capture = ran(*events, how=how, ended_early=EarlyEnd.SILENCE)

    reading = await read(capture)

    assert reading.outcome is Outcome.TIMEOUT
    assert reading.upstream_failed is upstream


async def test_time_that_ran_out_over_a_failing_model_is_not_the_agents() -> None:
    record = ModelRecord(calls=2, failures=2)

    retrying = await read(ran(INIT, said(text("x")), RETRY, how=TimedOut(9.0)))
    never = await read(ran(INIT, how=TimedOut(9.0), model=record))
    once = await read(ran(INIT, said(text("x")), how=TimedOut(9.0), model=record))
    ended = await read(ran(INIT, RETRY, how=Exited(1)))

    assert [one.upstream_failed for one in (retrying, never, once, ended)] == [
        True,
        True,
        False,
        True,
    ]
    assert ended.outcome is Outcome.FAILED


def access(name: str, *, required: bool) -> ToolAccess:
    return ToolAccess(
        transport=ToolTransport.MCP, name=name, url="http://x", required=required
    )


@pytest.mark.parametrize(
    ("granted", "outcome", "gap"),
    [
        ((access("tools", required=True),), Outcome.SANDBOX_ERROR, False),
        ((access("tools", required=False),), Outcome.COMPLETED, True),
        ((access("others", required=True),), Outcome.COMPLETED, True),
        ((), Outcome.COMPLETED, True),
    ],
)
async def test_a_required_tool_server_that_was_not_reached_spoils_the_run(
    granted: tuple[ToolAccess, ...], outcome: Outcome, gap: bool
) -> None:
    reading = await harness().read(asking(accesses=granted), ran(*WORKED))

    assert reading.outcome is outcome
    assert ("tool_server_unreachable" in gaps(reading)) is gap


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("pending", Outcome.SANDBOX_ERROR), ("connected", Outcome.COMPLETED)],
)
async def test_a_required_tool_server_that_was_not_there_at_first_spoils_it_too(
    status: str, outcome: Outcome
) -> None:
    """The model was asked without its tools."""
    begun = {**INIT, "mcp_servers": [{"name": "tools", "status": status}]}
    worked = (begun, *WORKED[1:])
    granted = (access("tools", required=True),)

    reading = await harness().read(asking(accesses=granted), ran(*worked))

    assert reading.outcome is outcome


@pytest.mark.case("FC-215")
async def test_a_turn_limit_shows_in_the_turns() -> None:
    events = (INIT, said(text("a"), id="1"), said(text("b"), id="2"))

    spent = await read(ran(*events, how=Exited(1)), max_turns=2)
    free = await read(ran(*events, how=Exited(1)), max_turns=None)

    assert (spent.outcome, free.outcome) == (Outcome.INCOMPLETE, Outcome.FAILED)


def items_of(reading: Reading) -> list[Any]:
    return [
        item["content"][0]["text"] if item["type"] == "message" else item["type"]  # type: ignore[index, call-overload]
        for item in reading.output
    ]


async def test_thinking_comes_before_the_next_message() -> None:
    def thought(words: str) -> Event:
        return {"type": "thinking", "thinking": words, "signature": "x"}

    reading = await read(
        ran(
            INIT,
            said(thought("one"), id="1"),
            said(call(), id="1"),
            answered(),
            said(thought("two"), {"type": "redacted_thinking"}, text("hello"), id="2"),
            said(thought("three"), thought(""), id="3"),
            SUCCESS,
        )
    )

    assert items_of(reading) == [
        "function_call",
        "function_call_output",
        "<think>one</think>\n<think>two</think>\nhello",
        "<think>three</think>\n",
    ]


@pytest.mark.parametrize(
    ("event", "status", "error_type"),
    [
        (answered(), "completed", None),
        (answered(is_error=True, content="Exit code 3"), "failed", "exit_code"),
        (answered(is_error=True, content="x"), "failed", "error"),
        (
            answered(is_error=True, content="<tool_use_error>No</tool_use_error>"),
            "failed",
            "tool_use_error",
        ),
        (
            answered(
                is_error=True, content="Exit code 143\nCommand timed out after 2s"
            ),
            "timeout",
            "timeout",
        ),
        (answered(tool_use_result={"interrupted": True}), "cancelled", "interrupted"),
        (
            answered(tool_result_meta=["odd", {"non_execution_kind": "user-rejected"}]),
            "cancelled",
            "user-rejected",
        ),
        (answered(id="another"), "incomplete", None),
    ],
)
async def test_how_a_tool_ended(
    event: Event, status: str, error_type: str | None
) -> None:
    reading = await read(ran(INIT, said(call()), event, SUCCESS))

    (record,) = records(reading, "tool_call")
    assert (record["status"], record["error_type"]) == (status, error_type)


async def test_a_call_or_answer_that_comes_twice_counts_once() -> None:
    events = (said(call()), said(call()), answered(content="a"), answered(content="b"))

    reading = await read(ran(INIT, *events, SUCCESS))

    assert items_of(reading) == ["function_call", "function_call_output"]
    assert reading.output[1]["output"] == "a"


async def test_times_that_cannot_be_are_left_out() -> None:
    late, early = "2026-11-29T14:00:05Z", "2026-11-29T14:00:00Z"

    reading = await read(
        ran(
            INIT,
            said(call("t1"), timestamp=late),
            answered("t1", timestamp=early),
            said(call("t2"), timestamp="yesterday"),
            answered("t2", timestamp=late),
            SUCCESS,
        )
    )

    first, second = records(reading, "tool_call")
    assert (first["completed_at"], first["duration_ms"]) == (None, None)
    assert (second["started_at"], second["timing_source"]) == (None, None)


async def test_what_a_tool_gave_back_is_text_and_says_what_is_none() -> None:
    content: Json = [text("a"), {"type": "image"}, "odd", {}, text("\ud83d half")]

    reading = await read(ran(INIT, said(call()), answered(content=content), SUCCESS))

    assert reading.output[1]["output"] == "a\n[image]\n[unknown]\n\ufffd half"


async def test_compactions_are_observed() -> None:
    def boundary(**more: Json) -> Event:
        return {"type": "system", "subtype": "compact_boundary", **more}

    events = (
        boundary(
            compact_metadata={"trigger": "auto", "pre_tokens": 9, "post_tokens": 0},
            timestamp="2026-11-29T14:00:00Z",
        ),
        boundary(compactMetadata={"trigger": "manual", "preTokens": 7}),
        boundary(),
    )

    reading = await read(ran(INIT, *events, said(text("x")), SUCCESS))

    told = [
        (one["trigger"], one["tokens_before"], one["tokens_after"])
        for one in records(reading, "context_compaction")
    ]
    assert told == [("auto", 9, 0), ("manual", 7, None), (None, None, None)]


def of_subagent(event: Event, call: str = "t1") -> Event:
    return {**event, "parent_tool_use_id": call}


async def test_a_subagents_own_subagent_is_its_child() -> None:
    reading = await read(
        ran(
            INIT,
            said(call("t1", "Agent")),
            of_subagent(said(call("t2", "Agent"), id="2")),
            of_subagent(said(text("deep"), id="3"), "t2"),
            of_subagent(answered("t2", tool_use_result={"status": "completed"})),
            of_subagent(said(text("well"), id="4")),
            answered("t1", is_error=True),
            SUCCESS,
        )
    )

    told = [
        (one["invocation_id"], one["parent_invocation_id"], one["status"])
        for one in records(reading, "agent_invocation")
    ]
    assert told == [
        ("root", None, "completed"),
        ("subagent-t1", "root", "failed"),
        ("subagent-t2", "subagent-t1", "completed"),
    ]
    assert "subagent_not_observed" not in gaps(reading)


async def test_a_subagent_that_told_nothing_is_a_gap() -> None:
    notice: Event = {
        "type": "system",
        "subtype": "task_notification",
        "tool_use_id": "t1",
        "status": "completed",
    }

    reading = await read(
        ran(
            INIT,
            said(call("t1", "Agent")),
            of_subagent({"type": "user", "message": {"content": "Do it"}}),
            notice,
            SUCCESS,
        )
    )

    assert "subagent_not_observed" in gaps(reading)
    assert records(reading, "agent_invocation")[1]["status"] == "completed"


async def test_usage_comes_from_the_best_source() -> None:
    one: Event = {**SUCCESS, "usage": {"input_tokens": 1, "output_tokens": 2}}
    models: Json = {
        "a": {
            "inputTokens": 1,
            "outputTokens": 2,
            "cacheReadInputTokens": 4,
            "cacheCreationInputTokens": 8,
            "thinkingTokens": 1,
        },
        "b": {"inputTokens": 16},
        "odd": 5,
    }
    record = said(text("x"), id="1")
    record["message"] = {
        "id": "1",
        "model": "m1",
        "stop_reason": "end_turn",
        "content": [text("x")],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    files = {TRANSCRIPT: output(lines(record, record))}

    by_model = await read(ran(*WORKED[:2], {**one, "modelUsage": models}))
    summed = await read(ran(*WORKED[:2], one, one))
    from_transcript = await read(ran(INIT, how=Exited(1), files=files))
    nowhere = await read(ran(*WORKED[:2]))

    assert by_model.usage == {
        "input_tokens": 29,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 31,
    }
    assert summed.usage is not None
    assert summed.usage["total_tokens"] == 6
    assert from_transcript.usage is not None
    assert from_transcript.usage["total_tokens"] == 7
    assert nowhere.usage is None
    assert "usage_not_observed" in gaps(nowhere)


async def test_reasons_are_bounded() -> None:
    result: Event = {**SUCCESS, "is_error": True, "result": "x" * 10_000}

    reading = await read(ran(INIT, result))

    assert len(reading.reason) < 600


def test_what_is_nested_too_deeply_to_be_written_is_said() -> None:
    deep: dict[str, Json] = {}
    for _ in range(200_000):
        deep = {"a": deep}

    assert "too deeply" in written(deep)
    while deep:
        # Taken apart here: to be let go at once it is too deep as well.
        deep = deep["a"]  # type: ignore[assignment]
