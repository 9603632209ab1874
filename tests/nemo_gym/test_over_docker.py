# SPDX-License-Identifier: Apache-2.0
"""Real NeMo Gym over real containers, found by entry point."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ..docker_engine import raw_engine
from ..entrypoints.command_lines import PROGRAM

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("nemo_gym"),
    pytest.mark.peer("docker"),
]

pytest.importorskip("nemo_gym", reason="NeMo Gym is not here")

from nemo_gym.sandbox import (  # noqa: E402
    AsyncSandbox,
    SandboxCreateError,
    SandboxSpec,
    SandboxStatus,
    create_provider,
    list_providers,
)

SECONDS_MAX = 60.0
PROCESSES = "for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$one; echo; done"
Config = dict[str, Any]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def config(state: Path, test_image: str) -> Iterator[Config]:
    """A configuration of `livery_docker` whose sandboxes are gone at the end."""
    blocks = {"create": {"image": test_image}, "connection": {"pull": "never"}}
    yield {"livery_docker": {"state": str(state), **blocks}}
    assert containers(state) == ()


def containers(state: Path) -> tuple[str, ...]:
    """Name the containers of a state folder's owner."""
    owner = (state / "owner").read_text().strip() if (state / "owner").exists() else "-"
    return raw_engine.labelled(f"livery.owner={owner}")


async def test_a_sandbox_from_create_to_close(config: Config, tmp_path: Path) -> None:
    assert "livery_docker" in list_providers()
    source, target = tmp_path / "here", tmp_path / "back"
    source.write_bytes(os.urandom(2_000_000))
    spec = SandboxSpec(
        ttl_s=600,
        env={"A": "from the spec"},
        files={"/data/a.txt": "put before the first command"},
        metadata={"team": "a"},
        ports=[8000],
    )

    async with AsyncSandbox(config, spec) as sandbox:
        await sandbox.start()
        ran = await sandbox.exec('echo "$A"; cat /data/a.txt; echo err >&2; exit 3')
        slow = await sandbox.exec("echo begun; sleep 4321", timeout_s=1)
        left = await sandbox.exec(f"({PROCESSES}) 2>/dev/null")
        astray = await sandbox.exec("true", cwd="/no/such/folder")
        await sandbox.upload(source, "/data/deep/binary")
        await sandbox.download("/data/deep/binary", target)
        found = await sandbox.endpoint(8000)

        assert (ran.stdout, ran.stderr) == (
            "from the spec\nput before the first command",
            "err\n",
        )
        assert (ran.return_code, ran.error_type) == (3, None)
        assert (slow.return_code, slow.error_type) == (125, "timeout")
        assert slow.stdout == "begun\n"
        assert "/proc/[0-9]*/cmdline" in (left.stdout or ""), "it sees itself"
        assert "sleep 4321" not in (left.stdout or ""), "what timed out was ended"
        assert (astray.return_code, astray.error_type) == (125, None)
        assert target.read_bytes() == source.read_bytes()
        assert found.endpoint.startswith("http://127.0.0.1:")
        assert await sandbox.status() is SandboxStatus.RUNNING
    assert await sandbox.status() is SandboxStatus.STOPPED


async def test_a_service_goes_on_when_it_shall_and_not_otherwise(
    config: Config,
) -> None:
    beats = "(while :; do echo >> /beats-{0}; sleep 0.05; done) >/dev/null 2>&1 &"
    async with AsyncSandbox(config, SandboxSpec()) as sandbox:
        await sandbox.start()
        await sandbox.exec(beats.format("kept"), preserve_background_services=True)
        await sandbox.exec(beats.format("ended"))

        async def size(name: str) -> int:
            result = await sandbox.exec(f"wc -l < /beats-{name} || echo 0")
            return int(result.stdout or "0")

        kept, ended = await size("kept"), await size("ended")
        with anyio.fail_after(SECONDS_MAX):
            while await size("kept") < kept + 3:
                pass  # Each look is a command, and takes its time.

        assert await size("ended") == ended


async def test_another_process_borrows_it_and_leaves_it_running(
    config: Config, tmp_path: Path
) -> None:
    script = (
        "import asyncio, json, sys\n"
        "from nemo_gym.sandbox import AsyncSandbox, create_provider\n"
        "config, descriptor = map(json.loads, sys.argv[1:])\n"
        "async def main():\n"
        "    provider = create_provider(config)\n"
        "    sandbox = await AsyncSandbox.connect(descriptor, provider=provider)\n"
        "    result = await sandbox.exec('pwd; cat given; echo taken > given')\n"
        "    await sandbox.disconnect()\n"
        "    print(json.dumps(result.stdout))\n"
        "asyncio.run(main())\n"
    )
    other = {"livery_docker": {"state": str(tmp_path / "other")}}
    async with AsyncSandbox(config, SandboxSpec(workdir="/work")) as sandbox:
        await sandbox.start()
        await sandbox.exec("echo given > given")
        descriptor = await sandbox.serialize()

        ended = await anyio.run_process(
            [sys.executable, "-c", script, json.dumps(other), json.dumps(descriptor)]
        )

        assert json.loads(ended.stdout) == "/work\ngiven\n"
        assert (await sandbox.exec("cat given")).stdout == "taken\n"


async def test_what_ends_it_from_outside_is_told_and_its_close_is_a_success(
    config: Config,
) -> None:
    async with AsyncSandbox(config, SandboxSpec()) as sandbox:
        await sandbox.start()
        descriptor = await sandbox.serialize()

        raw_engine.remove(descriptor["sandbox_id"])
        result = await sandbox.exec("true")

        assert (result.return_code, result.error_type) == (125, "sandbox")
        assert await sandbox.status() is SandboxStatus.STOPPED


async def test_an_image_that_is_not_there_is_a_create_error(config: Config) -> None:
    provider = create_provider(config)

    with pytest.raises(SandboxCreateError, match="has no image 'no-such:image'"):
        await provider.create(SandboxSpec(image="no-such:image"))
    await provider.aclose()


@pytest.mark.case("FC-090")
def test_a_killed_process_leaves_what_the_reaper_gives_back(
    config: Config, state: Path
) -> None:
    script = (
        "import asyncio, json, sys\n"
        "from nemo_gym.sandbox import AsyncSandbox, SandboxSpec\n"
        "async def main():\n"
        "    sandbox = AsyncSandbox(json.loads(sys.argv[1]), SandboxSpec(ttl_s=600))\n"
        "    await sandbox.start()\n"
        "    print('started', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    reap = [sys.executable, "-c", PROGRAM, "claims", "reap", "--state", str(state)]

    def reaped() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(reap, capture_output=True, text=True, timeout=SECONDS_MAX)

    with subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(config)],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "started\n"
            told = reaped()
            assert len(containers(state)) == 1, f"in use, and reaped: {told}"
        finally:
            child.send_signal(signal.SIGKILL)

    told = reaped()

    assert told.returncode == 0, told
    assert containers(state) == ()
