# SPDX-License-Identifier: Apache-2.0
"""What a server stands on: a foundation, and the reaper that sweeps beside it.

The reaper opens providers of its own for each sweep. So one that was away is asked
again, and a sweep that is cut off leaves nothing open for the sessions to trip over.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from ..ports.provided.reap_claims import ReapClaims
from ..ports.provided.secret_values import SecretValues
from ..ports.provided.sweep_claims import SweepClaims
from .composition import Foundation, open_foundation, open_reaper
from .settings_reading import SettingsFile
from .state_folder import StateFolder

ALWAYS: Final = "local"
"""The provider that a server may use though no setting names it."""


@asynccontextmanager
async def open_server_foundation(
    file: SettingsFile, state: StateFolder, secrets: SecretValues
) -> AsyncGenerator[Foundation]:
    """Open what a server stands on, swept until left; raises as `open_foundation`."""
    raised: Exception | None = None
    async with open_foundation(state, secrets, file.settings.journal) as foundation:
        async with anyio.create_task_group() as group:
            if (sweep := _sweep(file, foundation)) is not None:
                group.start_soon(sweep)
            try:
                yield foundation
            except Exception as error:
                raised = error  # Raised below: from in here it would come in a group.
            finally:
                group.cancel_scope.cancel()
        if raised is not None:
            raise raised


@asynccontextmanager
async def standing_on(
    foundation: Foundation | None,
    file: SettingsFile,
    state: StateFolder,
    secrets: SecretValues,
) -> AsyncGenerator[Foundation]:
    """Stand on a foundation that is open, or open one as `open_server_foundation`."""
    if foundation is not None:
        yield foundation
        return
    async with open_server_foundation(file, state, secrets) as opened:
        yield opened


def _sweep(file: SettingsFile, foundation: Foundation) -> SweepClaims | None:
    settings = file.settings.reaper
    if settings.interval_seconds is None:
        return None

    @asynccontextmanager
    async def opened() -> AsyncGenerator[ReapClaims]:
        async with open_reaper(foundation, file, names=swept(file)) as reaper:
            yield reaper.reap

    return SweepClaims(
        opened=opened,
        clock=foundation.clock,
        interval_seconds=settings.interval_seconds,
        sweep_seconds=settings.sweep_seconds,
        grace_seconds=settings.grace_seconds,
    )


def swept(file: SettingsFile) -> tuple[str, ...]:
    """Return the providers that a server's reaper asks: those that settings name."""
    settings = file.settings
    named = (
        *settings.sandbox,
        settings.agent_server.sandbox_provider,
        settings.resources_server.sandbox_provider,
        ALWAYS,
    )
    return tuple(dict.fromkeys(name for name in named if name is not None))
