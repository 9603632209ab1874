# SPDX-License-Identifier: Apache-2.0
"""The real Claude Code, from the registry that npm is configured for, in a sandbox."""

from pathlib import Path

import pytest

from livery.adapters.local_host import LocalHostConfig, open_local_host
from livery.adapters.npm_registry import open_npm_registry
from livery.adapters.system_clock import SystemClock
from livery.adapters.worker_scripts import program
from livery.domain.runtimes import Stager
from livery.ports.provided.install_runtime import (
    Came,
    InstallRuntime,
    WantedRuntime,
)
from livery.ports.provided.send_parts import PartLanes
from livery.ports.required.sandbox import Command
from livery.ports.required.sandbox_provider import SandboxSpec

from .registry import cache_in
from .sandboxes import label

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.long,
    pytest.mark.peer("npm"),
]
VERSION = "2.1.332"
SHA256 = "a2df1f41bb00250992926420d0063f89b127cb81abdd284dbefb80c50ff1d026"
"""Of linux-x64, seen before."""


async def test_claude_code_is_fetched_and_installed(tmp_path: Path) -> None:
    source = open_npm_registry(cache_in(tmp_path))
    install = InstallRuntime(
        source=source,
        program=program("runtimes"),
        lanes=PartLanes(),
        clock=SystemClock(),
    )
    wanted = WantedRuntime(name="claude_code", version=VERSION, glibc_least=(2, 26))
    config = LocalHostConfig(root=tmp_path / "sandboxes")
    async with open_local_host(config) as provider:
        sandbox = await provider.create(label("real"), SandboxSpec())
        try:
            first = await install(sandbox, wanted, stager=Stager("first"))
            second = await install(sandbox, wanted, stager=Stager("second"))
            ended = await sandbox.exec(
                Command(argv=(first.path, "--version"), timeout_seconds=60.0)
            )
        finally:
            await provider.destroy(label("real"))
    if first.runtime.platform.word == "linux-x86_64-glibc":
        assert first.runtime.sha256 == SHA256
    assert (first.came, second.came) == (Came.TRANSFERRED, Came.REUSED)
    assert ended.stdout.kept == f"{VERSION} (Claude Code)\n".encode()
