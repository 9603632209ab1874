# SPDX-License-Identifier: Apache-2.0
"""What a server stands on: a foundation that is watched, and a reaper beside it.

All that it does is counted on the way, and told at `/metrics`. The reaper opens providers
of its own for each sweep. So one that was away is asked again, and a sweep that is cut off
leaves nothing open for the sessions to trip over.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs

from ..ports.provided.measured import MeasuredJournal
from ..ports.provided.measures import Measures
from ..ports.provided.reap_claims import ReapClaims
from ..ports.provided.secret_values import SecretValues
from ..ports.provided.sweep_claims import SweepClaims
from ..ports.provided.take_census import TakeCensus
from ..ports.required.clock import Clock
from .composition import Foundation, Watched, open_foundation, open_reaper
from .metrics_page import part_of
from .settings_reading import SettingsFile
from .state_folder import StateFolder
from .task_groups import ended_with_block
from .worker_parts import WorkerParts

ALWAYS: Final = "local"
"""The provider that a server may use though no setting names it."""

LAG_SECONDS: Final = 0.5
"""How often it is looked how late the event loop is."""


@asynccontextmanager
async def open_server_foundation(
    file: SettingsFile, state: StateFolder, secrets: SecretValues
) -> AsyncGenerator[Foundation]:
    """Open what a server stands on, swept until left; raises as `open_foundation`."""
    async with open_foundation(state, secrets, file.settings.journal) as plain:
        foundation, measures = watched(plain)
        async with ended_with_block() as group:
            if (sweep := _sweep(file, foundation, measures)) is not None:
                group.start_soon(sweep)
            group.start_soon(watch_lag, foundation.clock, measures)
            yield foundation


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


def watched(plain: Foundation) -> tuple[Foundation, Measures]:
    """Return the foundation with all that is counted on the way, and the counts."""
    measures = Measures()
    journal = MeasuredJournal(
        journal=plain.journal, measures=measures, clock=plain.clock
    )
    census = TakeCensus(journal=plain.journal, clock=plain.clock)
    parts = WorkerParts(partial(part_of, measures))
    told = Watched(measures=measures, census=census, parts=parts)
    return attrs.evolve(plain, journal=journal, watched=told), measures


async def watch_lag(clock: Clock, measures: Measures) -> None:
    """Note how late the event loop goes on, until cancelled."""
    while True:
        asked = clock.monotonic() + LAG_SECONDS
        await clock.sleep(LAG_SECONDS)
        measures.lag.note(max(0.0, clock.monotonic() - asked))


def _sweep(
    file: SettingsFile, foundation: Foundation, measures: Measures
) -> SweepClaims | None:
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
        told=measures.note_sweep,
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
