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
from ...ports.required.sandbox_provider import ClaimLabel, Network, SandboxProvider
from ..built_in import HARNESSES, PROVIDERS
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
from ..plug_ins import HarnessPlugIn, ProviderPlugIn, Surroundings, find
from ..run_plan import RunPlan
from ..sandbox_config import AS_BLOCK, SandboxConfig
from ..server_foundation import open_server_foundation, standing_on
from ..settings import AgentServerSettings, HarnessSettings, SandboxSettings
from ..settings_reading import SettingsFile
from ..state_folder import StateFolder
from .app import COOKIE_KEY, AgentRoutes

ARTIFACTS: Final = "artifacts"
PLACES: Final = "agent_sessions"
"""The name of the places that all agent servers on a journal share."""
SESSIONS: Final = "sessions"
"""What its queue is called."""
SUPERVISOR: Final = "supervisor"
THIS_HOST: Final = "local"
"""The provider whose sandboxes are folders and processes of this host."""
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
    chosen = harness or _harness(file, settings, surroundings)
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
        for name in _names(file, _own_name(settings, harness)):
            providers[name] = await stack.enter_async_context(
                _open_provider(file, foundation, name)
            )
        sites = {
            name: tailor.site(provider, _block(file, name).network)
            for name, provider in providers.items()
        }
        own: OwnSandboxes | None = None
        if (its := _own_name(settings, harness)) is not None:
            own = await _own(file, foundation, its, providers[its])
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


def _own_name(settings: AgentServerSettings, harness: Harness) -> str | None:
    """Return the provider of a session's own sandbox; this host where one is needed."""
    needs_one = hasattr(harness, "runtime")  # `RuntimeHarness`
    return settings.sandbox_provider or (THIS_HOST if needs_one else None)


def _names(file: SettingsFile, own: str | None) -> list[str]:
    """Return the providers to open: the configured ones, and the session's own."""
    return [*dict.fromkeys([*file.settings.sandbox, *([own] if own else [])])]


@asynccontextmanager
async def _open_provider(
    file: SettingsFile, foundation: Foundation, name: str
) -> AsyncGenerator[SandboxProvider]:
    block = _block(file, name)
    plug_in = find(ProviderPlugIn, block.provider or name, PROVIDERS)
    (options,) = read_options(file, (plug_in.options, "sandbox", name, block.options))
    async with open_provider(foundation, name, plug_in, options) as provider:
        yield provider


def _block(file: SettingsFile, name: str) -> SandboxSettings:
    return file.settings.sandbox.get(name, SandboxSettings())


def laid_over(block: SandboxSettings, config: SandboxConfig) -> SandboxSettings:
    """Return the block with what the configuration sets."""
    fields = attrs.fields_dict(SandboxConfig)
    found = {name: getattr(config, name) for name in fields}
    found["network"] = None if config.network == AS_BLOCK else Network(config.network)
    found["env"] = {**block.env, **config.env}
    found["sandbox_options"] = {**block.sandbox_options, **config.sandbox_options}
    changed = {name: value for name, value in found.items() if value is not None}
    return attrs.evolve(block, **changed)


async def _own(
    file: SettingsFile, foundation: Foundation, name: str, provider: SandboxProvider
) -> OwnSandboxes:
    settings = file.settings.agent_server
    claim, release = claims_of(foundation, provider)
    # A provider that is not there is told now.
    nobody = ClaimId(foundation.ids.fresh("check"))
    await provider.find(ClaimLabel(claim=nobody, owner=foundation.state.owner))
    spec = _plan(file, settings, name).spec(provider.capabilities)
    return OwnSandboxes(claim=claim, release=release, spec=spec)


def _plan(file: SettingsFile, settings: AgentServerSettings, sandbox: str) -> RunPlan:
    """Return the plan of a run with the same blocks, which says what a sandbox is."""
    run = file.settings.run
    plan = RunPlan(
        world=run.world,
        harness=settings.harness,
        sandbox=sandbox,
        harness_block=_harness_block(file, settings),
        sandbox_block=laid_over(_block(file, sandbox), settings.sandbox_config),
        concurrency=settings.concurrency,
        repeats=1,
        limit=None,
    )
    plan.check()
    return plan


def _harness_block(
    file: SettingsFile, settings: AgentServerSettings
) -> HarnessSettings:
    return file.settings.harness.get(settings.harness, HarnessSettings())


def _harness(
    file: SettingsFile, settings: AgentServerSettings, surroundings: Surroundings
) -> Harness:
    block = _harness_block(file, settings)
    plug_in = find(HarnessPlugIn, block.harness or settings.harness, HARNESSES)
    (options,) = read_options(
        file, (plug_in.options, "harness", settings.harness, block.options)
    )
    return plug_in.make(
        attrs.evolve(
            surroundings,
            name=settings.harness,
            turn_timeout_seconds=block.turn_timeout_seconds,
            model_url=file.settings.model.url,
            model_credential=file.settings.model.credential,
        ),
        options,
    )


def _patience(settings: AgentServerSettings) -> Patience:
    return Patience(
        disconnect_grace_seconds=settings.disconnect_grace_seconds,
        close_timeout_seconds=settings.close_timeout_seconds,
        close_retry_window_seconds=settings.session_close_retry_window_seconds,
        closed_max=settings.closed_sessions_max,
        idle_timeout_seconds=settings.idle_timeout_seconds,
        shutdown_seconds=settings.shutdown_grace_seconds * SHARE_OF_GRACE,
    )
