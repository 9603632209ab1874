# SPDX-License-Identifier: Apache-2.0
"""A provider whose sandboxes do nothing, so that only Livery's own cost is left."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

import attrs

from livery.domain.claims import ClaimId, OwnerId
from livery.domain.scores import GraderEnd, GraderEvidence
from livery.domain.tasks import Task
from livery.ports.required.harness import PlacedFile
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Endpoint,
    Exited,
    FileMissing,
    FileStat,
    Liveness,
    SandboxAccess,
    SandboxId,
    Status,
)
from livery.ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    ListedSandbox,
    SandboxSpec,
)
from livery.ports.required.world import GraderPlan, GraderRun


@attrs.frozen
class NothingSandbox:
    """Answers at once and keeps nothing."""

    sandbox_id: SandboxId
    workdir: str = "/workspace"
    scratch: str = "/scratch"
    expires_at: float | None = None
    provider: str = "nothing"

    async def exec(self, command: Command) -> Ended:
        return Ended(how=Exited(0))

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        async for _ in chunks:
            pass

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        raise FileMissing(path)
        yield  # pyright: ignore[reportUnreachable]

    async def stat(self, path: str) -> FileStat:
        raise FileMissing(path)

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


@attrs.define
class NothingProvider:
    """Makes and ends sandboxes in a dictionary."""

    name: str = "nothing"
    capabilities: Capabilities = frozenset()
    live: dict[ClaimId, ClaimLabel] = attrs.field(factory=dict[ClaimId, ClaimLabel])

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> NothingSandbox:
        self.live[label.claim] = label
        return NothingSandbox(SandboxId(label.claim))

    async def find(self, label: ClaimLabel) -> NothingSandbox | None:
        known = label.claim in self.live
        return NothingSandbox(SandboxId(label.claim)) if known else None

    async def identify(self, access: SandboxAccess) -> SandboxId:
        return SandboxId(access.descriptor["id"])

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> NothingSandbox:
        return NothingSandbox(SandboxId(access.descriptor["id"]))

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        for claim, label in self.live.items():
            yield ListedSandbox(label=label, sandbox_id=SandboxId(claim))

    async def destroy(self, label: ClaimLabel) -> None:
        self.live.pop(label.claim, None)

    async def aclose(self) -> None:
        pass


@attrs.frozen
class NothingWorld:
    """A sandbox without files; everything is graded 0 without a grader."""

    name: str = "nothing"

    def check(self, task: Task) -> None:
        pass

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        return configured

    def files(self, task: Task) -> tuple[PlacedFile, ...]:
        return ()

    def grader(self, task: Task, mark: str) -> GraderPlan | None:
        return None

    def evidence(self, task: Task, run: GraderRun | None) -> GraderEvidence:
        return GraderEvidence(end=GraderEnd.ENDED, marked=True, reward=0.0)
