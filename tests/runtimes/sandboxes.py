# SPDX-License-Identifier: Apache-2.0
"""Local sandboxes to install programs in, and one whose parts do not all arrive."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from livery.adapters.local_host import (
    LocalHostConfig,
    LocalHostSandboxProvider,
    open_local_host,
)
from livery.adapters.local_runtimes import LocalRuntimeSource
from livery.adapters.system_clock import SystemClock
from livery.adapters.worker_scripts import program
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.provided.install_runtime import InstallRuntime, WantedRuntime
from livery.ports.provided.send_parts import PartLanes
from livery.ports.required.sandbox import Sandbox, SandboxFailed
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from .registry import NAME, VERSION, cache_in, program_text

SIZE = 5_000_000
WANTED = WantedRuntime(name=NAME, version=VERSION, glibc_least=(2, 26))
OWNER = OwnerId("owner-of-the-test")


@attrs.define(kw_only=True)
class Host:
    """A host with a program, and sandboxes."""

    folder: Path
    provider: LocalHostSandboxProvider
    program: bytes
    source: LocalRuntimeSource

    def install(self, **options: Any) -> InstallRuntime:
        """Return the use case of a new process."""
        words = {
            "source": self.source,
            "program": program("runtimes"),
            "lanes": PartLanes(),
            "clock": SystemClock(),
            "pause_seconds": 0.0,
            **options,
        }
        return InstallRuntime(**words)

    async def sandbox(self, name: str = "one") -> Sandbox:
        """Return the sandbox of a claim of that name."""
        return await self.provider.create(label(name), SandboxSpec())


def label(name: str) -> ClaimLabel:
    return ClaimLabel(claim=ClaimId(name), owner=OWNER)


def place_of(sandbox: Sandbox) -> Path:
    """Return the folder of the program in a sandbox."""
    (root,) = Path(sandbox.scratch).parent.glob(".runtimes-*")
    return root / f"{NAME}-{VERSION}"


def left_in(sandbox: Sandbox) -> list[str]:
    """Return what stands in the program's folder."""
    return sorted(path.name for path in place_of(sandbox).iterdir())


@asynccontextmanager
async def host_in(folder: Path, text: bytes | None = None) -> AsyncGenerator[Host]:
    """Open a host below a folder; its sandboxes are gone in the end."""
    text = program_text(SIZE) if text is None else text
    path = folder / "claude"
    path.write_bytes(text)
    path.chmod(0o755)
    source = LocalRuntimeSource(
        path=path, sha256=hashlib.sha256(text).hexdigest(), cache=cache_in(folder)
    )
    config = LocalHostConfig(root=folder / "sandboxes")
    async with open_local_host(config) as provider:
        host = Host(folder=folder, provider=provider, program=text, source=source)
        try:
            yield host
        finally:
            async for listed in provider.list(OWNER):
                await provider.destroy(listed.label)


@attrs.define
class Unsteady:
    """A sandbox whose puts go through what `turn` makes of their path and content."""

    _sandbox: Sandbox
    turn: Callable[[str, bytes], bytes]
    put_paths: list[str] = attrs.field(factory=list[str])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def put(self, path: str, chunks: AsyncIterable[bytes], **words: Any) -> None:
        content = b"".join([chunk async for chunk in chunks])
        content = self.turn(path, content)
        await self._sandbox.put(path, _once(content), **words)
        self.put_paths.append(path)


async def _once(content: bytes) -> AsyncGenerator[bytes]:
    yield content


def broken(path: str) -> SandboxFailed:
    return SandboxFailed("local", "one", "put", f"{path} broke off")
