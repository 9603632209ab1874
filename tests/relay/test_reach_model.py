# SPDX-License-Identifier: Apache-2.0
"""A sandbox reaches its model through the gateway, with a route and without one."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.abc
import httpx
import pytest

from livery.adapters.docker_engine import open_docker_engine
from livery.adapters.host_ports import BadTarget, dial_url
from livery.adapters.worker_scripts import program
from livery.ports.provided.reach_model import ReachModel, with_losses
from livery.ports.provided.relay_connections import RelayRecord
from livery.ports.required.model_access import CallEnd, ModelRecord
from livery.ports.required.sandbox import Command, Sandbox
from livery.ports.required.sandbox_provider import Network, SandboxSpec

from ..channel.worker_sandbox import sandbox_in
from ..docker_engine.engines import new_owners
from ..local_host.places import new_label, provider_in
from ..model_gateway.gateways import REAL, SESSION, Gateway, asking, gateway
from ..model_gateway.upstream import (
    LAST_CHUNK,
    STREAM_HEAD,
    Request,
    answer,
    chunk,
    event,
    says,
)
from .far_ends import PATIENCE_SECONDS, seconds_of, starting

pytestmark = pytest.mark.anyio

STOP = event("message_stop", '{"type": "message_stop"}')
PREFIX = "/ng-rollout/key-1"

ASK = """
import http.client, os, sys
port, prefix, placeholder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
asked.request("POST", prefix + "/v1/messages?beta=true", sys.stdin.read(),
              {"x-api-key": placeholder})
reply = asked.getresponse()
while piece := reply.read1(65536):
    print(reply.status, piece.decode(), end="", flush=True)
print(sorted(os.environ.values()))
"""


def reach(gate: Gateway) -> ReachModel:
    return ReachModel(
        access=gate.sessions,
        dial=dial_url(gate.sessions.base_url),
        relay_start=starting("python3"),
        mailbox_program=program("mailbox"),
    )


@pytest.fixture(params=["streams", "files"])
async def sandbox(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Sandbox]:
    if request.param == "files":
        async with sandbox_in(tmp_path, sys.executable) as plain:
            yield plain
        return
    label = new_label()
    async with provider_in(tmp_path / "sandboxes") as provider:
        try:
            yield await provider.create(label, SandboxSpec())
        finally:
            await provider.destroy(label)


async def test_a_stream_comes_through_gateway_and_relay_as_it_comes(
    sandbox: Sandbox,
) -> None:
    heard = anyio.Event()

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        nonlocal heard
        await stream.send(STREAM_HEAD + chunk(b": 1\n\n"))
        await heard.wait()
        await stream.send(chunk(STOP) + LAST_CHUNK)

    parts: list[bytes] = []
    async with (
        gateway(script) as gate,
        reach(gate)(SESSION, sandbox, relays=True, prefix=PREFIX) as model,
        httpx.AsyncClient(timeout=PATIENCE_SECONDS) as inside,
    ):
        url = f"{model.grant.base_url}/v1/messages"
        key = {"x-api-key": model.grant.placeholder}
        async with inside.stream(
            "POST", url, content=asking(stream=True), headers=key
        ) as reply:
            async for piece in reply.aiter_raw():
                parts.append(piece)
                heard.set()
        record = model.seen()

    assert parts == [b": 1\n\n", STOP]
    assert gate.upstream.asked[0].line == f"POST {PREFIX}/v1/messages HTTP/1.1".encode()
    assert (record.calls, record.failures) == (1, 0)
    assert record.entries[0].end is CallEnd.ANSWERED


@pytest.mark.case("FC-185")
async def test_who_is_gone_inside_has_its_upstream_left_within_a_second(
    sandbox: Sandbox, request: pytest.FixtureRequest
) -> None:
    asked, left = anyio.Event(), anyio.Event()

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        asked.set()
        try:
            await stream.receive()
        finally:
            left.set()

    async with gateway(script) as gate:
        async with reach(gate)(SESSION, sandbox, relays=True) as model:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_ask, model.grant.base_url, model.grant.placeholder)
                await asked.wait()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(seconds_of(request)):
                await left.wait()
        call = await gate.call()

    assert call.end is CallEnd.CALLER_GONE


async def _ask(base_url: str, placeholder: str) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as inside:
        await inside.post(
            f"{base_url}/v1/messages",
            content=asking(stream=True),
            headers={"x-api-key": placeholder},
        )


async def test_with_a_route_the_address_is_the_gateway_s_own_and_tools_are_as_they_were(
    sandbox: Sandbox,
) -> None:
    async with gateway(says(answer(200, b"{}"))) as gate:
        async with reach(gate)(SESSION, sandbox, relays=False) as model:
            await _ask(model.grant.base_url, model.grant.placeholder)
            record = model.seen()

        assert model.grant.base_url == gate.sessions.base_url
    assert model.tool_urls == {}
    assert record.calls == 1


async def test_a_tool_server_is_reached_under_a_port_that_stays_the_same(
    sandbox: Sandbox,
) -> None:
    async with gateway(says(answer(200, b"{}"))) as gate:
        tools = {"calendar": dial_url(gate.upstream.url)}
        urls: list[str] = []
        for _ in range(2):
            async with (
                reach(gate)(SESSION, sandbox, relays=True, tools=tools) as model,
                httpx.AsyncClient(timeout=PATIENCE_SECONDS) as inside,
            ):
                urls += [model.tool_urls["calendar"], model.grant.base_url]
                reply = await inside.get(f"{model.tool_urls['calendar']}/tool?a=%2F")

                assert reply.status_code == 200

    assert urls[:2] == urls[2:]
    assert gate.upstream.asked[-1].line == b"GET /tool?a=%2F HTTP/1.1"


@pytest.mark.case("FC-248")
def test_a_lost_relay_is_a_failure_of_the_infrastructure() -> None:
    record = ModelRecord(calls=1, failures=0)
    relay = RelayRecord(losses=2, failed_dials=1, told=["lost: its stream ended"])

    told = with_losses(record, relay)

    assert with_losses(record, RelayRecord()) == record
    assert (told.failures, told.last_failure) == (
        3,
        "the relay: lost: its stream ended",
    )


@pytest.mark.parametrize("url", ["https://a", "unix:/a", "http://", ""])
def test_what_is_no_plain_http_is_no_target(url: str) -> None:
    with pytest.raises(BadTarget):
        dial_url(url)


@pytest.mark.peer("docker")
@pytest.mark.case("FC-174")
async def test_a_container_without_a_network_speaks_to_its_model(
    test_image: str,
) -> None:
    owners = new_owners()
    label = owners.label()
    script = says(STREAM_HEAD, chunk(STOP), LAST_CHUNK)
    async with open_docker_engine() as provider:
        spec = SandboxSpec(image=test_image, network=Network.NONE, user="1000:1000")
        sandbox = await provider.create(label, spec)
        try:
            async with (
                gateway(script) as gate,
                reach(gate)(SESSION, sandbox, relays=True, prefix=PREFIX) as model,
            ):
                port = model.grant.base_url.removeprefix("http://127.0.0.1:")
                words = (port.partition("/")[0], PREFIX, model.grant.placeholder)
                ended = await sandbox.exec(
                    Command(
                        argv=("python3", "-c", ASK, *words),
                        timeout_seconds=30.0,
                        stdin=asking(stream=True),
                    )
                )
                searched = await sandbox.exec(
                    Command(
                        argv=(
                            "sh",
                            "-c",
                            "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; env;"
                            " cat /tmp/* /tmp/.*/* /workspace/* 2>/dev/null; true",
                        ),
                        timeout_seconds=30.0,
                    )
                )
                call = await gate.call()
        finally:
            await provider.destroy(label)

    assert ended.stdout.kept.startswith(b"200 " + STOP), ended.stderr.kept
    assert call.end is CallEnd.ANSWERED
    assert gate.upstream.asked[0].header(b"x-api-key") == [REAL.encode()]
    assert REAL.encode() not in ended.stdout.kept + searched.stdout.kept
    assert owners.left() == []
