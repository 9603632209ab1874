# SPDX-License-Identifier: Apache-2.0
"""A supervised run in a local sandbox outlives its host and is found again."""

from pathlib import Path

import pytest

from livery.adapters.worker_scripts import program
from livery.ports.contracts.provider_context import said
from livery.ports.contracts.sandbox_context import comes_true, sleep_token
from livery.ports.provided.run_receipts import RunId, Running
from livery.ports.provided.supervised_run import Launched, SandboxSession
from livery.ports.required.sandbox import Command, Exited, Sandbox
from livery.ports.required.sandbox_provider import SandboxSpec

from . import places

pytestmark = pytest.mark.anyio

RUN = RunId("run-1")


def session_of(sandbox: Sandbox) -> SandboxSession:
    return SandboxSession(sandbox, supervisor=program("supervisor"))


def command(script: str) -> Command:
    return Command(argv=("/bin/sh", "-c", script), timeout_seconds=60.0)


async def test_a_run_goes_on_without_its_provider(root: Path) -> None:
    label = places.new_label()
    script = "echo begun >> starts; until test -e go; do sleep 1; done; exit 3"
    async with places.provider_in(root) as provider:
        sandbox = await provider.create(label, SandboxSpec())
        launched = await session_of(sandbox).launch(RUN, command(script))
        assert launched is Launched.STARTED

    async with places.provider_in(root) as provider:
        found = await provider.find(label)
        assert found is not None
        session = session_of(found)
        assert isinstance(await session.state(RUN), Running)
        assert await session.launch(RUN, command(script)) is Launched.EARLIER
        await said(found, ": > go")
        receipt = await session.wait(RUN, timeout_seconds=60.0, grace_seconds=2.0)

        assert receipt.how == Exited(3)
        assert await said(found, "cat starts") == "begun\n"
        await provider.destroy(label)


async def test_destroy_ends_a_supervised_run(root: Path) -> None:
    label, token = places.new_label(), sleep_token()
    async with places.provider_in(root) as provider:
        sandbox = await provider.create(label, SandboxSpec())
        await session_of(sandbox).launch(RUN, command(f"sleep {token}"))

        async def runs() -> bool:
            return bool(places.sleepers(token))

        assert await comes_true(runs)
        await provider.destroy(label)

        assert places.processes_of(sandbox.folder) == []
