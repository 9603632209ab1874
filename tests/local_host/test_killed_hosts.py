# SPDX-License-Identifier: Apache-2.0
"""A host process that is killed hard forgets no sandbox and no process."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import anyio
import pytest

from livery.adapters.local_host import LocalHostSandboxProvider
from livery.domain.claims import ClaimId
from livery.ports.contracts.provider_context import listed, read_word
from livery.ports.contracts.sandbox_context import comes_true, sleep_token
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from . import places
from .places import OWNER

pytestmark = pytest.mark.anyio

HOST = Path(__file__).with_name("doomed_host.py")
KILLS = 12
KILL_SECONDS_MAX = 0.9
SETTLED_SECONDS = 20.0


@contextmanager
def doomed(*words: str, **env: str) -> Generator[subprocess.Popen[str]]:
    host = subprocess.Popen(
        [sys.executable, str(HOST), *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    with host:
        try:
            yield host
        finally:
            host.kill()


def heard(host: subprocess.Popen[str]) -> str:
    stream: IO[str] | None = host.stdout
    assert stream is not None
    return stream.readline()


@pytest.mark.case("FC-142")
async def test_a_sandbox_outlives_its_killed_host(root: Path) -> None:
    label = ClaimLabel(claim=ClaimId("held"), owner=OWNER)
    attached, detached = sleep_token(), sleep_token()
    arguments = ("hold", str(root), label.claim, attached, detached)
    with doomed(*arguments, LV_HOST_SECRET="canary") as host:
        assert await anyio.to_thread.run_sync(heard, host) == "held held\n"
        assert await comes_true(lambda: seen(attached), seconds=SETTLED_SECONDS)

    async with places.provider_in(root) as provider:
        assert await comes_true(lambda: gone(attached), seconds=SETTLED_SECONDS)
        assert places.sleepers(detached)
        found = await provider.find(label)
        assert found is not None
        assert await read_word(found, "word") == "kept"
        environment = await read_word(found, "env")
        assert "canary" not in environment
        assert f"HOME={places.folder_of(root, label)}/home\n" in environment
        assert [one.label for one in await listed(provider, OWNER)] == [label]

        await provider.destroy(label)

        assert places.sleepers(detached) == []
        assert await places.Onlooker(root).left(label) == ()


@pytest.mark.case("FC-142")
async def test_killed_at_any_moment_all_is_found_again(root: Path) -> None:
    moments = random.Random(7)
    for _ in range(KILLS):
        with doomed("churn", str(root)) as host:
            assert (await anyio.to_thread.run_sync(heard, host)).startswith("began")
            await anyio.sleep(moments.uniform(0.0, KILL_SECONDS_MAX))

        async with places.provider_in(root) as provider:
            await destroy_all(provider)
        # What has no label yet has nothing else in it; a later opening tidies it.
        assert await comes_true(lambda: empty_of_processes(root))
        for path in root.iterdir():
            inside = [inner.name for inner in path.iterdir()]
            assert all(name.startswith("claim.json.") for name in inside), inside
            shutil.rmtree(path)


async def test_a_half_made_folder_is_its_claims(root: Path) -> None:
    label = places.new_label()
    async with places.provider_in(root) as provider:
        await provider.create(label, SandboxSpec())
    folder = places.folder_of(root, label)
    half = folder.rename(folder.with_name(f".making-{folder.name}.0123456789ab"))

    async with places.provider_in(root) as provider:
        assert await provider.find(label) is None
        (found,) = await listed(provider, OWNER)
        assert (found.label, found.state) == (label, "half made")

        again = await provider.create(label, SandboxSpec())
        assert half.exists()
        assert again.sandbox_id == folder.name
        await provider.destroy(label)

        assert not half.exists()


async def test_a_half_ended_sandbox_is_ended_by_the_next_try(root: Path) -> None:
    label = places.new_label()
    async with places.provider_in(root) as provider:
        await provider.create(label, SandboxSpec())
    record = places.folder_of(root, label) / "claim.json"
    record.write_text(record.read_text().replace('"live"', '"ending"'))

    async with places.provider_in(root) as provider:
        assert await provider.find(label) is None
        (found,) = await listed(provider, OWNER)
        assert found.state == "ending"
        await provider.destroy(label)


async def destroy_all(provider: LocalHostSandboxProvider) -> None:
    for found in await listed(provider, OWNER):
        await provider.destroy(found.label)
    assert await listed(provider, OWNER) == []


async def seen(token: str) -> bool:
    return bool(places.sleepers(token))


async def gone(token: str) -> bool:
    return not places.sleepers(token)


async def empty_of_processes(root: Path) -> bool:
    return not places.processes_of(root)
