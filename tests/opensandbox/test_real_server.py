# SPDX-License-Identifier: Apache-2.0
"""The real server: its errors, its restart, and its own client on our execd."""

import json
import secrets
import signal
import time
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.http_client import open_http_client
from livery.adapters.opensandbox import (
    OpenSandboxConfig,
    OpenSandboxProvider,
    open_opensandbox,
)
from livery.adapters.opensandbox.lifecycle import KEY_HEADER, Lifecycle
from livery.ports.contracts.sandbox_context import pieces
from livery.ports.required.sandbox import Ended, ExitUnknown, SandboxFailed, shell
from livery.ports.required.sandbox_provider import (
    CreateFailed,
    ImageMissing,
    Mount,
    Network,
    ProviderForbidden,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)

from .. import peers
from ..docker_engine import raw_engine
from ..docker_engine.engines import Owners
from .real_server import API_KEY, EGRESS_IMAGE, RealServer

pytestmark = [pytest.mark.anyio, pytest.mark.peer("opensandbox")]


async def test_its_own_client_works_with_our_execd(
    real: RealServer, test_image: str
) -> None:
    with anyio.fail_after(300.0):
        ended = await anyio.run_process(
            [
                str(peers.opensandbox_program("python")),
                str(Path(__file__).with_name("official_client.py")),
                real.address.removeprefix("http://"),
                API_KEY,
                test_image,
            ],
            check=False,
        )
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    (line,) = [x for x in ended.stdout.decode().splitlines() if x.startswith("SEEN ")]
    seen = json.loads(line.removeprefix("SEEN "))

    sandbox = seen.pop("id")
    assert seen == {
        "healthy": True,
        "stdout": ["out"],
        "stderr": ["err"],
        "exit": 0,
        "failed": 3,
        "timed": -1,
        "timed_error": ["signal: killed"],
        "logs": "one\ntwo\n",
        "text": "text",
        "bytes": True,
        "mode": 640,
        "deleted": 1,
    }
    assert raw_engine.labelled(f"opensandbox.io/id={sandbox}") == ()


@pytest.mark.case("FC-081")
async def test_metadata_that_are_removed_are_gone_in_the_same_answer(
    real: RealServer,
    real_provider: OpenSandboxProvider,
    owners: Owners,
    test_image: str,
) -> None:
    label = owners.label()
    sandbox = await real_provider.create(label, SandboxSpec(image=test_image))
    try:
        headers = {KEY_HEADER: API_KEY}
        async with open_http_client(real.address, headers=headers) as http:
            lifecycle = Lifecycle(http=http, provider="real", address=real.address)
            changed = await lifecycle.change_metadata(sandbox.sandbox_id, {"team": "a"})
            removed = await lifecycle.change_metadata(
                sandbox.sandbox_id, {"team": None}
            )
            read = await lifecycle.get(sandbox.sandbox_id)
    finally:
        await real_provider.destroy(label)

    assert changed.metadata["team"] == "a"
    assert "team" not in removed.metadata
    assert read is not None
    assert "team" not in read.metadata
    assert "livery.making" not in read.metadata


async def test_its_errors_are_told_apart_in_seconds(
    real: RealServer,
    real_provider: OpenSandboxProvider,
    owners: Owners,
    test_image: str,
) -> None:
    spec = SandboxSpec(image=test_image)
    async with open_opensandbox(
        OpenSandboxConfig(
            address=real.address, api_key=API_KEY, egress=True, host_mounts=True
        )
    ) as bold:
        missing = "livery-test/no-such-image:1"
        with anyio.fail_after(60.0):
            with pytest.raises(ImageMissing, match="no-such-image"):
                await bold.create(owners.label(), attrs.evolve(spec, image=missing))
            closed = attrs.evolve(spec, network=Network.NONE)
            with pytest.raises(CreateFailed, match=EGRESS_IMAGE):
                await bold.create(owners.label(), closed)
            mount = Mount(source="/etc", target="/mnt")
            with pytest.raises(SpecRefused, match="HOST_PATH_NOT_ALLOWED"):
                await bold.create(owners.label(), attrs.evolve(spec, mounts=(mount,)))
            with pytest.raises(CreateFailed):
                await bold.create(owners.label(), attrs.evolve(spec, cpus=4000.0))
    wrong = OpenSandboxConfig(address=real.address, api_key="wrong")
    async with open_opensandbox(wrong) as stranger:
        with pytest.raises(ProviderForbidden):
            await stranger.create(owners.label(), spec)
    assert owners.left() == []


async def test_its_own_proxy_carries_the_worker_and_programs(
    real: RealServer, owners: Owners, test_image: str
) -> None:
    config = OpenSandboxConfig(
        address=real.address, api_key=API_KEY, through_server=True
    )
    content = secrets.token_bytes(700_000)
    label = owners.label()
    async with open_opensandbox(config) as provider:
        sandbox = await provider.create(label, SandboxSpec(image=test_image))
        try:
            told = await sandbox.exec(shell("printf 'a\\0b'", timeout_seconds=60.0))
            await sandbox.put("bulk", pieces(content), size=len(content))
            async with sandbox.get("bulk") as chunks:
                back = b"".join([chunk async for chunk in chunks])
            async with sandbox.open_process(("cat",)) as stream:
                await stream.send(b"there and back")
                with anyio.fail_after(30.0):
                    echoed = await stream.receive()
            await sandbox.exec(shell("kill -KILL -1; sleep 60", timeout_seconds=30.0))
            again = await sandbox.exec(shell("echo on", timeout_seconds=60.0))
        finally:
            await sandbox.disconnect()
            await provider.destroy(label)

    assert told.stdout.kept == b"a\0b"
    assert back == content
    assert echoed == b"there and back"
    assert again.stdout.kept == b"on\n"
    assert owners.left() == []


async def test_its_limits_count(
    real_provider: OpenSandboxProvider, owners: Owners, test_image: str
) -> None:
    spec = SandboxSpec(image=test_image, cpus=0.5, memory_mib=256)
    label = owners.label()
    sandbox = await real_provider.create(label, spec)
    try:
        script = (
            "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes"
        )
        told = await sandbox.exec(shell(script, timeout_seconds=60.0))
        hungry = "python3 -c 'x = bytearray(600 * 1024 * 1024)'"
        ended = await sandbox.exec(shell(f"{hungry}; exit 3", timeout_seconds=60.0))
        status = await sandbox.status()
    finally:
        await real_provider.destroy(label)

    assert str(256 * 1024 * 1024).encode() in told.stdout.kept
    assert not ended.succeeded
    assert status.out_of_memory


async def test_an_agent_that_removes_python_has_broken_its_sandbox_itself(
    real_provider: OpenSandboxProvider, owners: Owners, test_image: str
) -> None:
    label = owners.label()
    sandbox = await real_provider.create(label, SandboxSpec(image=test_image))
    try:
        script = (
            "worker=$(cut -d' ' -f4 /proc/$PPID/stat);"
            " door=$(cut -d' ' -f4 /proc/$worker/stat);"
            " rm -f /usr/bin/python3*; kill -9 $door $worker; sleep 60"
        )
        cut = await sandbox.exec(shell(script, timeout_seconds=60.0))
        with pytest.raises(SandboxFailed) as caught:
            await sandbox.exec(shell("true", timeout_seconds=60.0))
    finally:
        await real_provider.destroy(label)

    assert isinstance(cut.how, ExitUnknown)
    assert caught.value.from_inside
    assert "python" in caught.value.reason


async def test_a_snapshot_of_a_sandbox_is_what_another_begins_with(
    real: RealServer,
    real_provider: OpenSandboxProvider,
    owners: Owners,
    test_image: str,
) -> None:
    async def asked(method: str, path: str) -> dict[str, object]:
        headers = {KEY_HEADER: API_KEY}
        async with open_http_client(real.address, headers=headers) as http:
            answer = await http.request(method, path, repeatable=False)
        assert answer.is_success, answer.text
        found: dict[str, object] = answer.json() if answer.content else {}
        return found

    first, second = owners.label(), owners.label()
    sandbox = await real_provider.create(first, SandboxSpec(image=test_image))
    snapshot = ""
    try:
        await sandbox.put("/kept", pieces(b"kept"), size=4)
        words = await asked("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/snapshots")
        snapshot = str(words["id"])
        with anyio.fail_after(60.0):
            while "Ready" not in json.dumps(words):
                await anyio.sleep(0.1)
                words = await asked("GET", f"/v1/snapshots/{snapshot}")
        spec = SandboxSpec(provider_options={"snapshot": snapshot})
        again = await real_provider.create(second, spec)
        async with again.get("/kept") as chunks:
            kept = b"".join([chunk async for chunk in chunks])
    finally:
        await real_provider.destroy(first)
        await real_provider.destroy(second)
        if snapshot:
            await asked("DELETE", f"/v1/snapshots/{snapshot}")

    assert kept == b"kept"
    assert owners.left() == []


async def test_a_pool_is_asked_for_and_a_server_without_says_so(
    real_provider: OpenSandboxProvider, owners: Owners, test_image: str
) -> None:
    pooled = SandboxSpec(
        image=test_image, provider_options={"extensions": {"poolRef": "warm"}}
    )

    with pytest.raises(Unsupported, match="pool"):
        await real_provider.create(owners.label(), pooled)

    assert owners.left() == []


@pytest.mark.keeps("children", reason="the server that all tests share is another one")
async def test_a_restart_of_the_server_disturbs_nothing(
    real: RealServer,
    real_provider: OpenSandboxProvider,
    owners: Owners,
    test_image: str,
) -> None:
    label = owners.label()
    sandbox = await real_provider.create(label, SandboxSpec(image=test_image))
    heard: list[Ended] = []
    try:
        async with anyio.create_task_group() as tasks:

            async def works() -> None:
                script = "sleep 6; echo whole"
                heard.append(await sandbox.exec(shell(script, timeout_seconds=90.0)))

            tasks.start_soon(works)
            await anyio.to_thread.run_sync(real.stop, signal.SIGKILL)
            while_down = await sandbox.exec(shell("echo on", timeout_seconds=30.0))
            await anyio.to_thread.run_sync(real.start)

        assert while_down.stdout.kept == b"on\n"
        assert heard[0].stdout.kept == b"whole\n"
        found = await real_provider.find(label)
        assert found is not None
        assert found.sandbox_id == sandbox.sandbox_id
        assert found.expires_at is not None
        assert found.expires_at > time.time() + 3000.0
    finally:
        await real_provider.destroy(label)
