# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are folders, with commands run as they are, and faults on demand."""

import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import attrs

from livery.domain.claims import ClaimId
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Endpoint,
    Exited,
    FileKind,
    FileMissing,
    FileStat,
    Liveness,
    NotAFile,
    Output,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    Status,
)
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from ..use_cases.outside import BreakableProvider


@attrs.define
class Faults:
    """What goes wrong, as a test says."""

    says_missing: set[str] = attrs.field(factory=set[str])
    """Files that are there, and that a read says are missing."""
    look: Ended | None = None
    """What every command comes to instead."""
    get: Exception | None = None
    put: Exception | None = None
    reading: anyio.Event = attrs.field(factory=anyio.Event)
    saving: anyio.Event = attrs.field(factory=anyio.Event)
    may_save: anyio.Event | None = None


@attrs.define(eq=False)
class FolderSandbox:
    """A folder of this host."""

    sandbox_id: SandboxId
    folder: Path
    provider: str
    faults: Faults
    expires_at: float | None = None

    @property
    def workdir(self) -> str:
        return str(self.folder / "work")

    @property
    def scratch(self) -> str:
        return str(self.folder / "scratch")

    async def exec(self, command: Command) -> Ended:
        if self.faults.look is not None:
            return self.faults.look
        ended = await anyio.run_process(
            list(command.argv),
            input=command.stdin,
            cwd=command.cwd or self.workdir,
            env={**os.environ, **command.env},
            check=False,
        )
        return Ended(
            how=Exited(ended.returncode),
            stdout=Output(head=ended.stdout, size=len(ended.stdout)),
            stderr=Output(head=ended.stderr, size=len(ended.stderr)),
        )

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        content = b"".join([chunk async for chunk in chunks])
        if self.faults.may_save is not None:
            self.faults.saving.set()
            await self.faults.may_save.wait()
        if self.faults.put is not None:
            raise self.faults.put
        at = self._at(path)
        if at.is_dir():
            raise NotAFile(path, "folder")
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxFailed(
                self.provider, self.sandbox_id, "put", str(error)
            ) from error
        at.write_bytes(content)
        at.chmod(mode)

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        self.faults.reading.set()
        if self.faults.get is not None:
            raise self.faults.get
        at = self._at(path)
        if at.is_dir():
            raise NotAFile(path, "folder")
        if path in self.faults.says_missing or not at.exists():
            raise FileMissing(path)

        async def chunks() -> AsyncIterator[bytes]:
            yield at.read_bytes()

        yield chunks()

    async def stat(self, path: str) -> FileStat:
        at = self._at(path)
        if not at.exists():
            raise FileMissing(path)
        return FileStat(kind=FileKind.FILE, size=at.stat().st_size, mode=0o644)

    async def status(self) -> Status:
        return Status(liveness=Liveness.RUNNING)

    async def endpoint(self, port: int) -> Endpoint:
        return Endpoint(url=f"http://127.0.0.1:{port}")

    def access(self) -> SandboxAccess:
        return SandboxAccess(
            provider=self.provider,
            descriptor={"id": self.sandbox_id},
            workdir=self.workdir,
        )

    async def disconnect(self) -> None:
        pass

    def _at(self, path: str) -> Path:
        return Path(self.workdir) / path


@attrs.define
class FolderProvider(BreakableProvider):
    """Makes folders; what was ended is in `ended`."""

    root: Path = attrs.field(kw_only=True)
    faults: Faults = attrs.field(factory=Faults)
    may_create: anyio.Event | None = None
    creating: anyio.Event = attrs.field(factory=anyio.Event)

    async def create(  # type: ignore[override]
        self, label: ClaimLabel, spec: SandboxSpec
    ) -> FolderSandbox:
        self.creating.set()
        if self.may_create is not None:
            await self.may_create.wait()
        await BreakableProvider.create(self, label, spec)
        return self._folder(label.claim)

    async def find(self, label: ClaimLabel) -> FolderSandbox | None:  # type: ignore[override]
        return self._folder(label.claim) if label.claim in self.live else None

    def only(self) -> FolderSandbox:
        """Return the one that lives."""
        (claim,) = self.live
        return self._folder(claim)

    def _folder(self, claim: ClaimId) -> FolderSandbox:
        folder = self.root / claim
        (folder / "work").mkdir(parents=True, exist_ok=True)
        (folder / "scratch").mkdir(exist_ok=True)
        return FolderSandbox(SandboxId(claim), folder, self.name, self.faults)
