# SPDX-License-Identifier: Apache-2.0
"""A small outside for use cases: a provider that breaks on demand, a clock, a kill."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import anyio
import attrs
from anyio.lowlevel import checkpoint

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.domain.claims import ClaimId, OwnerId
from livery.domain.deciders import Instant
from livery.ports.provided.claim_sandbox import ClaimSandbox
from livery.ports.provided.reap_claims import ReapClaims
from livery.ports.provided.release_claim import ReleaseClaim
from livery.ports.required.journal import Journal, Stream
from livery.ports.required.sandbox import SandboxAccess, SandboxId, SandboxLost
from livery.ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    DestroyFailed,
    ListedSandbox,
    SandboxSpec,
)

from ..benchmarks.nothing_provider import NothingSandbox

OWNER = OwnerId("owner-1")
E = TypeVar("E")


@attrs.define
class HandClock:
    """Time that a test moves by hand."""

    time: float = 1_000.0

    def now(self) -> Instant:
        return Instant(self.time)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await anyio.lowlevel.checkpoint()


@attrs.define
class BreakableProvider:
    """Makes sandboxes in a dictionary, and fails where a test says."""

    name: str = "fake"
    capabilities: Capabilities = frozenset()
    live: dict[ClaimId, OwnerId] = attrs.field(factory=dict[ClaimId, OwnerId])
    made: list[ClaimId] = attrs.field(factory=list[ClaimId])
    """Every sandbox that was ever made, in order."""
    ended: list[ClaimId] = attrs.field(factory=list[ClaimId])
    lifetime: float | None = None
    clock: HandClock = attrs.field(factory=HandClock)
    create_fault: BaseException | None = None
    """Raised by create, after the sandbox was made when `late`."""
    late: bool = False
    hangs: bool = False
    undestroyable: set[ClaimId] = attrs.field(factory=set[ClaimId])
    undying: set[ClaimId] = attrs.field(factory=set[ClaimId])
    """Claims whose sandboxes hang in their ending."""
    ends_at: dict[ClaimId, float] = attrs.field(factory=dict[ClaimId, float])
    """When the sandboxes end themselves, as the list tells it."""
    list_fault: Exception | None = None
    list_hangs: bool = False
    on_create: Callable[[], None] = lambda: None
    aliases: dict[str, str] = attrs.field(factory=dict[str, str])
    """Other spellings of sandboxes, and how each is spelled in truth."""
    second: set[ClaimId] = attrs.field(factory=set[ClaimId])
    """Claims whose own sandbox has ended and under whose name a late one stands."""

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> NothingSandbox:
        self.on_create()
        await anyio.lowlevel.checkpoint()
        if self.create_fault is not None and not self.late:
            raise self.create_fault
        if label.claim not in self.live:
            self.made.append(label.claim)
        self.live[label.claim] = label.owner
        if self.hangs:
            await anyio.sleep_forever()
        if self.create_fault is not None:
            raise self.create_fault
        return self._sandbox(label.claim)

    async def find(self, label: ClaimLabel) -> NothingSandbox | None:
        await anyio.lowlevel.checkpoint()
        return self._sandbox(label.claim) if label.claim in self.live else None

    async def identify(self, access: SandboxAccess) -> SandboxId:
        await anyio.lowlevel.checkpoint()
        spelled = access.descriptor["id"]
        return SandboxId(self.aliases.get(spelled, spelled))

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> NothingSandbox:
        claim = ClaimId(await BreakableProvider.identify(self, access))
        if claim not in self.live:
            raise SandboxLost(self.name, claim, "it does not exist")
        return self._sandbox(claim)

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        if self.list_fault is not None:
            raise self.list_fault
        if self.list_hangs:
            await anyio.sleep_forever()
        for claim, its_owner in tuple(self.live.items()):
            if its_owner == owner:
                label = ClaimLabel(claim=claim, owner=owner)
                yield ListedSandbox(
                    label=label,
                    sandbox_id=SandboxId(claim),
                    expires_at=self.ends_at.get(claim),
                )

    async def destroy(self, label: ClaimLabel) -> None:
        await anyio.lowlevel.checkpoint()
        if label.claim in self.undying:
            await anyio.sleep_forever()
        if label.claim in self.undestroyable:
            raise DestroyFailed(self.name, label.claim, "it hangs")
        if self.live.pop(label.claim, None) is not None:
            self.ended.append(label.claim)

    async def aclose(self) -> None:
        pass

    def _sandbox(self, claim: ClaimId) -> NothingSandbox:
        ends = None if self.lifetime is None else self.clock.time + self.lifetime
        name = SandboxId(f"{claim}-late" if claim in self.second else claim)
        return NothingSandbox(name, provider=self.name, expires_at=ends)


class Killed(BaseException):
    """The process is gone, in the middle of whatever it did."""


@attrs.define
class MortalJournal:
    """A journal whose process is killed around one of its appends."""

    kept: MemoryJournal
    appends_left: int
    after: bool
    """Whether the last append still reaches the disk."""
    dead: bool = False

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        if self.dead:
            raise Killed
        self.appends_left -= 1
        if self.appends_left == 0:
            self.dead = True
            if self.after:
                await self.kept.append(
                    stream, events, expected_version=expected_version
                )
            raise Killed
        return await self.kept.append(stream, events, expected_version=expected_version)

    def __getattr__(self, name: str) -> object:
        return getattr(self.kept, name)


@attrs.define
class CutOffJournal:
    """A journal whose asker is cancelled in the middle of one of its appends."""

    kept: MemoryJournal
    scope: anyio.CancelScope
    appends_left: int
    after: bool
    """Whether that append is kept all the same."""

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        self.appends_left -= 1
        if self.appends_left == 0 and not self.after:
            self.scope.cancel()
            await checkpoint()
        version = await self.kept.append(
            stream, events, expected_version=expected_version
        )
        if self.appends_left == 0:
            self.scope.cancel()
            await checkpoint()
        return version

    def __getattr__(self, name: str) -> object:
        return getattr(self.kept, name)


@attrs.define
class Outside:
    """Everything that the use cases of claims need."""

    journal: Journal = attrs.field(factory=MemoryJournal)
    clock: HandClock = attrs.field(factory=HandClock)
    provider: BreakableProvider = attrs.field(factory=BreakableProvider)
    holders: MemoryHolders = attrs.field(factory=MemoryHolders)

    @property
    def release(self) -> ReleaseClaim:
        return ReleaseClaim(
            journal=self.journal, clock=self.clock, provider=self.provider
        )

    @property
    def claim(self) -> ClaimSandbox:
        return ClaimSandbox(
            journal=self.journal,
            clock=self.clock,
            provider=self.provider,
            owner=OWNER,
            holders=self.holders,
            release=self.release,
        )

    @property
    def reap(self) -> ReapClaims:
        return ReapClaims(
            journal=self.journal,
            clock=self.clock,
            providers={self.provider.name: self.provider},
            owner=OWNER,
            holders=self.holders,
        )
