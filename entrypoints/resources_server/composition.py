# SPDX-License-Identifier: Apache-2.0
"""The composition root of the resources server.

Everything that the server stands on is opened before it listens, and closed after, in
reverse order. A provider that is not there, or that cannot do what the settings ask
for, is told then, not to the first caller.
"""

import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import attrs
from starlette.routing import BaseRoute

from ...adapters.artifacts.folder import FolderArtifactStore
from ...adapters.host_ports.tcp import dial_tcp
from ...adapters.local_host.host_processes import MARKER
from ...adapters.no_sandboxes import NoSandboxProvider
from ...adapters.worker_scripts import bootstrap, program
from ...domain.claims import ClaimId
from ...domain.resources_sessions import ResourcesSessionId
from ...ports.provided.grade_work import GradeWork
from ...ports.provided.reach_apps import ReachApps
from ...ports.provided.resources_sessions import ResourcesSessions
from ...ports.provided.serve_resources import (
    ResourcesPatience,
    ServedResources,
    serve_resources,
)
from ...ports.provided.session_apps import SessionApps
from ...ports.provided.stop_processes import STOPPER, StopProcesses
from ...ports.provided.take_turns import TakeTurns
from ...ports.required.apps import has_apps
from ...ports.required.harness import ToolAccess, ToolTransport
from ...ports.required.sandbox_provider import (
    Capability,
    ClaimLabel,
    SandboxProvider,
    SandboxSpec,
)
from ...ports.required.world import World
from ..built_in import PROVIDERS, WORLDS
from ..composition import (
    Foundation,
    claims_of,
    open_provider,
    read_options,
)
from ..http_serving.answering import to_application
from ..http_serving.serving import Served, address_of, serving
from ..http_serving.session_cookies import SessionCookies
from ..kept_ports import listen_as_before
from ..metrics_page import metrics_endpoint
from ..plug_ins import ProviderPlugIn, Surroundings, WorldPlugIn, find
from ..resources_parts import check_resources, spec_of_resources
from ..resources_settings import ResourcesServerSettings
from ..run_plan import block_of
from ..server_foundation import standing_on
from ..settings_reading import SettingsFile
from ..state_folder import StateFolder
from ..task_groups import ended_with_block
from ..trusted_networks import to_networks
from .agent_routes import AgentRoutes
from .calls import GuardedCalls
from .control_routes import COOKIE_KEY, ControlRoutes
from .documentation import MCP
from .equipping import SandboxEquipment
from .tokens import SessionTokens

ARTIFACTS: Final = "artifacts"
APPS: Final = "resources"
STOP_MARGIN_SECONDS: Final = 2.0
"""What of the shutdown is left for everything but stopping sandboxes."""
SANDBOX_GRACE_SECONDS: Final = 2.0
"""What calls under way from sandboxes may take when the server ends."""
VERDICT_YIELD_SECONDS: Final = 0.01
"""How long the loop serves others before each verdict of a world with apps, at most."""
LOOPBACK: Final = "127.0.0.1"
_NO_PROVIDER: Final = "[resources_server] names no sandbox_provider"


@attrs.frozen(kw_only=True)
class ResourcesApplication:
    """What the server answers with, and where it answers sandboxes already."""

    served: ServedResources
    tokens: SessionTokens
    routes: Sequence[BaseRoute]
    """For who drives sessions, and for agents beside it."""
    sandbox_url: str
    """Where this host reaches what sandboxes may: the routes that need a token."""
    server_name: str
    """What the server of the tools is called."""

    def over_mcp(self, session: ResourcesSessionId) -> ToolAccess:
        """Return how an agent beside this process calls a session's tools."""
        return ToolAccess(
            transport=ToolTransport.MCP,
            name=self.server_name,
            url=f"{self.sandbox_url}{MCP}",
            headers=self.tokens.headers(session),
            served_here=True,
        )


@asynccontextmanager
async def open_resources_server(
    file: SettingsFile, state: StateFolder, surroundings: Surroundings
) -> AsyncGenerator[Served]:
    """Open what the resources server serves; raises as `open_resources` does."""
    settings = file.settings.resources_server
    async with open_resources(file, state, surroundings) as application:
        yield Served(
            what="resources sessions",
            host=settings.host,
            port=settings.port,
            routes=application.routes,
            drain=application.served.drain,
            grace_seconds=settings.shutdown_seconds,
        )


@asynccontextmanager
async def open_resources(
    file: SettingsFile,
    state: StateFolder,
    surroundings: Surroundings,
    world: World | None = None,
    provider: SandboxProvider | None = None,
    spec: SandboxSpec | None = None,
    foundation: Foundation | None = None,
    restores: bool = True,
) -> AsyncGenerator[ResourcesApplication]:
    """Open what the resources server serves; what is given replaces what is configured.

    It `restores` what another such server left open, unless told not to.

    Raises:
        SettingsRefused: Settings that cannot go together.
        Fault: Something that it stands on is not there, or not usable.
    """
    settings = file.settings.resources_server
    lends = provider is not None or settings.sandbox_provider is not None
    check_resources(file, lends=lends)
    secret = settings.cookie_secret
    key = state.secret if secret is None else secret.revealed(surroundings.secrets)
    made = world or find(WorldPlugIn, settings.world, WORLDS).make(surroundings)
    tokens = SessionTokens(key, settings.token_header)
    async with AsyncExitStack() as stack:
        foundation = await stack.enter_async_context(
            standing_on(foundation, file, state, surroundings.secrets)
        )
        if provider is None:
            opening = _open_provider(file, foundation, settings)
            provider = await stack.enter_async_context(opening)
        spec = spec or spec_of_resources(
            file, provider.name, provider.capabilities, lends=lends
        )
        listener = listen_as_before(
            state,
            f"{surroundings.name}-sandbox",
            settings.sandbox_host or LOOPBACK,
            settings.sandbox_port,
        )
        stack.callback(listener.close)
        relays = await stack.enter_async_context(ended_with_block())
        equip = _equipment(settings, provider, listener, relays, tokens)

        def sessions(check: Callable[[], None]) -> ResourcesSessions:
            plain = _sessions(foundation, settings, made, provider, spec, check)
            return attrs.evolve(plain, lends=lends, equip=equip)

        served = await stack.enter_async_context(
            serve_resources(sessions, _patience(settings), tokens.forget)
        )
        calls = GuardedCalls(served=served, tokens=tokens)
        if restores:
            tokens.learn(await served.restore())
        own_name = made.server_name if has_apps(made) else made.name
        name = settings.mcp_server_name or own_name
        control = ControlRoutes(
            served=served,
            cookies=SessionCookies(settings.cookie_name, key, key=COOKIE_KEY),
            tokens=tokens,
            server_name=name,
            sandbox_url=address_of(listener),
            networks=to_networks(settings.trusted_networks),
            body_bytes_max=settings.body_bytes_max,
            secrets=surroundings.secrets,
            over_mcp=has_apps(made),
            metrics=metrics_endpoint(foundation),
        )
        agent = AgentRoutes(
            calls=calls,
            cookies=control.cookies,
            body_bytes_max=settings.body_bytes_max,
            secrets=surroundings.secrets,
        )
        shown = list(agent.routes())
        if has_apps(made):
            # It costs memory and time to load, so only a world with apps does.
            from .mcp_endpoint import open_mcp_endpoint

            endpoint = await stack.enter_async_context(
                open_mcp_endpoint(
                    calls,
                    server_name=name,
                    body_bytes_max=settings.body_bytes_max,
                    secrets=surroundings.secrets,
                )
            )
            shown.append(endpoint.route)
        url = address_of(listener)
        if has_apps(made):
            # Without apps there is nothing that a sandbox may ask for.
            inner = to_application((*control.health(), *shown))
            await stack.enter_async_context(
                serving(inner, listener, grace_seconds=SANDBOX_GRACE_SECONDS)
            )
        yield ResourcesApplication(
            served=served,
            tokens=tokens,
            routes=(*control.routes(), *shown, *agent.direct()),
            sandbox_url=url,
            server_name=name,
        )


@asynccontextmanager
async def _open_provider(
    file: SettingsFile, foundation: Foundation, settings: ResourcesServerSettings
) -> AsyncGenerator[SandboxProvider]:
    name = settings.sandbox_provider
    if name is None:
        yield NoSandboxProvider(_NO_PROVIDER)
        return
    block = block_of(file, name)
    plug_in = find(ProviderPlugIn, block.provider or name, PROVIDERS)
    (options,) = read_options(file, (plug_in.options, "sandbox", name, block.options))
    async with open_provider(foundation, name, plug_in, options) as provider:
        # A provider that is not there is told now.
        nobody = ClaimId(foundation.ids.fresh("check"))
        await provider.find(ClaimLabel(claim=nobody, owner=foundation.state.owner))
        yield provider


def _sessions(
    foundation: Foundation,
    settings: ResourcesServerSettings,
    world: World,
    provider: SandboxProvider,
    spec: SandboxSpec,
    check: Callable[[], None],
) -> ResourcesSessions:
    claim, release = claims_of(foundation, provider)
    artifacts = Path(settings.artifacts or foundation.state.path / ARTIFACTS)
    isolated = Capability.ISOLATION in provider.capabilities
    apps = None
    if has_apps(world):
        apps = SessionApps(
            world=world,
            folder=foundation.state.path / APPS,
            turns=TakeTurns(
                clock=foundation.clock,
                yield_seconds=settings.seed_yield_seconds,
                check=check,
            ),
        )
    return ResourcesSessions(
        journal=foundation.journal,
        clock=foundation.clock,
        world=world,
        spec=spec,
        claim=claim,
        release=release,
        grade=GradeWork(
            world=world,
            claim=claim,
            release=release,
            artifacts=FolderArtifactStore(artifacts),
            archive_program=program("archive"),
            marks=foundation.ids,
            turns=TakeTurns(
                clock=foundation.clock,
                yield_seconds=VERDICT_YIELD_SECONDS,
                done="Judged",
            ),
        ),
        apps=apps,
        stop=StopProcesses(program=program(STOPPER), mark=None if isolated else MARKER),
        closes_tools_on_task_end=settings.close_tools_on_task_end,
        check=check,
    )


def _equipment(
    settings: ResourcesServerSettings,
    provider: SandboxProvider,
    listener: socket.socket,
    relays: anyio.abc.TaskGroup,
    tokens: SessionTokens,
) -> SandboxEquipment:
    isolated = Capability.ISOLATION in provider.capabilities
    own = address_of(listener)
    host, port = listener.getsockname()[:2]
    return SandboxEquipment(
        reach=ReachApps(
            group=relays,
            advertised_url=settings.advertised_url or (None if isolated else own),
            dial=dial_tcp(str(host), int(port)),
            relay_start=_relay,
            mailbox_program=program("mailbox"),
        ),
        tokens=tokens,
        guide_file=settings.guide_file,
        links=isolated,
    )


def _relay(ports: tuple[int, ...]) -> tuple[tuple[str, ...], bytes]:
    return bootstrap("python3", *map(str, ports), name="relay")


def _patience(settings: ResourcesServerSettings) -> ResourcesPatience:
    return ResourcesPatience(
        close_timeout_seconds=settings.close_timeout_seconds,
        close_retry_window_seconds=settings.session_close_retry_window_seconds,
        closed_max=settings.closed_sessions_max,
        idle_timeout_seconds=settings.idle_timeout_seconds,
        shutdown_seconds=max(settings.shutdown_seconds - STOP_MARGIN_SECONDS, 0.0),
    )
