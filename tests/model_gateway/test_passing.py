# SPDX-License-Identifier: Apache-2.0
"""What is passed on is what was sent, both ways, and as it comes."""

import gzip
import json
import socket
from contextlib import suppress

import anyio
import anyio.abc
import httpx
import pytest
from starlette.applications import Starlette

from livery.domain.agent_sessions import AgentSessionId
from livery.entrypoints.model_gateway import GatewayBounds
from livery.entrypoints.model_gateway.serving import listening, serving
from livery.ports.required.model_access import CallEnd

from .gateways import PATIENCE_SECONDS, REAL, SESSION, asking, gateway
from .upstream import (
    LAST_CHUNK,
    STREAM_HEAD,
    Request,
    answer,
    chunk,
    event,
    says,
    says_and_closes,
)

pytestmark = pytest.mark.anyio

STARTED = event(
    "message_start",
    '{"type": "message_start", "message": {"usage": {"input_tokens": 7,'
    ' "cache_read_input_tokens": 2, "output_tokens": 1}}}',
)
WORD = event(
    "content_block_delta",
    '{"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}',
)
STOPPED = event(
    "message_delta", '{"type": "message_delta", "usage": {"output_tokens": 5}}'
) + event("message_stop", '{"type": "message_stop"}')
WHOLE = STARTED + WORD + STOPPED
PONG = answer(200, b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}')
QUICK = GatewayBounds(keep_alive_seconds=0.05, early_seconds=0.05)


async def test_an_answer_comes_back_and_is_recorded() -> None:
    async with gateway(says(PONG)) as gate:
        reply = await gate.post(asking("hello"), "/v1/chat/completions")
        call = await gate.call()

    (asked,) = gate.upstream.asked
    assert reply.status_code == 200
    assert reply.json()["usage"]["prompt_tokens"] == 3
    assert asked.body == asking("hello")
    assert asked.header(b"authorization") == [f"Bearer {REAL}".encode()]
    assert asked.header(b"x-api-key") == []
    assert (call.number, call.model, call.status) == (1, "model-1", 200)
    assert call.end is CallEnd.ANSWERED
    assert call.usage == {"input_tokens": 3, "output_tokens": 4}
    assert call.request_bytes == len(asking("hello"))
    assert call.response_bytes == len(PONG.partition(b"\r\n\r\n")[2])
    assert call.first_token_seconds is not None
    assert gate.sessions.seen(SESSION).failures == 0


async def test_anthropic_s_dialect_has_its_own_header_for_the_credential() -> None:
    async with gateway(says(PONG)) as gate:
        await gate.post(asking())

    (asked,) = gate.upstream.asked
    assert asked.header(b"x-api-key") == [REAL.encode()]
    assert asked.header(b"authorization") == []


async def test_a_stream_passes_through_as_it_comes() -> None:
    heard = anyio.Event()

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        nonlocal heard
        await stream.send(STREAM_HEAD)
        for part in (STARTED, WORD, STOPPED):
            await stream.send(chunk(part))
            await heard.wait()
            heard = anyio.Event()
        await stream.send(LAST_CHUNK)

    parts: list[bytes] = []
    async with gateway(script) as gate:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with gate.caller.stream(
                "POST", "/v1/messages", content=asking(stream=True)
            ) as reply:
                async for piece in reply.aiter_raw():
                    parts.append(piece)
                    heard.set()
        call = await gate.call()

    assert parts == [STARTED, WORD, STOPPED]
    assert call.is_streamed
    assert call.end is CallEnd.ANSWERED
    assert call.usage == {
        "input_tokens": 7,
        "output_tokens": 5,
        "cache_read_input_tokens": 2,
    }
    assert 0 < (call.first_token_seconds or 0) <= call.seconds


@pytest.mark.case("FC-182")
@pytest.mark.parametrize(
    "body",
    [
        b'{"output": [{"type": "thought_graph", "nodes": [ 1.50 ]}], "usage": null}',
        b'{"content": [{"type": "hologram"}], "usage": {"new_tokens": {"x": "y"}}}',
        b'{"choices": "none of the kind"}',
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_what_nobody_knows_yet_is_passed_on_untouched(
    path: str, body: bytes
) -> None:
    async with gateway(says(answer(200, body))) as gate:
        reply = await gate.post(asking(), path)
        call = await gate.call()

    assert (reply.status_code, reply.content) == (200, body)
    assert call.end is CallEnd.ANSWERED


@pytest.mark.case("FC-186")
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
async def test_a_silent_upstream_does_not_leave_the_caller_in_silence(
    path: str,
) -> None:
    enough = anyio.Event()

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        nonlocal enough
        await enough.wait()
        enough = anyio.Event()
        await stream.send(STREAM_HEAD + chunk(STARTED + b"event: content"))
        await enough.wait()
        await stream.send(chunk(WORD.removeprefix(b"event: content")))
        await enough.wait()
        await stream.send(chunk(STOPPED) + LAST_CHUNK)

    async with gateway(script, bounds=QUICK) as gate:
        body = bytearray()
        with anyio.fail_after(PATIENCE_SECONDS):
            async with gate.caller.stream(
                "POST", path, content=asking(stream=True)
            ) as reply:
                async for piece in reply.aiter_raw():
                    body += piece
                    pings = body.count(b"ping\n") + body.count(b": keep-alive")
                    if pings in (3, 6) or b"event: content" in body:
                        enough.set()
        call = await gate.call()

    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    kept_awake = ping if path == "/v1/messages" else b": keep-alive\n\n"
    assert bytes(body).replace(kept_awake, b"") == WHOLE
    assert body.count(kept_awake) >= 3
    assert call.end is CallEnd.ANSWERED
    assert call.status == 200


@pytest.mark.case("FC-186")
async def test_an_error_after_a_stream_was_begun_is_told_as_an_event() -> None:
    error = b'{"type": "error", "error": {"type": "overloaded_error", "message": "m"}}'

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        await late.wait()
        await stream.send(answer(529, error))

    late = anyio.Event()
    async with gateway(script, bounds=QUICK) as gate:
        body = b""
        async with gate.caller.stream(
            "POST", "/v1/messages", content=asking(stream=True)
        ) as reply:
            async for piece in reply.aiter_raw():
                body += piece
                late.set()
        call = await gate.call()

    assert body.endswith(b"event: error\ndata: " + error + b"\n\n")
    assert call.end is CallEnd.UPSTREAM_FAILED


@pytest.mark.case("FC-185")
async def test_when_the_caller_goes_the_upstream_is_left_within_a_second() -> None:
    asked, left = anyio.Event(), anyio.Event()

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        asked.set()
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            left.set()
            raise anyio.BrokenResourceError from None

    async with gateway(script) as gate:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate.post, asking(stream=True))
            await asked.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(1.0):
            await left.wait()
        call = await gate.call()

    assert call.end is CallEnd.CALLER_GONE
    assert gate.sessions.seen(SESSION).failures == 0


@pytest.mark.case("FC-119")
async def test_what_the_upstream_refuses_is_passed_back_and_never_asked_again() -> None:
    error = b'{"type":"error", "error":{"type":"rate_limit_error","message":"slow"}}'
    script = says(answer(429, error, "Retry-After: 17", "x-odd: \xfc"))
    async with gateway(script) as gate:
        reply = await gate.post(asking(stream=True))
        record = gate.sessions.seen(SESSION)
        call = await gate.call()

    assert (reply.status_code, reply.content) == (429, error)
    assert reply.headers["retry-after"] == "17"
    assert len(gate.upstream.asked) == 1
    assert (call.status, call.end) == (429, CallEnd.THROTTLED)
    assert (record.failures, record.last_failure) == (1, "429: slow")


@pytest.mark.case("FC-119")
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_an_upstream_that_is_not_there_is_told_in_the_dialect(path: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with gateway(says(), url=url) as gate:
            reply = await gate.post(asking(input="x"), path)
            call = await gate.call()

    assert reply.status_code == 502
    assert "cannot be reached" in reply.json()["error"]["message"]
    assert url not in reply.text
    assert call.end is CallEnd.UNREACHABLE
    assert gate.sessions.seen(SESSION).failures == 1


async def test_a_stream_that_is_cut_is_cut_for_the_caller_and_recorded() -> None:
    async with gateway(says_and_closes(STREAM_HEAD, chunk(STARTED))) as gate:
        heard = b""
        async with gate.caller.stream(
            "POST", "/v1/messages", content=asking(stream=True)
        ) as reply:
            pieces = reply.aiter_raw()
            heard += await anext(pieces)
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(pieces)
        call = await gate.call()

    assert heard == STARTED
    assert call.end is CallEnd.CUT
    assert call.status == 200


async def test_a_stream_without_its_last_event_is_seen_to_be_cut() -> None:
    async with gateway(says(STREAM_HEAD, chunk(STARTED), LAST_CHUNK)) as gate:
        reply = await gate.post(asking(stream=True))
        call = await gate.call()

    assert reply.content == STARTED
    assert call.end is CallEnd.CUT


async def test_an_upstream_that_answers_nothing_at_all_is_given_up() -> None:
    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        await stream.receive()

    async with gateway(script, silence_seconds=0.05) as gate:
        reply = await gate.post(asking())
        call = await gate.call()

    assert reply.status_code == 504
    assert reply.json()["error"]["type"] == "timeout_error"
    assert call.end is CallEnd.SILENT


async def test_an_error_within_a_stream_is_the_call_s_end() -> None:
    error = event(
        "error",
        '{"type": "error", "error": {"type": "overloaded_error", "message": "m"}}',
    )
    async with gateway(says(STREAM_HEAD, chunk(STARTED + error), LAST_CHUNK)) as gate:
        reply = await gate.post(asking(stream=True))
        call = await gate.call()

    assert reply.content == STARTED + error
    assert (call.end, call.reason) == (CallEnd.UPSTREAM_FAILED, "500: m")


@pytest.mark.case("FC-191")
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (
            400,
            {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"},
        ),
        (400, {"code": "context_length_exceeded", "message": "no"}),
        (400, {"message": "This model's maximum context length is 8 tokens."}),
        (413, {"message": "input is too long for requested model"}),
    ],
)
async def test_a_prompt_beyond_the_window_is_no_failure_of_the_infrastructure(
    status: int, error: dict[str, str]
) -> None:
    body = json.dumps({"type": "error", "error": error}).encode()
    async with gateway(says(answer(status, body))) as gate:
        reply = await gate.post(asking())
        call = await gate.call()

    record = gate.sessions.seen(SESSION)
    assert (reply.status_code, reply.content) == (status, body)
    assert call.end is CallEnd.CONTEXT_LENGTH
    assert not call.end.is_infrastructure
    assert (record.failures, record.context_refusals) == (0, 1)


@pytest.mark.case("FC-179")
async def test_a_session_keeps_its_own_cookies_and_connection() -> None:
    ports: list[int] = []

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        ports.append(stream.extra(anyio.abc.SocketAttribute.remote_port))
        number = len(ports)
        await stream.send(
            answer(200, b"{}", f"set-cookie: engine=e{min(number, 2)}; Path=/")
        )

    async with gateway(script) as gate:
        replies = [await gate.post(asking(str(n))) for n in range(10)]
        other = await gate.sessions.grant(AgentSessionId("session-2"))
        await gate.post(asking(), **{"x-api-key": other.placeholder})

    cookies = [asked.header(b"cookie") for asked in gate.upstream.asked]
    assert cookies == [[], [b"engine=e1"], *[[b"engine=e2"]] * 8, []]
    assert not any("set-cookie" in reply.headers for reply in replies)
    assert len(set(ports[:10])) == 1
    assert ports[10] != ports[0]


@pytest.mark.case("FC-221")
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1/messages?beta=true&odd=%2F%20+a&a=1&a=2&=;"),
        ("POST", "/v1/messages/count_tokens?x=%zz"),
        ("DELETE", "/v1/responses/resp_%2Fa%20b~c"),
        ("GET", "/v1/responses/resp_1?include[]=x|y&stream=true"),
        ("POST", "/v1/responses/a%3Fb/cancel"),
    ],
)
async def test_odd_but_legal_requests_are_byte_equal_at_the_far_end(
    method: str, target: str
) -> None:
    body = asking("\u00fc", odd=[1.0, 1e400, "\ud800"])
    async with gateway(says(PONG), base="/deep/er/") as gate:
        port = int(gate.grant.base_url.rpartition(":")[2])
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: a\r\nX-API-Key: {gate.grant.placeholder}"
            f"\r\nX-Odd-CASE:  b,  c\r\nx-twice: 1\r\nx-twice: 2\r\n"
            f"Connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(head.encode() + body)
            heard = b""
            async for piece in stream:
                heard += piece

    (asked,) = gate.upstream.asked
    assert heard.startswith(b"HTTP/1.1 200")
    assert heard.endswith(PONG.partition(b"\r\n\r\n")[2])
    assert asked.line == f"{method} /deep/er{target} HTTP/1.1".encode()
    assert asked.body == body
    assert b"\r\nX-Odd-CASE: b,  c\r\n" in asked.head + b"\r\n"
    assert asked.header(b"x-twice") == [b"1", b"2"]


async def test_a_compressed_answer_is_read_all_the_same() -> None:
    packed = gzip.compress(b'{"usage": {"input_tokens": 9}}')
    script = says(answer(200, packed, "content-encoding: gzip"))
    async with gateway(script) as gate:
        reply = await gate.post(asking())
        call = await gate.call()

    assert reply.json() == {"usage": {"input_tokens": 9}}
    assert gate.upstream.asked[0].header(b"accept-encoding") == [b"identity"]
    assert call.usage == {"input_tokens": 9}


@pytest.mark.parametrize("encoding", ["zstd-odd", "gzip"])
async def test_an_answer_that_cannot_be_decoded_is_the_upstream_s_failure(
    encoding: str,
) -> None:
    script = says(answer(200, b"\0\1\2", f"content-encoding: {encoding}"))
    async with gateway(script) as gate:
        with suppress(httpx.RemoteProtocolError):
            await gate.post(asking())
        call = await gate.call()

    assert call.end.is_infrastructure


@pytest.mark.case("FC-178")
async def test_side_calls_are_told_apart_from_the_main_conversation() -> None:
    tools = [{"name": "Bash"}, {"type": "function", "function": {"name": "Edit"}}]
    title = asking("Write a title", model="small")
    first = asking("Do it", tools=tools)
    second = asking("Do it", "more", tools=tools)
    marked = json.dumps(
        {
            "model": "model-1",
            "tools": tools,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "text",
                            "text": "Do it",
                            "cache_control": {"type": "ephemeral"},
                        }
                    ],
                }
            ],
        }
    ).encode()
    compacted = asking("It was done so far", tools=tools)
    subagent = asking("Look there", tools=tools[:1])
    async with gateway(says(PONG)) as gate:
        for body in (title, first, second, marked, compacted, subagent):
            await gate.post(body)
        await gate.post(first, "/v1/messages/count_tokens")
        await gate.call(7)

    sides = [call.is_side for call in gate.calls]
    threads = [call.thread for call in gate.calls]
    assert sides == [True, False, False, False, False, True, True]
    assert threads[1] == threads[2] == threads[3] != threads[0]


async def test_a_rollout_s_prefix_is_kept_and_no_other_one_passes() -> None:
    prefix = "/ng-rollout/key-1/training-token-capture"
    async with gateway(says(PONG), prefix=prefix, credential=None) as gate:
        assert gate.grant.base_url.endswith(prefix)
        good = await gate.post(asking())
        other = gate.grant.base_url.replace("key-1", "key-2")
        bad = await gate.post(asking(), f"{other}/v1/messages")
        bare = await gate.post(asking(), f"{gate.sessions.base_url}/v1/messages")

    assert [reply.status_code for reply in (good, bad, bare)] == [200, 404, 404]
    assert [asked.line for asked in gate.upstream.asked] == [
        f"POST {prefix}/v1/messages HTTP/1.1".encode()
    ]
    assert gate.upstream.asked[0].header(b"x-api-key") == []


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_after_a_stream_was_begun_no_answer_is_an_event_too(path: str) -> None:
    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        await stream.receive()

    async with gateway(script, bounds=QUICK, silence_seconds=0.3) as gate:
        reply = await gate.post(asking(stream=True, input="x"), path)
        call = await gate.call()

    last = reply.content.rstrip(b"\n").rpartition(b"\n\n")[2]
    assert reply.status_code == 200
    assert last.startswith(b"event: error\ndata: ")
    assert b"said nothing" in last
    assert call.end is CallEnd.SILENT


async def test_after_a_stream_was_begun_an_answer_that_is_none_is_an_error() -> None:
    late = anyio.Event()

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        await late.wait()
        await stream.send(PONG)

    async with gateway(script, bounds=QUICK) as gate:
        body = b""
        async with gate.caller.stream(
            "POST", "/v1/chat/completions", content=asking(stream=True)
        ) as reply:
            async for piece in reply.aiter_raw():
                body += piece
                late.set()
        call = await gate.call()

    assert b'"code": "upstream_failed"' in body
    assert call.end is CallEnd.UPSTREAM_FAILED


async def test_what_is_raised_while_it_is_served_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with serving(Starlette(), listening()):
            raise KeyError("mine")
