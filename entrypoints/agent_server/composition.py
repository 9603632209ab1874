# SPDX-License-Identifier: Apache-2.0
"""The composition root of the agent server.

Everything that the server stands on is opened before it listens, and closed after, in
reverse order. A provider that is not there is told then, not to the first caller.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import attrs

from ...adapters.artifacts.folder import FolderArtifactStore
from ...adapters.worker_scripts import program
from ...domain.admissions import Ticket
from ...domain.agent_sessions import AgentSessionId
from ...domain.claims import ClaimId
from ...ports.provided.activate_harness import ActivateHarness
from ...ports.provided.admit_over_workers import AdmitOverWorkers
from ...ports.provided.admit_sessions import AdmitSessions
from ...ports.provided.agent_sessions import AgentSessions
from ...ports.provided.sandbox_programs import SandboxProgram
from ...ports.provided.serve_sessions import Patience, ServedSessions, serve_sessions
from ...ports.provided.session_sandboxes import (
    OwnSandboxes,
    SessionSandboxes,
    needs_its_place,
)
from ...ports.provided.shared_places import SharedPlaces
from ...ports.required.harness import Harness, is_on_host
from ...ports.required.sandbox import Sandbox
from ...ports.required.sandbox_provider import ClaimLabel, SandboxProvider
from ..agent_parts import harness_of, own_name, plan_of_agent
from ..built_in import PROVIDERS
from ..composition import (
    Foundation,
    claims_of,
    open_provider,
    read_options,
)
from ..http_serving.serving import Served
from ..http_serving.session_cookies import SessionCookies
from ..metrics_page import metrics_routes
from ..outfits import open_tailor, tools_check
from ..plug_ins import ProviderPlugIn, Surroundings, find
from ..run_plan import RunPlan, block_of
from ..server_foundation import open_server_foundation, standing_on
from ..settings import AgentServerSettings
from ..settings_reading import SettingsFile
from ..state_folder import StateFolder
from .app import COOKIE_KEY, AgentRoutes

ARTIFACTS: Final = "artifacts"
PLACES: Final = "agent_sessions"
"""The name of the places that all agent servers on a journal share."""
SESSIONS: Final = "sessions"
"""What its queue is called."""
SUPERVISOR: Final = "supervisor"
SHARE_OF_GRACE: Final = 0.9
"""How much of the shutdown's grace giving everything back may take."""


@asynccontextmanager
async def open_agent_server(
    file: SettingsFile, state: StateFolder, surroundings: Surroundings
) -> AsyncGenerator[Served]:
    """Open what the agent server serves; raises as `open_agent_routes` does."""
    settings = file.settings.agent_server
    async with (
        open_server_foundation(file, state, surroundings.secrets) as foundation,
        open_agent_routes(file, state, surroundings, foundation=foundation) as routes,
    ):
        yield Served(
            what="agent sessions",
            host=settings.host,
            port=settings.port,
            routes=routes.routes(),
            drain=routes.served.drain,
            grace_seconds=settings.shutdown_grace_seconds,
            parts=foundation.parts,
        )


@asynccontextmanager
async def open_agent_routes(
    file: SettingsFile,
    state: StateFolder,
    surroundings: Surroundings,
    harness: Harness | None = None,
    foundation: Foundation | None = None,
    lender: SandboxProvider | None = None,
) -> AsyncGenerator[AgentRoutes]:
    """Open what the agent server serves; what is given replaces what is configured.

    The `lender` is a provider beside those whose sandboxes are borrowed.

    Raises:
        Fault: Something that it stands on is not there, or not usable.
    """
    settings = file.settings.agent_server
    secret = settings.cookie_secret
    key = state.secret if secret is None else secret.revealed(surroundings.secrets)
    chosen = harness or harness_of(file, settings, surroundings)
    async with (
        standing_on(foundation, file, state, surroundings.secrets) as ground,
        _open_sessions(file, ground, chosen, lender) as served,
    ):
        yield AgentRoutes(
            served=served,
            cookies=SessionCookies(settings.cookie_name, key, key=COOKIE_KEY),
            body_bytes_max=settings.body_bytes_max,
            secrets=surroundings.secrets,
            more=metrics_routes(ground),
        )


@asynccontextmanager
async def _open_sessions(
    file: SettingsFile,
    foundation: Foundation,
    harness: Harness,
    lender: SandboxProvider | None,
) -> AsyncGenerator[ServedSessions]:
    settings = file.settings.agent_server
    artifacts = FolderArtifactStore(
        Path(settings.artifacts or foundation.state.path / ARTIFACTS)
    )
    its = own_name(settings, harness)
    # What cannot go together is refused before anybody is asked.
    plan = None if its is None else plan_of_agent(file, settings, its)
    async with AsyncExitStack() as stack:
        tailor = await stack.enter_async_context(
            open_tailor(
                harness,
                file.settings.model,
                secrets=foundation.secrets,
                installation_secret=foundation.state.secret,
                clock=foundation.clock,
                artifacts=artifacts,
            )
        )
        providers: dict[str, SandboxProvider] = {}
        if lender is not None:
            providers[lender.name] = lender
        for name in _names(file, its):
            providers[name] = await stack.enter_async_context(
                _open_provider(file, foundation, name)
            )
        sites = {
            name: tailor.site(provider, block_of(file, name).network)
            for name, provider in providers.items()
        }
        own: OwnSandboxes | None = None
        if its is not None and plan is not None:
            own = await _own(foundation, plan, providers[its])
            spec, site = await tailor.fitted(providers[its], own.spec, lends_own=False)
            # A lent one may still be as the block says.
            relays = site.relays or sites[its].relays
            sites[its] = attrs.evolve(site, relays=relays)
            own = attrs.evolve(own, spec=spec)
        sessions = AgentSessions(
            journal=foundation.journal,
            clock=foundation.clock,
            holders=foundation.holders,
            harness=harness,
            sandboxes=SessionSandboxes(
                harness=harness,
                providers=providers,
                own=own,
            ),
            activate_harness=ActivateHarness(
                harness=harness,
                artifacts=artifacts,
                clock=foundation.clock,
                supervisor_program=program(SUPERVISOR),
            ),
            check_tools=tools_check(sites),
            inspect=None if is_on_host(harness) else _check_python,
            among_others=True,
            outfit=tailor.outfit(sites, artifacts),
        )
        admit = _admission(foundation, settings)
        yield await stack.enter_async_context(
            serve_sessions(sessions, admit, _patience(settings))
        )


def _admission(
    foundation: Foundation, settings: AgentServerSettings
) -> AdmitOverWorkers:
    journal = foundation.journal

    async def outlives(ticket: Ticket) -> bool:
        return await needs_its_place(journal, AgentSessionId(ticket))

    admit = AdmitOverWorkers(
        queue=AdmitSessions(
            clock=foundation.clock,
            places=settings.concurrency,
            patience_seconds=settings.seed_wait_seconds or 0.0,
            waiting_max=settings.seeds_waiting_max,
        ),
        shared=SharedPlaces(
            journal=journal,
            clock=foundation.clock,
            holders=foundation.holders,
            name=PLACES,
            places=settings.concurrency,
            outlives=outlives,
        ),
        waited=foundation.waited(SESSIONS),
    )
    foundation.queued(SESSIONS, lambda: admit.waiting)
    return admit


async def _check_python(sandbox: Sandbox) -> None:
    """Raise `RuntimeMissing` where no run can be supervised."""
    supervisor = program(SUPERVISOR)
    await SandboxProgram(sandbox=sandbox, name=SUPERVISOR, text=supervisor).installed()


def _names(file: SettingsFile, own: str | None) -> list[str]:
    """Return the providers to open: the configured ones, and the session's own."""
    return [*dict.fromkeys([*file.settings.sandbox, *([own] if own else [])])]


@asynccontextmanager
async def _open_provider(
    file: SettingsFile, foundation: Foundation, name: str
) -> AsyncGenerator[SandboxProvider]:
    block = block_of(file, name)
    plug_in = find(ProviderPlugIn, block.provider or name, PROVIDERS)
    (options,) = read_options(file, (plug_in.options, "sandbox", name, block.options))
    async with open_provider(foundation, name, plug_in, options) as provider:
        yield provider


async def _own(
    foundation: Foundation, plan: RunPlan, provider: SandboxProvider
) -> OwnSandboxes:
    claim, release = claims_of(foundation, provider)
    # A provider that is not there is told now.
    nobody = ClaimId(foundation.ids.fresh("check"))
    await provider.find(ClaimLabel(claim=nobody, owner=foundation.state.owner))
    spec = plan.spec(provider.capabilities)
    return OwnSandboxes(claim=claim, release=release, spec=spec)


def _patience(settings: AgentServerSettings) -> Patience:
    return Patience(
        disconnect_grace_seconds=settings.disconnect_grace_seconds,
        close_timeout_seconds=settings.close_timeout_seconds,
        close_retry_window_seconds=settings.session_close_retry_window_seconds,
        closed_max=settings.closed_sessions_max,
        idle_timeout_seconds=settings.idle_timeout_seconds,
        shutdown_seconds=settings.shutdown_grace_seconds * SHARE_OF_GRACE,
    )
