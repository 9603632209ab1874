# SPDX-License-Identifier: Apache-2.0
"""What goes through files is neither lost, nor there twice, nor waited for without end."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from livery.adapters.worker_scripts import program
from livery.ports.provided.mailbox_streams import through_files
from livery.ports.provided.relay_connections import (
    OpenStream,
    RelayFailed,
    open_relay,
)

from ..channel.processes import until_gone, until_there
from ..channel.worker_sandbox import WorkerSandbox, sandbox_in
from .far_ends import PATIENCE_SECONDS, echo, mailbox_in, received, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[WorkerSandbox]:
    async with sandbox_in(tmp_path, sys.executable) as made:
        yield made
        await until_gone(mailbox_in(made.scratch))


@pytest.fixture
def opens(sandbox: WorkerSandbox) -> OpenStream:
    return through_files(sandbox, program("mailbox"), python=sys.executable)


async def test_a_reply_that_was_lost_is_asked_for_again_and_comes_once(
    sandbox: WorkerSandbox, opens: OpenStream
) -> None:
    async with serving(echo) as far, open_relay(opens, {"far": far}) as relay:
        sandbox.cut_after |= {"take"}
        inside = await anyio.connect_tcp("127.0.0.1", relay.ports["far"])
        async with inside:
            for number in range(5):
                sandbox.cut_after |= {"take"}
                await inside.send(b"%d," % number)
            await inside.send_eof()
            heard = await received(inside)

    assert heard == b"0,1,2,3,4,"
    assert relay.record.losses == 0


async def test_nothing_is_left_in_the_sandbox(
    sandbox: WorkerSandbox, opens: OpenStream
) -> None:
    async with serving(echo) as far, open_relay(opens, {"far": far}):
        assert [p.name[:6] for p in Path(sandbox.scratch).glob("relay-*")] == ["relay-"]

    await until_gone(mailbox_in(sandbox.scratch))
    assert list(Path(sandbox.scratch).glob("relay-*")) == []


async def test_a_relay_that_was_killed_is_seen_and_started_again(
    sandbox: WorkerSandbox, opens: OpenStream
) -> None:
    async with serving(echo) as far, open_relay(opens, {"far": far}) as relay:
        for process in (await until_there(mailbox_in(sandbox.scratch), count=2))[1:]:
            process.kill()
        with anyio.fail_after(PATIENCE_SECONDS):
            while relay.record.losses < 1:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            heard = await _echoed(relay.ports["far"])

    assert heard == b"again"


async def _echoed(port: int) -> bytes:
    while True:
        try:
            inside = await anyio.connect_tcp("127.0.0.1", port)
        except OSError:
            await anyio.sleep(0.01)
            continue
        async with inside:
            await inside.send(b"again")
            await inside.send_eof()
            return await received(inside)


async def test_a_taken_port_is_told(sandbox: WorkerSandbox, opens: OpenStream) -> None:
    async with serving(echo) as far, open_relay(opens, {"far": far}) as relay:
        with pytest.raises(RelayFailed, match="in use"):
            async with open_relay(opens, {"far": far}, ports=relay.ports):
                raise AssertionError("it cannot listen there")


async def test_where_python_is_gone_the_worker_s_own_carries(
    sandbox: WorkerSandbox,
) -> None:
    nowhere = through_files(sandbox, program("mailbox"), python="/no/python3")
    async with serving(echo) as far, open_relay(nowhere, {"far": far}) as relay:
        heard = await _echoed(relay.ports["far"])

    assert heard == b"again"
    assert relay.record.losses == 0


async def test_a_sandbox_that_answers_nothing_any_more_loses_the_relay(
    sandbox: WorkerSandbox, opens: OpenStream
) -> None:
    async with (
        serving(echo) as far,
        open_relay(opens, {"far": far}, pause_seconds=0.0) as relay,
    ):
        sandbox.cuts_all = True
        with anyio.fail_after(PATIENCE_SECONDS):
            while not relay.record.is_lost:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        sandbox.cuts_all = False

    assert relay.record.losses == 5
