# SPDX-License-Identifier: Apache-2.0
"""Providers of both servers, and what the contract suites are given for them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs

from livery.adapters.http_client import Patience
from livery.adapters.opensandbox import (
    CAPABILITIES,
    OpenSandboxConfig,
    OpenSandboxProvider,
    open_opensandbox,
)
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from .. import peers
from ..docker_engine import raw_engine
from ..docker_engine.engines import OTHER_USER, Owners
from .real_server import API_KEY, RealServer
from .stand_in_server import API_KEY as STAND_IN_KEY
from .stand_in_server import StandInServer

PROVIDER_HOOKS = frozenset({"end_outside", "failing_spec", "other_user"})
QUICK = Patience(attempts_max=3, seconds_max=5.0, pause_seconds=0.05)

__all__ = ["CAPABILITIES", "PROVIDER_HOOKS"]


@asynccontextmanager
async def over_real(server: RealServer) -> AsyncGenerator[OpenSandboxProvider]:
    config = OpenSandboxConfig(address=server.address, api_key=API_KEY)
    async with open_opensandbox(config) as opened:
        yield opened


@asynccontextmanager
async def over_stand_in(
    server: StandInServer, config: OpenSandboxConfig | None = None
) -> AsyncGenerator[OpenSandboxProvider]:
    config = attrs.evolve(
        config or OpenSandboxConfig(),
        address=server.address,
        api_key=STAND_IN_KEY,
        patience=QUICK,
        python=server.python,
    )
    async with open_opensandbox(config) as opened:
        yield opened


class RealOnlooker:
    """Looks at the engine itself."""

    async def left(self, label: ClaimLabel) -> tuple[str, ...]:
        return raw_engine.labelled(f"livery.claim={label.claim}")


@attrs.frozen
class StandInOnlooker:
    """Looks at the processes of the sandboxes."""

    server: StandInServer

    async def left(self, label: ClaimLabel) -> tuple[str, ...]:
        return self.server.left(str(label.claim))


def real_context(
    provider: OpenSandboxProvider, server: RealServer, owners: Owners
) -> ProviderContext:
    async def end_outside(label: ClaimLabel) -> None:
        for found in raw_engine.labelled(f"livery.claim={label.claim}"):
            raw_engine.kill(found.split()[1].removeprefix("/"))

    return _context(
        provider,
        lambda: over_real(server),
        owners,
        observe=RealOnlooker(),
        end_outside=end_outside,
        spec=SandboxSpec(image=peers.image()),
        creates_at_once=6,
    )


def stand_in_context(
    provider: OpenSandboxProvider, server: StandInServer, owners: Owners
) -> ProviderContext:
    async def end_outside(label: ClaimLabel) -> None:
        server.kill(str(label.claim))

    return _context(
        provider,
        lambda: over_stand_in(server),
        owners,
        observe=StandInOnlooker(server),
        end_outside=end_outside,
        spec=stand_in_spec(),
        creates_at_once=9,
    )


def stand_in_spec(*, user: str | None = None) -> SandboxSpec:
    """Return a spec for sandboxes that have the files of this host."""
    return SandboxSpec(image="stand-in:1", workdir="/tmp/workspace", user=user)


def _context(
    provider: OpenSandboxProvider,
    open_again: Callable[[], object],
    owners: Owners,
    *,
    observe: RealOnlooker | StandInOnlooker,
    end_outside: Callable[[ClaimLabel], Awaitable[None]],
    spec: SandboxSpec,
    creates_at_once: int,
) -> ProviderContext:
    return ProviderContext(
        provider=provider,
        open_again=open_again,  # type: ignore[arg-type]
        spec=spec,
        new_label=owners.label,
        other_owner=owners.other,
        observe=observe,
        creates_at_once=creates_at_once,
        end_outside=end_outside,
        failing_spec=attrs.evolve(spec, entrypoint=("/bin/false",)),
        other_user=OTHER_USER,
    )
