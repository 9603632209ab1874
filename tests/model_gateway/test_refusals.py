# SPDX-License-Identifier: Apache-2.0
"""What the gateway does not pass on, it refuses in the caller's dialect."""

from collections.abc import AsyncIterator

import anyio
import anyio.abc
import httpx
import pytest

from livery.adapters.model_upstream import ModelUpstream
from livery.adapters.system_clock import SystemClock
from livery.domain.agent_sessions import AgentSessionId
from livery.entrypoints.model_gateway import (
    GatewayBounds,
    GatewayFull,
    GatewaySessions,
    PrefixRefused,
)
from livery.ports.required.model_access import CallEnd, ModelRecord

from .gateways import PATIENCE_SECONDS, SESSION, asking, gateway
from .upstream import Request, answer, says

pytestmark = pytest.mark.anyio

PONG = answer(200, b"{}")


def type_of(reply: httpx.Response) -> object:
    return reply.json()["error"]["type"]


@pytest.mark.case("FC-189")
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (asking(model=""), "model"),
        (b'{"messages": [{"role": "user"}], "input": "x"}', "model"),
        (b'{"model": 1, "messages": [{}], "input": "x"}', "model"),
        (b'{"model": "m", "input": 5}', ""),
        (b'{"model": "m", "messages": {}, "input": {}}', ""),
        (b'{"model": "m", "messages": [1], "input": true}', ""),
        (asking(stream="yes", input="x"), "stream"),
    ],
    ids=lambda value: str(value)[:24],
)
@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/responses", "/v1/chat/completions"]
)
async def test_a_malformed_request_is_refused_in_the_caller_s_dialect(
    body: bytes, told: str, path: str
) -> None:
    async with gateway(says(PONG)) as gate:
        reply = await gate.post(body, path)
        call = await gate.call()
        good = await gate.post(asking(input="x"), path)

    assert reply.status_code == 400
    assert type_of(reply) == "invalid_request_error"
    assert told in reply.json()["error"]["message"]
    assert ("type" in reply.json()) is (path == "/v1/messages")
    assert good.status_code == 200
    assert len(gate.upstream.asked) == 1
    assert call.end is CallEnd.NOT_FORWARDED
    assert gate.sessions.seen(SESSION).failures == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/messages"),
        ("POST", "/v1/files"),
        ("POST", "/v1/messages/"),
        ("POST", "/v1/messages/../files"),
        ("POST", "/v1/responses/../files/cancel"),
        ("GET", "/v1/responses/.."),
        ("POST", "//v1/messages"),
        ("POST", "/v1%2Fmessages"),
        ("HEAD", "/api/hello"),
        ("DELETE", "/v1/responses/%0a/x"),
    ],
)
async def test_only_the_paths_of_models_are_passed_on(method: str, path: str) -> None:
    async with gateway(says(PONG)) as gate:
        port = int(gate.grant.base_url.rpartition(":")[2])
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: a\r\nx-api-key: {gate.grant.placeholder}"
            "\r\nanthropic-version: 1\r\nConnection: close\r\ncontent-length: 2\r\n\r\n{}"
        )
        heard = b""
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(head.encode())
            async for piece in stream:
                heard += piece
        call = await gate.call()

    assert heard.startswith(b"HTTP/1.1 404")
    assert method == "HEAD" or b'"not_found_error"' in heard
    assert gate.upstream.asked == []
    assert call.end is CallEnd.NOT_FORWARDED


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"x-api-key": ""},
        {"x-api-key": "sk-other"},
        {"authorization": "Bearer sk-livery-" + "0" * 32 + "-" + "0" * 64},
        {"authorization": "Basic {placeholder}"},
        {"x-api-key": "{placeholder}x"},
        {"x-api-key": "{placeholder}", "authorization": "Bearer other"},
        {"x-api-key": "\xfc"},
    ],
    ids=str,
)
async def test_without_the_placeholder_nothing_is_passed_on(
    shown: dict[str, str],
) -> None:
    async with gateway(says(PONG), headers={"x": "y"}) as gate:
        headers = [("anthropic-version", b"1")]
        for name, value in shown.items():
            told = value.format(placeholder=gate.grant.placeholder)
            headers.append((name, told.encode("latin-1")))
        url = "/v1/messages"
        reply = await gate.caller.post(
            url,
            content=asking(),
            headers=[(name.encode(), value) for name, value in headers],
        )

    assert reply.status_code == 401
    assert type_of(reply) == "authentication_error"
    assert gate.upstream.asked == []
    assert gate.calls == ()


async def test_the_placeholder_may_come_as_a_bearer_token() -> None:
    async with gateway(says(PONG), headers={"x": "y"}) as gate:
        bearer = f"bearer {gate.grant.placeholder}"
        one = await gate.post(asking(), authorization=bearer)
        both = await gate.post(
            asking(),
            **{"authorization": bearer, "x-api-key": gate.grant.placeholder},
        )

    assert (one.status_code, both.status_code) == (200, 200)


async def test_a_revoked_placeholder_opens_nothing_and_what_ran_was_ended() -> None:
    asked, left = anyio.Event(), anyio.Event()

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        asked.set()
        try:
            await stream.receive()
        finally:
            left.set()

    record = ModelRecord(calls=0, failures=0)
    async with gateway(script) as gate:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_refused, gate.caller)
            await asked.wait()
            record = await gate.sessions.revoke(SESSION)
            with anyio.fail_after(PATIENCE_SECONDS):
                await left.wait()
        after = await gate.post(asking())
        again = await gate.sessions.revoke(SESSION)

    (call,) = record.entries
    assert (call.end, call.reason) == (CallEnd.CALLER_GONE, "the session was closed")
    assert record.failures == 0
    assert after.status_code == 401
    assert again == record == gate.sessions.seen(SESSION)


async def ask_refused(caller: httpx.AsyncClient) -> None:
    """Ask, and be left without a whole answer."""
    try:
        reply = await caller.post("/v1/messages", content=asking(stream=True))
    except httpx.RemoteProtocolError:
        return
    assert reply.status_code == 500


async def test_bounds_of_calls_and_size_are_kept() -> None:
    bounds = GatewayBounds(calls_max=3, request_bytes_max=1000, entries_max=2)
    async with gateway(says(PONG), bounds=bounds) as gate:
        large = await gate.post(asking("x" * 2000))

        async def unannounced() -> AsyncIterator[bytes]:
            yield asking("x" * 900)
            yield b" " * 900

        chunked = await gate.caller.post("/v1/messages", content=unannounced())
        good = await gate.post(asking())
        beyond = await gate.post(asking())
        await gate.call(2)
        record = gate.sessions.seen(SESSION)

    assert (large.status_code, chunked.status_code) == (413, 413)
    assert type_of(large) == "request_too_large"
    assert good.status_code == 200
    assert beyond.status_code == 403
    assert "3 calls" in beyond.json()["error"]["message"]
    assert len(gate.upstream.asked) == 1
    assert (record.calls, len(record.entries), record.entries_dropped) == (4, 2, 2)


async def test_the_session_s_time_is_kept_also_by_what_runs() -> None:
    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        await stream.receive()

    # Long enough for the call to begin on a busy machine.
    bounds = GatewayBounds(session_seconds_max=3.0)
    async with gateway(script, bounds=bounds) as gate:
        await ask_refused(gate.caller)
        call = await gate.call()
        after = await gate.post(asking())

    assert (call.end, call.reason) == (
        CallEnd.NOT_FORWARDED,
        "the session's time is over",
    )
    assert after.status_code == 403


async def test_a_call_that_takes_too_long_is_ended() -> None:
    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        await stream.receive()

    async with gateway(script, bounds=GatewayBounds(call_seconds_max=0.1)) as gate:
        await ask_refused(gate.caller)
        call = await gate.call()

    assert (call.end, call.reason) == (CallEnd.SILENT, "it took longer than 0.1 s")


async def test_so_many_calls_at_once_and_no_more() -> None:
    release = anyio.Event()

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        await release.wait()
        await stream.send(PONG)

    statuses: list[int] = []
    bounds = GatewayBounds(calls_at_once_max=2)
    async with gateway(script, bounds=bounds) as gate:

        async def ask() -> None:
            statuses.append((await gate.post(asking())).status_code)
            if statuses == [429]:
                release.set()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)

    assert sorted(statuses) == [200, 200, 429]


def sessions() -> GatewaySessions:
    return GatewaySessions(
        upstream=ModelUpstream(base_url="http://127.0.0.1:1"),
        secret="installation",
        clock=SystemClock(),
        base_url="http://gateway:1/",
        sessions_max=2,
    )


async def test_a_grant_is_the_same_when_asked_again_also_after_a_restart() -> None:
    first, second = sessions(), sessions()
    grants = [
        await first.grant(SESSION),
        await first.grant(SESSION, prefix="/ng-rollout/k"),
        await second.grant(SESSION),
    ]
    other = await first.grant(AgentSessionId("other"))

    assert len({grant.placeholder for grant in grants}) == 1
    assert other.placeholder != grants[0].placeholder
    assert grants[0].placeholder not in repr(grants[0])
    assert grants[1].base_url == "http://gateway:1/ng-rollout/k"
    with pytest.raises(GatewayFull):
        await first.grant(AgentSessionId("third"))
    await first.aclose()
    await second.aclose()
    assert first.seen(SESSION) == ModelRecord(calls=0, failures=0)


@pytest.mark.parametrize(
    "prefix", ["x", "/", "/a/", "/a?b", "/a#b", "/a/../b", "/a b", "/" + "a" * 2000]
)
async def test_a_prefix_that_is_no_path_is_refused(prefix: str) -> None:
    with pytest.raises(PrefixRefused):
        await sessions().grant(SESSION, prefix=prefix)
