# SPDX-License-Identifier: Apache-2.0
"""A sandbox without a route reaches what its relay leads to, Claude Code too.

The relay is a program behind the same door as the worker: no address of this host
is used in the sandbox.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.opensandbox import OpenSandboxConfig, OpenSandboxProvider
from livery.ports.provided.relay_connections import attached, open_relay
from livery.ports.required.model_access import CallEnd
from livery.ports.required.sandbox import Command, Sandbox
from livery.ports.required.sandbox_provider import Network, SandboxSpec
from livery.ports.required.sandbox_streams import StreamingSandbox

from .. import peers
from ..docker_engine.engines import Owners
from ..model_gateway.gateways import REAL, SESSION, gateway
from ..relay.far_ends import echo, serving, starting
from ..relay.test_containers import SAY
from ..relay.test_reach_model import reach
from ..relay.test_real_program import speaking
from . import providers
from .stand_in_server import StandInServer

pytestmark = pytest.mark.anyio

PIECE_BYTES = 1024 * 1024


async def heard(sandbox: Sandbox) -> None:
    assert isinstance(sandbox, StreamingSandbox)
    async with (
        serving(echo) as far,
        open_relay(attached(sandbox, starting("python3")), {"far": far}) as relay,
    ):
        port = str(relay.ports["far"])
        ended = await sandbox.exec(
            Command(argv=("python3", "-c", SAY, port), timeout_seconds=60.0)
        )
    assert ended.stdout.kept == b"300000\n", ended.stderr.kept


async def test_a_closed_sandbox_is_heard_through_its_relay(
    stand_in: StandInServer, owners: Owners
) -> None:
    config = OpenSandboxConfig(egress=True, probe_addresses=(), probe_names=())
    spec = attrs.evolve(providers.stand_in_spec(user="1000:1000"), network=Network.NONE)
    async with providers.over_stand_in(stand_in, config) as provider:
        label = owners.label()
        sandbox = await provider.create(label, spec)
        try:
            await heard(sandbox)
        finally:
            await provider.destroy(label)


@pytest.mark.peer("opensandbox")
async def test_a_sandbox_of_the_real_server_is_heard_through_its_relay(
    real_provider: OpenSandboxProvider, owners: Owners, test_image: str
) -> None:
    label = owners.label()
    spec = SandboxSpec(image=test_image, user="1000:1000")
    sandbox = await real_provider.create(label, spec)
    try:
        await heard(sandbox)
    finally:
        await real_provider.destroy(label)


async def pieces_of(path: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        while piece := await file.read(PIECE_BYTES):
            yield piece


@pytest.mark.peer("opensandbox")
@pytest.mark.peer("claude_code")
@pytest.mark.parametrize("name", peers.claude_code_programs()[:1] or ("none",), ids=str)
async def test_claude_code_is_answered_through_the_relay_alone(
    name: Path, real_provider: OpenSandboxProvider, owners: Owners, test_image: str
) -> None:
    label = owners.label()
    spec = SandboxSpec(image=test_image, user="1000:1000")
    sandbox = await real_provider.create(label, spec)
    try:
        program = f"{sandbox.scratch}/claude"
        size = name.stat().st_size
        await sandbox.put(program, pieces_of(name), size=size, mode=0o755)
        async with (
            gateway(speaking) as gate,
            reach(gate)(SESSION, sandbox, relays=True) as model,
        ):
            ended = await sandbox.exec(
                Command(
                    argv=(program, "-p", "Hello", "--model", "fake-model"),
                    timeout_seconds=120.0,
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
        await real_provider.destroy(label)

    assert ended.stdout.kept == b"heard through\n", ended.stderr.kept
    assert [call.end for call in record.entries] == [CallEnd.ANSWERED] * record.calls
    assert record.failures == 0
    assert model.grant.base_url.startswith("http://127.0.0.1:")
    assert gate.upstream.asked[-1].header(b"x-api-key") == [REAL.encode()]
