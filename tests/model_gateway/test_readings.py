# SPDX-License-Identifier: Apache-2.0
"""What answers say of themselves is read the same however they are cut."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.model_upstream import (
    AnswerReader,
    Dialect,
    Malformed,
    dialect_of,
    error_event,
    read_request,
    spoken_by,
)
from livery.adapters.model_upstream.readings import EVENT_BYTES_MAX
from livery.ports.required.model_access import CallEnd

ANTHROPIC = b"""event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"x\\n\\n"}}

event: message_delta
data: {"type":"message_delta","usage":{"output_tokens":5,"cache_read_input_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

"""
RESPONSES = b"""event: response.created
data: {"type":"response.created","response":{"usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"x"}

: a comment

event: response.completed
data: {"type":"response.completed","response":{"usage":{"input_tokens":7,
data: "input_tokens_details":{"cached_tokens":2},"output_tokens":5}}}

"""
CHAT = b"""data: {"choices":[{"delta":{"content":"x"}}]}

data: {"choices":[{"delta":{},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,
data: "prompt_tokens_details":{"cached_tokens":2}}}

data: [DONE]

"""
STREAMS = [ANTHROPIC, RESPONSES, CHAT]
USAGE = {"input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 2}


def read(pieces: list[bytes], status: int = 200, *, is_stream: bool) -> AnswerReader:
    reader = AnswerReader(status, is_stream=is_stream)
    for piece in pieces:
        reader.feed(piece)
    return reader


def cut(whole: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(at % (len(whole) + 1) for at in cuts), len(whole)]
    return [whole[begin:end] for begin, end in itertools.pairwise(edges)]


@given(
    st.sampled_from(STREAMS),
    st.booleans(),
    st.lists(st.integers(0, 10_000), max_size=20),
)
def test_a_stream_is_read_wherever_it_is_cut(
    stream: bytes, has_returns: bool, cuts: list[int]
) -> None:
    whole = stream.replace(b"\n", b"\r\n") if has_returns else stream

    reader = read(cut(whole, cuts), is_stream=True)

    assert reader.usage == USAGE
    assert reader.has_content
    assert reader.is_whole
    assert reader.is_last
    assert reader.is_between_events
    assert reader.end() == (CallEnd.ANSWERED, "")


@given(st.sampled_from(STREAMS), st.integers(1, 10_000))
def test_events_of_ours_stand_between_events_alone(stream: bytes, at: int) -> None:
    at %= len(stream)
    reader = read([stream[:at]], is_stream=True)

    assert reader.is_between_events is (at == 0 or stream[:at].endswith(b"\n\n"))


@pytest.mark.parametrize("stream", STREAMS)
def test_a_piece_of_nothing_changes_nothing(stream: bytes) -> None:
    at = stream.index(b"\n\n") + 2

    assert read([b""], is_stream=True).is_between_events
    assert read([stream[:at], b""], is_stream=True).is_between_events
    assert not read([stream[: at + 1], b""], is_stream=True).is_between_events


@given(
    st.lists(
        st.binary(max_size=20)
        | st.sampled_from([b"\n\n", b"data: ", b'{"type":"error"}', b"[]", b"1"]),
        max_size=20,
    ),
    st.integers(200, 599),
    st.booleans(),
)
def test_nothing_that_comes_stops_the_reading(
    pieces: list[bytes], status: int, is_stream: bool
) -> None:
    end, reason = read(pieces, status, is_stream=is_stream).end()

    assert isinstance(end, CallEnd)
    assert len(reason) < 600


def test_an_event_that_is_too_long_is_passed_over() -> None:
    long = b'data: {"usage": {"input_tokens": 1}, "x": "' + b"x" * EVENT_BYTES_MAX
    pieces = [long, b'"}\n\n', ANTHROPIC]

    assert read(pieces, is_stream=True).usage == USAGE


@pytest.mark.parametrize(
    ("status", "body", "end"),
    [
        (401, b"", CallEnd.CREDENTIAL_REFUSED),
        (403, b"<html>", CallEnd.CREDENTIAL_REFUSED),
        (404, b'{"detail": "no such model"}', CallEnd.REQUEST_REFUSED),
        (408, b"[]", CallEnd.UPSTREAM_FAILED),
        (500, b'{"error": "maximum context length"}', CallEnd.UPSTREAM_FAILED),
        (529, b'{"error": {"message": 5}}', CallEnd.UPSTREAM_FAILED),
    ],
)
def test_an_error_is_told_by_its_status(status: int, body: bytes, end: CallEnd) -> None:
    found, reason = read([body], status, is_stream=True).end()

    assert found is end
    assert reason.startswith(f"{status}: ")


@pytest.mark.parametrize(
    ("event", "end"),
    [
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error"}},
            },
            1,
        ),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "rate_limit_exceeded", "message": "m"}},
            },
            2,
        ),
        ({"error": {"type": "invalid_request_error", "message": "bad"}}, 3),
        ({"error": {"code": "context_length_exceeded", "message": "m"}}, 4),
        ({"type": "error", "code": "invalid_prompt", "message": "m"}, 3),
    ],
)
def test_an_error_within_a_stream_is_told_by_its_words(
    event: dict[str, object], end: int
) -> None:
    ends = {
        1: CallEnd.UPSTREAM_FAILED,
        2: CallEnd.THROTTLED,
        3: CallEnd.REQUEST_REFUSED,
        4: CallEnd.CONTEXT_LENGTH,
    }
    stream = b"data: " + json.dumps(event).encode() + b"\n\n"

    reader = read([stream], is_stream=True)

    assert reader.is_last
    assert reader.end()[0] is ends[end]


def test_a_count_of_tokens_is_usage() -> None:
    reader = read([b'{"input_tokens": 12, "output_tokens": true}'], is_stream=False)

    assert reader.end() == (CallEnd.ANSWERED, "")
    assert reader.usage == {"input_tokens": 12}


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"type": "error", "a": "\\n"}'])
def test_an_error_as_an_event_is_one_event(dialect: Dialect, body: bytes) -> None:
    event = error_event(dialect, body, "it\nfailed", "cut")

    assert event.endswith(b"\n\n")
    assert event.count(b"\n\n") == 1
    reader = read([event], is_stream=True)
    assert reader.is_last
    assert reader.end()[0].is_infrastructure


def test_who_asks_for_no_path_of_ours_is_known_by_its_headers() -> None:
    assert spoken_by({"anthropic-version": "1"}) is Dialect.ANTHROPIC
    assert spoken_by({}) is Dialect.CHAT
    assert dialect_of("POST", b"/v1/messages/../x") is None


@given(
    st.binary(max_size=40)
    | st.recursive(
        st.none() | st.text(max_size=3) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "model",
                        "messages",
                        "input",
                        "tools",
                        "role",
                        "content",
                        "stream",
                        "name",
                        "function",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    ).map(lambda words: json.dumps(words).encode())
)
def test_whatever_is_asked_is_read_or_refused(body: bytes) -> None:
    for path in (b"/v1/messages", b"/v1/responses"):
        try:
            asked = read_request(path, body)
        except Malformed:
            continue
        assert asked.model
    assert read_request(b"/v1/responses/x", body).counts_only


def test_tools_are_known_by_their_names() -> None:
    tools = [{"name": "a"}, {"type": "web_search"}, {"function": {"name": "b"}}, 5]
    body = json.dumps({"model": "m", "input": [5, {"role": "user"}], "tools": tools})

    asked = read_request(b"/v1/responses", body.encode())

    assert asked.tools == {"a", "web_search", "b"}


@pytest.mark.parametrize("name", ["response.completed", "message_stop"])
@pytest.mark.parametrize("is_named_twice", [True, False])
def test_a_last_event_that_is_too_long_is_the_last_all_the_same(
    name: str, is_named_twice: bool
) -> None:
    data = b'data: {"type": "%b", "x": "' % name.encode() + b"x" * (2 * EVENT_BYTES_MAX)
    stream = b"event: %b\n" % name.encode() * is_named_twice + data + b'"}\n\n'
    pieces = [stream[at : at + 65_536] for at in range(0, len(stream), 65_536)]

    reader = read(pieces, is_stream=True)

    assert reader.is_whole
    assert reader.is_last
    assert reader.end() == (CallEnd.ANSWERED, "")
