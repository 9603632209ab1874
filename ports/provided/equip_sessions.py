# SPDX-License-Identifier: Apache-2.0
"""Equip sessions: the harness's program in the sandbox, the model within its reach.

The program is brought, and the model granted, when a session is seeded; both are the
same when they are asked for again. The way to the model, and to granted tools where
the sandbox has no network, is open while a run goes on, and is opened again by who
takes the run over. The grant ends with the session.
"""

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import attrs

from ...domain.agent_sessions import AgentSessionId, SeedStarted
from ...domain.digests import Json
from ...domain.runtimes import Platform, Stager
from ..required.artifact_store import ArtifactStore, Shelf
from ..required.harness import ToolAccess
from ..required.sandbox import Sandbox
from ..required.sandbox_provider import Network
from ..required.sandbox_streams import Dial
from .activate_harness import Equipment
from .bring_program import BringProgram
from .install_runtime import InstalledRuntime
from .keep_calls import calls_kept
from .reach_model import ReachModel
from .session_grants import SessionGrant

RUNTIME_ARTIFACT: Final = "runtime.json"
STAGER_DIGITS: Final = 32
CHECK: Final = Stager("check")


@attrs.frozen(kw_only=True)
class Site:
    """What is known of the sandboxes of one provider."""

    network: Network = Network.DEFAULT
    relays: bool = False
    """Whether they have no route to this host."""
    sees_host: bool = False
    """Whether they see this host's files under their own paths."""
    mounted: Mapping[Platform, str] = attrs.field(factory=dict[Platform, str])
    """Where a program of this host was mounted into sandboxes that are our own."""
    lends_own: bool = False
    """Whether the lent ones are our own too, made by this process with the same."""


@attrs.frozen(kw_only=True)
class EquipSessions:
    """An `Outfit`: at most one program, at most one model."""

    sites: Mapping[str, Site]
    """By the provider's name."""
    artifacts: ArtifactStore
    program: BringProgram | None = None
    model: ReachModel | None = None
    keeps_prefix: bool = False
    """Whether the model is a server that knows the prefix of a rollout."""
    dial: Callable[[str], Dial]
    """Gives what connects this host to a URL of plain HTTP."""

    async def bring(
        self, seeded: SeedStarted, grant: SessionGrant, sandbox: Sandbox | None
    ) -> Equipment:
        """Return what the session has now; the same when it is asked again.

        Raises:
            Refusal, Fault: As `InstallRuntime` and `ModelAccess.grant` say.
        """
        equipment = Equipment()
        if sandbox is not None and self.program is not None:
            is_ours = grant.access is None or self._site(sandbox).lends_own
            installed = await self._brought(sandbox, _stager(seeded), is_ours)
            assert installed is not None, "there is a program to bring"
            told = identity_of(installed)
            await self._keep(Shelf(seeded.episode.key), told)
            equipment = attrs.evolve(
                equipment, runtime_path=installed.path, runtime=told
            )
        if sandbox is not None:
            self._tools_in_reach(self._site(sandbox), grant.tools)
        if self.model is None:
            return equipment
        access, session = self.model.access, AgentSessionId(seeded.session)
        granted = await access.grant(session, shelf=Shelf(seeded.episode.key))
        seen = partial(access.seen, session)
        return attrs.evolve(equipment, model=granted, seen_of_model=seen)

    @asynccontextmanager
    async def reach(
        self,
        seeded: SeedStarted,
        grant: SessionGrant,
        sandbox: Sandbox | None,
        equipment: Equipment,
        *,
        model_prefix: str,
    ) -> AsyncGenerator[Equipment]:
        """Keep the model and the tools in reach of the sandbox.

        Raises:
            Fault: As `ReachModel` says.
        """
        if self.model is None or sandbox is None:
            yield equipment
            return
        site = self._site(sandbox)
        session, shelf = AgentSessionId(seeded.session), Shelf(seeded.episode.key)
        seen = partial(self.model.access.seen, session)
        async with (
            calls_kept(self.artifacts, shelf, seen),
            self.model(
                session,
                sandbox,
                relays=site.relays,
                prefix=model_prefix if self.keeps_prefix else "",
                tools=self._tools_in_reach(site, grant.tools),
            ) as model,
        ):
            yield attrs.evolve(
                equipment,
                model=model.grant,
                seen_of_model=model.seen,
                tools=tuple(
                    _as_reached(tool, model.tool_urls.get(tool.name))
                    for tool in grant.tools
                ),
            )

    async def take_back(self, session: AgentSessionId) -> None:
        """Revoke the session's access to the model."""
        if self.model is not None:
            await self.model.access.revoke(session)

    async def check(self, sandbox: Sandbox) -> InstalledRuntime | None:
        """Bring the program into a sandbox of ours that serves no session.

        Raises:
            Refusal, Fault: As `InstallRuntime` says.
        """
        return await self._brought(sandbox, CHECK, True)

    async def _brought(
        self, sandbox: Sandbox, stager: Stager, is_ours: bool
    ) -> InstalledRuntime | None:
        if self.program is None:
            return None
        site = self._site(sandbox)
        return await self.program(
            sandbox,
            stager=stager,
            mounted=site.mounted if is_ours else {},
            in_place=site.sees_host,
        )

    async def _keep(self, shelf: Shelf, told: Mapping[str, Json]) -> None:
        """Keep how the program came first: later it is found where it stands."""
        if await self.artifacts.find(shelf, RUNTIME_ARTIFACT) is None:
            text = json.dumps(told, indent=2).encode()
            await self.artifacts.put(shelf, RUNTIME_ARTIFACT, _whole(text))

    def _site(self, sandbox: Sandbox) -> Site:
        return self.sites.get(sandbox.access().provider, Site())

    def _tools_in_reach(
        self, site: Site, tools: tuple[ToolAccess, ...]
    ) -> Mapping[str, Dial]:
        """Return the tools that go through the relay.

        Raises:
            BadTarget: One cannot, and there is no other way to it.
        """
        if not site.relays:
            return {}
        return {
            tool.name: self.dial(tool.url)
            for tool in tools
            if _is_plain(tool) or (tool.required and site.network is Network.NONE)
        }


def identity_of(installed: InstalledRuntime) -> Mapping[str, Json]:
    """Return what is told of a program: which it is, where it stands, how it came."""
    runtime = installed.runtime
    return {
        "name": runtime.name,
        "version": runtime.version,
        "platform": runtime.platform.word,
        "sha256": runtime.sha256,
        "path": installed.path,
        "came": installed.came.value,
    }


def _stager(seeded: SeedStarted) -> Stager:
    """Return who stages for a session: the same after a restart, and nobody else."""
    told = f"{seeded.session}\0{seeded.request}\0{seeded.at!r}"
    return Stager(hashlib.sha256(told.encode()).hexdigest()[:STAGER_DIGITS])


def _as_reached(tool: ToolAccess, url: str | None) -> ToolAccess:
    """Return the access with the relay's address in place of the server's own."""
    if url is None:
        return tool
    inside, named = urlsplit(url), urlsplit(tool.url)
    here = (inside.scheme, inside.netloc, named.path, named.query, named.fragment)
    return attrs.evolve(tool, url=urlunsplit(here))


def _is_plain(tool: ToolAccess) -> bool:
    return urlsplit(tool.url).scheme == "http"


async def _whole(text: bytes) -> AsyncIterator[bytes]:
    yield text
