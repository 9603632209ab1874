# SPDX-License-Identifier: Apache-2.0
"""The real Claude Code in a container without a network speaks to its model."""

import json
from pathlib import Path

import anyio
import anyio.abc
import pytest

from livery.adapters.docker_engine import open_docker_engine
from livery.ports.required.model_access import CallEnd
from livery.ports.required.sandbox import Command
from livery.ports.required.sandbox_provider import Mount, Network, SandboxSpec

from .. import peers
from ..docker_engine.engines import new_owners
from ..model_gateway.gateways import REAL, SESSION, gateway
from ..model_gateway.upstream import LAST_CHUNK, STREAM_HEAD, Request, chunk, event
from .test_reach_model import reach

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("claude_code"),
    pytest.mark.peer("docker"),
]

MESSAGE: dict[str, object] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "fake-model",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 1},
}
EVENTS: list[tuple[str, dict[str, object]]] = [
    ("message_start", {"message": MESSAGE}),
    (
        "content_block_start",
        {"index": 0, "content_block": {"type": "text", "text": ""}},
    ),
    (
        "content_block_delta",
        {"index": 0, "delta": {"type": "text_delta", "text": "heard through"}},
    ),
    ("content_block_stop", {"index": 0}),
    (
        "message_delta",
        {
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
    ),
    ("message_stop", {}),
]


async def speaking(_: Request, stream: anyio.abc.SocketStream) -> None:
    await stream.send(STREAM_HEAD)
    for kind, words in EVENTS:
        await stream.send(chunk(event(kind, json.dumps({"type": kind, **words}))))
    await stream.send(LAST_CHUNK)


@pytest.mark.parametrize("name", peers.claude_code_programs() or ("none",), ids=str)
async def test_it_is_answered_and_never_has_the_credential(
    test_image: str, name: Path
) -> None:
    owners = new_owners()
    label = owners.label()
    spec = SandboxSpec(
        image=test_image,
        network=Network.NONE,
        user="1000:1000",
        mounts=(Mount(source=str(name), target="/opt/claude"),),
    )
    async with open_docker_engine() as provider:
        sandbox = await provider.create(label, spec)
        try:
            async with (
                gateway(speaking) as gate,
                reach(gate)(SESSION, sandbox, relays=True) as model,
            ):
                ended = await sandbox.exec(
                    Command(
                        argv=("/opt/claude", "-p", "Hello", "--model", "fake-model"),
                        timeout_seconds=60.0,
                        env={
                            "ANTHROPIC_BASE_URL": model.grant.base_url,
                            "ANTHROPIC_API_KEY": model.grant.placeholder,
                            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                            "CLAUDE_CODE_MAX_RETRIES": "0",
                            "CLAUDE_CONFIG_DIR": f"{sandbox.scratch}/config",
                            "HOME": sandbox.scratch,
                        },
                    )
                )
                record = model.seen()
        finally:
            await provider.destroy(label)

    assert ended.stdout.kept == b"heard through\n", ended.stderr.kept
    assert [call.end for call in record.entries] == [CallEnd.ANSWERED] * record.calls
    assert record.failures == 0
    assert record.usage["input_tokens"] == 7 * record.calls
    assert gate.upstream.asked[-1].header(b"x-api-key") == [REAL.encode()]
    assert b"?beta=true" in gate.upstream.asked[-1].line
    assert owners.left() == []
