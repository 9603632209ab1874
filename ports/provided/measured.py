# SPDX-License-Identifier: Apache-2.0
"""A journal, providers and their sandboxes, watched: what they do is counted on the way.

Nothing else changes: calls, answers and faults are those of what is watched. A call that
fails is not timed, since how long a refusal takes says nothing of the work.
"""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar, cast

import attrs

from ...domain.claims import ClaimId, OwnerId
from ..required.byte_stream import ByteStream
from ..required.clock import Clock
from ..required.journal import Event, History, Journal, Stream
from ..required.sandbox import (
    Command,
    Ended,
    Endpoint,
    FileStat,
    Sandbox,
    SandboxAccess,
    SandboxId,
    Status,
)
from ..required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    FreezingProvider,
    ListedSandbox,
    SandboxProvider,
    SandboxSpec,
)
from ..required.sandbox_streams import StreamingSandbox
from .measures import Measures

E = TypeVar("E")


@attrs.frozen(kw_only=True)
class MeasuredJournal:
    """A journal whose reads and appends are timed and whose events are counted."""

    journal: Journal
    measures: Measures
    clock: Clock

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        """Append, time it, and count the events once they are written."""
        begun = self.clock.monotonic()
        version = await self.journal.append(
            stream, events, expected_version=expected_version
        )
        self.measures.appends.note(stream.category, self.clock.monotonic() - begun)
        self.measures.note_events(cast("Sequence[Event]", events))
        return version

    async def read(self, stream: Stream[E], *, after: int = 0) -> History[E]:
        """Read, and time it."""
        begun = self.clock.monotonic()
        history = await self.journal.read(stream, after=after)
        self.measures.reads.note(stream.category, self.clock.monotonic() - begun)
        return history

    async def open_streams(self, category: str) -> tuple[str, ...]:
        """Return the keys of the streams that have not ended."""
        return await self.journal.open_streams(category)

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        """Wait, untimed: it takes as long as others take."""
        return await self.journal.moved(stream, after=after)

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        """Remove the stream."""
        await self.journal.forget(stream, expected_version=expected_version)


@attrs.frozen(kw_only=True)
class MeasuredProvider:
    """A provider whose creations are timed and whose sandboxes are watched."""

    provider: SandboxProvider
    measures: Measures
    clock: Clock

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.provider.name

    @property
    def capabilities(self) -> Capabilities:
        """What the provider can do."""
        return self.provider.capabilities

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> Sandbox:
        """Make a sandbox, and time it; a creation that raises is counted."""
        begun = self.clock.monotonic()
        try:
            sandbox = await self.provider.create(label, spec)
        except BaseException:
            self.measures.failures[self.name] += 1
            raise
        self.measures.creations.note(self.name, self.clock.monotonic() - begun)
        return self._watched(sandbox)

    async def find(self, label: ClaimLabel) -> Sandbox | None:
        """Return the live sandbox of a claim."""
        sandbox = await self.provider.find(label)
        return None if sandbox is None else self._watched(sandbox)

    async def identify(self, access: SandboxAccess) -> SandboxId:
        """Tell which sandbox an access leads to."""
        return await self.provider.identify(access)

    async def connect(self, access: SandboxAccess, *, borrower: ClaimId) -> Sandbox:
        """Reach a sandbox that another lent."""
        return self._watched(await self.provider.connect(access, borrower=borrower))

    def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        """Tell every sandbox with the owner's label."""
        return self.provider.list(owner)

    async def destroy(self, label: ClaimLabel) -> None:
        """End the sandbox of a claim."""
        await self.provider.destroy(label)

    async def freeze(self, label: ClaimLabel) -> None:
        """Stop every process of the sandbox; for `Capability.FREEZING`."""
        await cast("FreezingProvider", self.provider).freeze(label)

    async def thaw(self, label: ClaimLabel) -> None:
        """Let the processes go on; for `Capability.FREEZING`."""
        await cast("FreezingProvider", self.provider).thaw(label)

    async def aclose(self) -> None:
        """Let go of connections."""
        await self.provider.aclose()

    def _watched(self, sandbox: Sandbox) -> Sandbox:
        kind = MeasuredSandbox
        if isinstance(sandbox, StreamingSandbox):
            kind = MeasuredStreamingSandbox
        return kind(sandbox, self.name, self.measures, self.clock)


@attrs.frozen
class MeasuredSandbox:
    """A sandbox whose commands are timed."""

    sandbox: Sandbox
    provider: str
    measures: Measures
    clock: Clock

    @property
    def sandbox_id(self) -> SandboxId:
        """The provider's own name of the sandbox."""
        return self.sandbox.sandbox_id

    @property
    def workdir(self) -> str:
        """The folder in which work is done."""
        return self.sandbox.workdir

    @property
    def scratch(self) -> str:
        """The folder for what Livery itself puts down."""
        return self.sandbox.scratch

    @property
    def expires_at(self) -> float | None:
        """When the sandbox ends itself."""
        return self.sandbox.expires_at

    async def exec(self, command: Command) -> Ended:
        """Run a command to its end, and time it."""
        begun = self.clock.monotonic()
        ended = await self.sandbox.exec(command)
        self.measures.execs.note(self.provider, self.clock.monotonic() - begun)
        return ended

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        """Write a file."""
        await self.sandbox.put(path, chunks, size=size, mode=mode)

    def get(self, path: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a file for reading."""
        return self.sandbox.get(path)

    async def stat(self, path: str) -> FileStat:
        """Tell what is under `path`."""
        return await self.sandbox.stat(path)

    async def status(self) -> Status:
        """Ask the provider how the sandbox is."""
        return await self.sandbox.status()

    async def endpoint(self, port: int) -> Endpoint:
        """Tell where a published port is reached."""
        return await self.sandbox.endpoint(port)

    def access(self) -> SandboxAccess:
        """Return what a borrower needs."""
        return self.sandbox.access()

    async def disconnect(self) -> None:
        """Let go of what this handle holds here."""
        await self.sandbox.disconnect()


@attrs.frozen
class MeasuredStreamingSandbox(MeasuredSandbox):
    """The same, of a sandbox that can have a program's streams attached."""

    def open_process(
        self, argv: tuple[str, ...]
    ) -> AbstractAsyncContextManager[ByteStream]:
        """Run a program with its streams attached; it is not timed."""
        return cast("StreamingSandbox", self.sandbox).open_process(argv)
