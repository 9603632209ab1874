# SPDX-License-Identifier: Apache-2.0
"""The provider of a server that has none: it makes nothing, and says so."""

from collections.abc import AsyncIterator
from typing import Final

import attrs

from ...domain.claims import ClaimId, OwnerId
from ...ports.required.sandbox import Sandbox, SandboxAccess, SandboxId
from ...ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    ListedSandbox,
    SandboxSpec,
    Unsupported,
)

NAME: Final = "none"
CAPABILITY: Final = "sandboxes"


@attrs.frozen
class NoSandboxProvider:
    """The `SandboxProvider` that has no sandboxes."""

    detail: str
    """Why there are none."""

    @property
    def name(self) -> str:
        """The word in messages."""
        return NAME

    @property
    def capabilities(self) -> Capabilities:
        """Nothing."""
        return frozenset()

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> Sandbox:
        """Refuse; nothing is made."""
        raise Unsupported(NAME, CAPABILITY, self.detail)

    async def find(self, label: ClaimLabel) -> Sandbox | None:
        """Find nothing."""
        return None

    async def identify(self, access: SandboxAccess) -> SandboxId:
        """Refuse."""
        raise Unsupported(NAME, CAPABILITY, self.detail)

    async def connect(self, access: SandboxAccess, *, borrower: ClaimId) -> Sandbox:
        """Refuse."""
        raise Unsupported(NAME, CAPABILITY, self.detail)

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        """Tell of nothing."""
        nothing: tuple[ListedSandbox, ...] = ()
        for sandbox in nothing:
            yield sandbox

    async def destroy(self, label: ClaimLabel) -> None:
        """End nothing: nothing is there."""

    async def aclose(self) -> None:
        """Let go of nothing."""
