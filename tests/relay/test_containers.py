# SPDX-License-Identifier: Apache-2.0
"""A container without any network reaches this host through its relay."""

from collections.abc import AsyncIterator

import pytest

from livery.adapters.docker_engine import open_docker_engine
from livery.ports.provided.relay_connections import attached, open_relay
from livery.ports.required.sandbox import Command, Sandbox
from livery.ports.required.sandbox_provider import Network, SandboxSpec
from livery.ports.required.sandbox_streams import StreamingSandbox

from ..docker_engine.engines import new_owners
from .far_ends import echo, serving, starting

pytestmark = [pytest.mark.anyio, pytest.mark.peer("docker")]

SAY = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as far:
    far.sendall(b"x" * 300000)
    far.shutdown(socket.SHUT_WR)
    heard = b""
    while piece := far.recv(65536):
        heard += piece
print(len(heard))
"""


@pytest.fixture
async def sandbox(test_image: str) -> AsyncIterator[Sandbox]:
    owners = new_owners()
    label = owners.label()
    async with open_docker_engine() as provider:
        spec = SandboxSpec(image=test_image, network=Network.NONE, user="1000:1000")
        made = await provider.create(label, spec)
        try:
            yield made
        finally:
            await provider.destroy(label)
    assert owners.left() == []


async def test_a_container_without_a_network_is_heard(sandbox: Sandbox) -> None:
    assert isinstance(sandbox, StreamingSandbox)
    async with (
        serving(echo) as far,
        open_relay(attached(sandbox, starting("python3")), {"far": far}) as relay,
    ):
        port = str(relay.ports["far"])
        ended = await sandbox.exec(
            Command(argv=("python3", "-c", SAY, port), timeout_seconds=30.0)
        )

    assert ended.stdout.kept == b"300000\n", ended.stderr.kept
    refused = await sandbox.exec(
        Command(argv=("python3", "-c", SAY, port), timeout_seconds=30.0)
    )
    assert b"ConnectionRefused" in refused.stderr.kept
