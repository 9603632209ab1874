# SPDX-License-Identifier: Apache-2.0
"""The check before a run: one sandbox of the kind that is meant, equipped and given back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import reduce
from typing import Final

import anyio
import attrs

from ..domain.claims import ClaimId
from ..ports.provided.equip_sessions import EquipSessions
from ..ports.provided.reap_claims import ReapClaims
from ..ports.required.artifact_store import ArtifactStore
from ..ports.required.faults import Fault
from ..ports.required.sandbox_provider import (
    ClaimLabel,
    ImageMissing,
    SandboxProvider,
    SandboxSpec,
    SpecRefused,
    Unsupported,
    narrower,
)
from .composition import Foundation, Parts, claims_of
from .outfits import Tailor, open_tailor
from .run_tasks import of_task

RELEASE_SECONDS: Final = 60.0
"""How long giving back the sandbox of a check may take."""
USED_BY: Final = "the check before a run"


@asynccontextmanager
async def open_run_tailor(
    parts: Parts, foundation: Foundation, artifacts: ArtifactStore
) -> AsyncGenerator[Tailor]:
    """Open what the run's sessions are equipped with.

    Raises:
        Fault: As `open_tailor` says.
    """
    async with open_tailor(
        parts.harness,
        parts.plan.model,
        secrets=foundation.secrets,
        installation_secret=foundation.state.secret,
        clock=foundation.clock,
        artifacts=artifacts,
    ) as tailor:
        yield tailor


@attrs.frozen(kw_only=True)
class Fitted:
    """The sandbox that the run asks for, and what its sessions are equipped with."""

    spec: SandboxSpec
    outfit: EquipSessions | None


async def check_sandbox(
    parts: Parts,
    foundation: Foundation,
    provider: SandboxProvider,
    tailor: Tailor,
    artifacts: ArtifactStore,
) -> Fitted:
    """Make one sandbox of the kind that the run needs, and give it back.

    So what is wrong with the provider, its address, the image or the harness's program
    is told once, before the run begins, and not once for each episode.

    Raises:
        Fault: The provider's, as `SandboxProvider.create` says.
        TasksRefused: It refuses what the first task wants of its sandbox.
        Unsupported: The harness needs what the provider cannot do.
        Refusal, Fault: As `InstallRuntime` says.
    """
    spec, site = await tailor.fitted(
        provider, parts.plan.spec(provider.capabilities), lends_own=True
    )
    asked = [parts.world.sandbox(task, spec) for task in parts.tasks.tasks.values()]
    # A task may close the network: what works without one works with one too.
    networks = [one.network for one in asked if one is not None]
    closed = tailor.site(provider, reduce(narrower, networks, spec.network))
    site = attrs.evolve(site, network=closed.network, relays=closed.relays)
    outfit = tailor.outfit({provider.name: site}, artifacts)
    for capability in sorted(parts.harness.needs - provider.capabilities):
        detail = f"harness {parts.harness.name} needs it"
        raise Unsupported(provider.name, capability.value, detail)
    wanted = asked[0]
    if wanted is not None:
        claim, release = claims_of(foundation, provider)
        name = ClaimId(foundation.ids.fresh("check"))
        # Looked for first: a provider that is not there leaves no claim in doubt.
        await provider.find(ClaimLabel(claim=name, owner=foundation.state.owner))
        await _give_back_cut_off(foundation, provider)
        try:
            held = await claim(name, wanted, used_by=USED_BY)
        except (ImageMissing, SpecRefused, Unsupported) as refused:
            if _is_of_task(refused, wanted, spec):
                raise of_task(parts.tasks, parts.tasks.ids[0], refused) from refused
            raise
        try:
            if outfit is not None:
                await outfit.check(held.sandbox)
        finally:
            with anyio.move_on_after(RELEASE_SECONDS, shield=True):
                await held.sandbox.disconnect()
                await release(
                    held.label, reason="the check is over", known=held.standing
                )
    return Fitted(spec=spec, outfit=outfit)


def _is_of_task(refused: Fault, wanted: SandboxSpec, configured: SandboxSpec) -> bool:
    """Whether it is the task's own wish that is refused."""
    if isinstance(refused, ImageMissing):
        return wanted.image != configured.image
    return wanted != configured


async def _give_back_cut_off(foundation: Foundation, provider: SandboxProvider) -> None:
    """Give back what a check held whose process was killed.

    Nobody goes on with a check, as is done with episodes: the next one finds it.
    """
    reap = ReapClaims(
        journal=foundation.journal,
        clock=foundation.clock,
        providers={provider.name: provider},
        owner=foundation.state.owner,
        holders=foundation.holders,
        list_seconds=RELEASE_SECONDS,
        release_seconds=RELEASE_SECONDS,
    )
    await reap(spare=lambda seen: seen.used_by != USED_BY)
