# SPDX-License-Identifier: Apache-2.0
"""Providers for NeMo Gym over sandboxes that a test makes up, with real NeMo Gym."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import attrs

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.nemo_gym import (
    GymProvider,
    GymProviderSettings,
    SpecDefaults,
    SpecReader,
    Workshop,
    load_gym,
)
from livery.adapters.system_clock import RandomIds, SystemClock
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.provided.claim_sandbox import ClaimSandbox
from livery.ports.provided.release_claim import ReleaseClaim
from livery.ports.required.faults import Fault
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Endpoint,
    Exited,
    FileMissing,
    Liveness,
    Output,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
    Status,
)
from livery.ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    DestroyFailed,
    ListedSandbox,
    SandboxSpec,
    Unsupported,
)

OWNER = OwnerId("owner-1")


@attrs.define(eq=False)
class MadeUpSandbox:
    """Answers as its world says."""

    claim: ClaimId
    world: "World"
    scratch: str = "/scratch"
    expires_at: float | None = None
    is_connected: bool = True

    @property
    def sandbox_id(self) -> SandboxId:
        return SandboxId(f"box-{self.claim}")

    @property
    def workdir(self) -> str:
        return "/workspace"

    async def exec(self, command: Command) -> Ended:
        await anyio.lowlevel.checkpoint()
        self.world.commands.append(command)
        if self.world.exec_fault is not None:
            raise self.world.exec_fault
        if self.world.answers:
            return self.world.answers.pop(0)
        return Ended(how=Exited(0), stdout=Output(head=b"ok", size=2))

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        if self.world.hangs:
            await anyio.sleep_forever()
        self.world.files[path] = b"".join([chunk async for chunk in chunks])
        self.world.modes[path] = mode

    @asynccontextmanager
    async def _opened(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        if path not in self.world.files:
            raise FileMissing(path)

        async def chunks() -> AsyncGenerator[bytes]:
            yield self.world.files[path]
            if self.world.cut is not None:
                raise self.world.cut

        found = chunks()
        try:
            yield found
        finally:
            await found.aclose()

    def get(self, path: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._opened(path)

    async def stat(self, path: str) -> object:
        raise FileMissing(path)

    async def status(self) -> Status:
        if self.world.status_fault is not None:
            raise self.world.status_fault
        return self.world.status

    async def endpoint(self, port: int) -> Endpoint:
        if port == 1:
            raise Unsupported("fake", "published ports", "port 1 was not asked for")
        if port == 2:
            raise SandboxFailed("fake", "b", "endpoint", "no answer")
        return Endpoint(url=f"http://127.0.0.1:{port}", headers={"X-Way": "here"})

    def access(self) -> SandboxAccess:
        return SandboxAccess(
            provider="fake", descriptor={"claim": self.claim}, workdir=self.workdir
        )

    async def disconnect(self) -> None:
        self.is_connected = False
        if self.world.disconnect_fault is not None:
            raise self.world.disconnect_fault


@attrs.define(eq=False)
class World:
    """A provider and all that its sandboxes do; a test changes what it likes."""

    name: str = "fake"
    capabilities: Capabilities = frozenset()
    live: dict[ClaimId, MadeUpSandbox] = attrs.field(
        factory=dict[ClaimId, MadeUpSandbox]
    )
    specs: list[SandboxSpec] = attrs.field(factory=list[SandboxSpec])
    commands: list[Command] = attrs.field(factory=list[Command])
    answers: list[Ended] = attrs.field(factory=list[Ended])
    files: dict[str, bytes] = attrs.field(factory=dict[str, bytes])
    modes: dict[str, int] = attrs.field(factory=dict[str, int])
    status: Status = attrs.field(factory=lambda: Status(liveness=Liveness.RUNNING))
    status_fault: Fault | None = None
    exec_fault: Fault | None = None
    create_fault: Fault | None = None
    open_fault: Exception | None = None
    close_fault: Fault | None = None
    disconnect_fault: Fault | None = None
    cut: Fault | None = None
    hangs: bool = False
    undestroyable: bool = False
    opened: int = 0
    creating: anyio.Event = attrs.field(factory=anyio.Event)
    may_create: anyio.Event | None = None
    opening: anyio.Event = attrs.field(factory=anyio.Event)
    may_open: anyio.Event | None = None

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> MadeUpSandbox:
        await anyio.lowlevel.checkpoint()
        if self.create_fault is not None:
            raise self.create_fault
        self.specs.append(spec)
        self.live[label.claim] = MadeUpSandbox(label.claim, self)
        self.creating.set()
        if self.may_create is not None:
            await self.may_create.wait()
        return self.live[label.claim]

    async def find(self, label: ClaimLabel) -> MadeUpSandbox | None:
        await anyio.lowlevel.checkpoint()
        found = self.live.get(label.claim)
        return MadeUpSandbox(found.claim, self) if found else None

    async def identify(self, access: SandboxAccess) -> SandboxId:
        await anyio.lowlevel.checkpoint()
        return SandboxId(access.descriptor["claim"])

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> MadeUpSandbox:
        await anyio.lowlevel.checkpoint()
        claim = ClaimId(access.descriptor["claim"])
        if claim not in self.live:
            raise SandboxLost("fake", claim, "there is none")
        return MadeUpSandbox(claim, self)

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        for claim, sandbox in self.live.items():
            label = ClaimLabel(claim=claim, owner=OWNER)
            yield ListedSandbox(label=label, sandbox_id=sandbox.sandbox_id)

    async def destroy(self, label: ClaimLabel) -> None:
        await anyio.lowlevel.checkpoint()
        if self.hangs:
            await anyio.sleep_forever()
        if self.undestroyable:
            raise DestroyFailed("fake", label.claim, "it resists")
        self.live.pop(label.claim, None)

    async def aclose(self) -> None:
        pass

    @asynccontextmanager
    async def workshop(self) -> AsyncGenerator[Workshop]:
        """Open a workshop over this world, with a journal of its own."""
        self.opening.set()
        if self.may_open is not None:
            await self.may_open.wait()
        if self.open_fault is not None:
            raise self.open_fault
        self.opened += 1
        clock, holders = SystemClock(), MemoryHolders()
        release = ReleaseClaim(journal=self.journal, clock=clock, provider=self)
        claim = ClaimSandbox(
            journal=self.journal,
            clock=clock,
            provider=self,
            owner=OWNER,
            holders=holders,
            release=release,
        )
        yield Workshop(provider=self, claim=claim, release=release, ids=RandomIds())
        if self.close_fault is not None:
            raise self.close_fault

    journal: MemoryJournal = attrs.field(factory=MemoryJournal)

    def provider(
        self, *, defaults: SpecDefaults | None = None, **settings: object
    ) -> GymProvider:
        """Return a provider for NeMo Gym over this world."""
        words = {"name": "livery_fake", "block": "fake", **settings}
        return GymProvider(
            GymProviderSettings(**words),  # type: ignore[arg-type]
            gym=load_gym(),
            specs=SpecReader(defaults or SpecDefaults()),
            open_workshop=self.workshop,
        )
