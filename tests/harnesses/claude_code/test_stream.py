# SPDX-License-Identifier: Apache-2.0
"""The reader of the program's lines: it never raises, and loses no complete event."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.harnesses.claude_code import stream
from livery.adapters.harnesses.claude_code.stream import read_stream
from livery.domain.activations import Outcome
from livery.domain.digests import Json
from livery.ports.required.harness import Reading
from livery.ports.required.sandbox import Output

from .captures import gaps, left, needs_captures, output, read, recorded

pytestmark = pytest.mark.anyio

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
words = st.sampled_from(
    [
        "type",
        "subtype",
        "message",
        "content",
        "id",
        "usage",
        "text",
        "name",
        "input",
        "tool_use_id",
        "is_error",
        "parent_tool_use_id",
        "timestamp",
        "modelUsage",
        "mcp_servers",
        "tool_use_result",
        "compact_metadata",
        "errors",
        "model",
        "uuid",
    ]
)
values: st.SearchStrategy[Json] = st.recursive(
    leaves
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["tool_use", "tool_result", "text", "thinking", "success", "m"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5)
    ),
    max_leaves=12,
)
kinds = st.sampled_from(["assistant", "user", "system", "result", "news"])
events = st.builds(
    lambda kind, subtype, rest: {**rest, "subtype": subtype, "type": kind},
    kinds,
    st.sampled_from(["init", "compact_boundary", "task_notification", "success", "x"]),
    st.dictionaries(words, values, max_size=6),
)


def lines_of(found: list[dict[str, Json]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in found)


@given(st.lists(events, max_size=5), st.data())
def test_of_any_prefix_every_complete_event_is_found(
    found: list[dict[str, Json]], data: st.DataObject
) -> None:
    content = lines_of(found)
    end = data.draw(st.integers(0, len(content)))

    read_here = read_stream(output(content[:end]))

    complete = found[: content[:end].count(b"\n")]
    told = [one for one in complete if one["type"] != "news"]
    extra = len(read_here.events) - len(told)
    assert [dict(one) for one in read_here.events[: len(told)]] == told
    # The last line may be whole but for its end.
    assert extra in (0, 1)
    assert read_here.unreadable == 0


@given(st.binary(max_size=300))
def test_any_bytes_are_read(content: bytes) -> None:
    found = read_stream(output(content))

    assert found.unreadable + len(found.events) <= content.count(b"\n") + 1


@given(st.lists(events, max_size=6))
async def test_whatever_the_events_hold_the_reading_can_be_written(
    found: list[dict[str, Json]],
) -> None:
    reading: Reading = await read(left(lines_of(found), code=1))

    told = [*reading.output, *reading.observations.records, *reading.observations.gaps]
    json.dumps([told, reading.usage], allow_nan=False, ensure_ascii=False).encode()


@needs_captures
@given(st.data())
async def test_any_prefix_of_a_capture_is_read(data: st.DataObject) -> None:
    whole = recorded("subagent")
    end = data.draw(st.integers(0, len(whole) - 2))

    reading = await read(left(whole[:end], code=143))

    assert reading.outcome in (Outcome.FAILED, Outcome.SANDBOX_ERROR)
    unfinished = whole[:end].rpartition(b"\n")[2]
    whole_line = whole[end : end + 1] == b"\n"
    assert ("output_cut" in gaps(reading)) is (bool(unfinished) and not whole_line)


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'["a list"]',
        b"7",
        b'{"type": "result", "x": NaN}',
        b'{"type": "result", "x": 1e999}',
        b"[" * 200_000,
        b'{"type": "assistant", "x": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
    ],
)
def test_a_line_that_is_no_event_is_counted_and_let_be(line: bytes) -> None:
    content = line + b'\n{"type": "user"}\n'

    found = read_stream(output(content))

    assert [event["type"] for event in found.events] == ["user"]
    assert found.unreadable == 1
    assert not found.is_cut


def test_bytes_that_are_no_text_do_not_lose_the_event() -> None:
    found = read_stream(output(b'{"type": "user", "x": "a\xffb"}\n'))

    assert found.events == ({"type": "user", "x": "a\ufffdb"},)


def test_an_unfinished_line_is_told() -> None:
    found = read_stream(output(b'{"type": "user"}\n{"type": "assis'))

    assert len(found.events) == 1
    assert found.is_cut
    assert found.unreadable == 0


def test_the_lines_at_a_cut_are_left_out() -> None:
    cut = Output(
        head=b'{"type":"user"}\n{"ty', tail=b'pe":1}\n{"type":"result"}\n', size=99
    )

    found = read_stream(cut)

    assert [event["type"] for event in found.events] == ["user", "result"]
    assert (found.unreadable, found.is_cut) == (0, False)
    assert found.dropped == cut.dropped > 0


def test_unknown_kinds_are_kept_apart_and_bounded() -> None:
    many = [{"type": f"news-{n}"} for n in range(stream.KINDS_MAX + 5)] * 2

    found = read_stream(output(lines_of(many)))  # type: ignore[arg-type]

    assert found.events == ()
    assert len(found.unknown) == stream.KINDS_MAX
    assert found.unknown["news-0"] == 2


def test_there_is_a_bound_on_events() -> None:
    content = b'{"type":"user"}\n' * (stream.EVENTS_MAX + 2)

    found = read_stream(output(content))

    assert (len(found.events), found.too_many) == (stream.EVENTS_MAX, 2)


async def test_what_is_left_out_is_a_gap() -> None:
    content = lines_of([{"type": "news"}, {"type": "system", "subtype": "init"}])

    reading = await read(left(b"oops\n" + content + b"{"))

    assert gaps(reading) == [
        "output_cut",
        "unreadable_output",
        "unknown_events",
        "transcript_not_observed",
    ]
