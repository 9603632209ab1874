# SPDX-License-Identifier: Apache-2.0
"""The provider `shed`: sandboxes in a folder of the user's choice, so many at most.

It keeps the promises of `SandboxProvider` by handing every call to the provider of
this host, and adds one of its own: a shed that is full says so.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import attrs

from livery.adapters.local_host import LocalHostConfig, open_local_host
from livery.domain.claims import ClaimId, OwnerId
from livery.entrypoints.plug_ins import Surroundings, provider_plug_in
from livery.entrypoints.secret_references import Secret
from livery.entrypoints.setting_words import Name, Range, doc
from livery.ports.required.sandbox import Sandbox, SandboxAccess, SandboxId
from livery.ports.required.sandbox_provider import (
    Capabilities,
    CapacityExhausted,
    ClaimLabel,
    DestroyFailed,
    ListedSandbox,
    SandboxProvider,
    SandboxSpec,
)


@attrs.frozen(kw_only=True)
class ShedOptions:
    """What `[sandbox.NAME.options]` can say."""

    folder: Name | None = attrs.field(
        default=None,
        metadata=doc("Where the sandboxes are. none: in the state folder."),
    )
    sandboxes_max: Annotated[int, Range(least=1)] = attrs.field(
        default=64, metadata=doc("How many there may be at once.")
    )
    stuck_after: Annotated[int, Range(least=0)] | None = attrs.field(
        default=None,
        metadata=doc("How many sandboxes are ended before the door jams. none: all."),
    )
    key: Secret | None = attrs.field(
        default=None, metadata=doc("The key of the shed; a reference.")
    )


@attrs.define(kw_only=True, eq=False)
class ShedSandboxProvider:
    """A provider of at most so many sandboxes."""

    inside: SandboxProvider
    sandboxes_max: int
    stuck_after: int | None = None
    _ended: int = attrs.field(default=0, init=False)
    _there: set[ClaimId] = attrs.field(factory=set[ClaimId], init=False)

    @property
    def name(self) -> str:
        """The short word for the provider in configuration and messages."""
        return self.inside.name

    @property
    def capabilities(self) -> Capabilities:
        """What this provider, as configured, can do."""
        return self.inside.capabilities

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> Sandbox:
        """Make the sandbox of a claim, or return the one that it has."""
        is_new = label.claim not in self._there
        if is_new and len(self._there) >= self.sandboxes_max:
            quota = f"sandboxes_max is {self.sandboxes_max}"
            raise CapacityExhausted(provider=self.name, quota=quota)
        self._there.add(label.claim)
        try:
            return await self.inside.create(label, spec)
        except BaseException:
            # What was made was undone, or it was there before and is left alone.
            if is_new:
                self._there.discard(label.claim)
            raise

    async def find(self, label: ClaimLabel) -> Sandbox | None:
        """Return the live sandbox of a claim, or None when there was seen to be none."""
        return await self.inside.find(label)

    async def identify(self, access: SandboxAccess) -> SandboxId:
        """Tell which sandbox an access leads to."""
        return await self.inside.identify(access)

    async def connect(self, access: SandboxAccess, *, borrower: ClaimId) -> Sandbox:
        """Reach a sandbox that another lent."""
        return await self.inside.connect(access, borrower=borrower)

    def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        """Tell every sandbox with the owner's label."""
        return self.inside.list(owner)

    async def destroy(self, label: ClaimLabel) -> None:
        """End the sandbox of a claim until seen gone."""
        if self._ended == self.stuck_after:
            raise DestroyFailed(self.name, label.claim, "the door is jammed")
        self._ended += 1
        await self.inside.destroy(label)
        self._there.discard(label.claim)

    async def aclose(self) -> None:
        """Let go of connections; sandboxes go on."""
        await self.inside.aclose()


@asynccontextmanager
async def open_shed(
    surroundings: Surroundings, options: ShedOptions
) -> AsyncGenerator[ShedSandboxProvider]:
    """Open the provider of one block of the settings."""
    if options.key is not None:
        options.key.revealed(surroundings.secrets)
    folder = Path(options.folder) if options.folder else surroundings.state / "shed"
    config = LocalHostConfig(root=folder, name=surroundings.name)
    async with open_local_host(config) as inside:
        yield ShedSandboxProvider(
            inside=inside,
            sandboxes_max=options.sandboxes_max,
            stuck_after=options.stuck_after,
        )


PLUG_IN = provider_plug_in(ShedOptions, open_shed)
