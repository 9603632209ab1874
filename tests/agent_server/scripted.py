# SPDX-License-Identifier: Apache-2.0
"""An agent server whose harness and provider do what a test says, and its client."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import attrs
import httpx

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.gym_servers.wire_names import READS_OUTCOME_HEADER
from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.system_clock import SystemClock
from livery.domain.activations import Outcome
from livery.domain.admissions import Ticket
from livery.domain.agent_sessions import AgentSessionId, SeedStarted
from livery.domain.claims import OwnerId
from livery.domain.digests import Json
from livery.entrypoints.agent_server.app import COOKIE_KEY, AgentRoutes
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.http_serving.session_cookies import SessionCookies
from livery.ports.provided.activate_harness import ActivateHarness, Equipment
from livery.ports.provided.admit_over_workers import AdmitOverWorkers
from livery.ports.provided.admit_sessions import AdmitSessions
from livery.ports.provided.agent_sessions import AgentSessions
from livery.ports.provided.check_tools import CheckTools
from livery.ports.provided.claim_sandbox import ClaimSandbox
from livery.ports.provided.release_claim import ReleaseClaim
from livery.ports.provided.secret_values import SecretValues
from livery.ports.provided.serve_sessions import (
    Patience,
    ServedSessions,
    serve_sessions,
)
from livery.ports.provided.session_grants import SessionGrant
from livery.ports.provided.session_sandboxes import (
    OwnSandboxes,
    SessionSandboxes,
    needs_its_place,
)
from livery.ports.provided.shared_places import SharedPlaces
from livery.ports.required.harness import (
    Capture,
    HarnessRequest,
    Launch,
    Observations,
    Place,
    Reading,
)
from livery.ports.required.journal import Journal
from livery.ports.required.sandbox import Sandbox
from livery.ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    DestroyFailed,
    SandboxSpec,
)

from ..benchmarks.nothing_provider import NothingSandbox
from ..use_cases.outside import BreakableProvider

COOKIE = "LiveryAgent___agent"
EPISODE: Mapping[str, Json] = {"rollout_id": "r1", "attempt": 0}
HELLO: Mapping[str, Json] = {"input": [{"role": "user", "content": "hello"}]}


@attrs.define
class ScriptedHarness:
    """Runs nothing, and answers as it is told."""

    name: str = "scripted"
    stepwise: bool = False
    needs: Capabilities = frozenset()
    refusal: Exception | None = None
    """Raised when a request is checked."""
    fault: Exception | None = None
    """Raised when it should run."""
    hangs: bool = False
    outcome: Outcome = Outcome.COMPLETED
    upstream_failed: bool = False
    items: tuple[Mapping[str, Json], ...] = ()
    """More items of the answer."""
    started: list[HarnessRequest] = attrs.field(factory=list[HarnessRequest])
    places: list[Place] = attrs.field(factory=list[Place])
    running: anyio.Event = attrs.field(factory=anyio.Event)
    may_end: anyio.Event | None = None
    """Set by the test before a run is over."""
    first_read_hangs: bool = False
    """Whether what was captured takes for ever to be read, until that is cancelled."""
    reading: anyio.Event = attrs.field(factory=anyio.Event)

    def check(self, request: HarnessRequest) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        self.started.append(request)
        self.places.append(place)
        self.running.set()
        if self.fault is not None:
            raise self.fault
        if self.hangs:
            await anyio.sleep_forever()
        if self.may_end is not None:
            await self.may_end.wait()
        return Launch()

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        self.reading.set()
        if self.first_read_hangs:
            self.first_read_hangs = False
            await anyio.sleep_forever()
        record: Mapping[str, Json] = {
            "kind": "agent_invocation",
            "invocation_id": "root",
        }
        message: Mapping[str, Json] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "done", "annotations": []}],
        }
        return Reading(
            outcome=Outcome.CANCELLED if capture.stopped else self.outcome,
            upstream_failed=self.upstream_failed,
            output=(message, *self.items),
            observations=Observations(source=self.name, records=(record,)),
        )


@attrs.define
class SlowProvider(BreakableProvider):
    """Makes a sandbox, and says so only when a test lets it."""

    one_made: anyio.Event = attrs.field(factory=anyio.Event)
    may_go_on: anyio.Event = attrs.field(factory=anyio.Event)

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> NothingSandbox:
        sandbox = await BreakableProvider.create(self, label, spec)
        self.one_made.set()
        await self.may_go_on.wait()
        return sandbox


@attrs.define
class StuckProvider(BreakableProvider):
    """Cannot end anything, until a test lets it."""

    stuck: bool = False

    async def destroy(self, label: ClaimLabel) -> None:
        if self.stuck:
            raise DestroyFailed(self.name, label.claim, "it hangs")
        await BreakableProvider.destroy(self, label)


@attrs.define
class ScriptedOutfit:
    """Notes what was brought and taken back."""

    brought: list[str] = attrs.field(factory=list[str])
    taken_back: list[str] = attrs.field(factory=list[str])
    fault: Exception | None = None
    reached: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]])
    """Each run's session, and the prefix of its model."""
    unreached: Exception | None = None

    async def bring(
        self, seeded: SeedStarted, grant: SessionGrant, sandbox: Sandbox | None
    ) -> Equipment:
        if self.fault is not None:
            raise self.fault
        self.brought.append(seeded.session)
        return Equipment(runtime_path="/opt/program")

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
        if self.unreached is not None:
            raise self.unreached
        self.reached.append((seeded.session, model_prefix))
        yield attrs.evolve(equipment, runtime_path="/opt/reached")

    async def take_back(self, session: AgentSessionId) -> None:
        self.taken_back.append(session)


@attrs.frozen
class Server:
    """A served application, and how to talk to it."""

    client: httpx.AsyncClient
    served: ServedSessions
    harness: ScriptedHarness
    provider: BreakableProvider
    routes: AgentRoutes
    reads_outcome: bool = True
    """Whether it is asked as an environment of ours asks."""

    async def post(
        self, path: str, body: object, cookie: str | None = None
    ) -> httpx.Response:
        """Post a body of JSON, or of bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if self.reads_outcome:
            headers[READS_OUTCOME_HEADER] = "true"
        if cookie is not None:
            headers["cookie"] = f'{COOKIE}="{cookie}"'
        self.client.cookies.clear()
        return await self.client.post(path, content=content, headers=headers)

    async def seeded(self, session: str = "s1", **more: object) -> str:
        """Seed a session, and return its cookie."""
        reply = await self.post("/v1/agent_sessions", seed(session, **more))
        assert reply.status_code == 200, reply.text
        return cookie_of(reply)

    async def close(
        self, session: str = "s1", cookie: str | None = None
    ) -> httpx.Response:
        """Close a session."""
        body = {"agent_session_id": session, "episode_id": EPISODE}
        return await self.post("/v1/agent_sessions/close", body, cookie)


def seed(session: str = "s1", **more: object) -> dict[str, object]:
    """Return the body of a seed."""
    return {
        "agent_session_id": session,
        "episode_id": EPISODE,
        "task_id": {"taskset": "set", "task_id": "1"},
        **more,
    }


def lent(sandbox: str, **descriptor: str) -> dict[str, object]:
    """Return access to a lent sandbox of the provider `fake`."""
    return {
        "connection": {
            "kind": "direct",
            "provider_config_ref": "fake",
            "descriptor": {"id": sandbox, **descriptor},
        },
        "workdir": "/tmp",
    }


def cookie_of(reply: httpx.Response) -> str:
    """Return the value of the cookie that a reply sets."""
    header = reply.headers["set-cookie"]
    name, _, value = header.partition(";")[0].partition("=")
    assert name == COOKIE
    return value


@asynccontextmanager
async def serving(
    journal: Journal | None = None,
    *,
    harness: ScriptedHarness | None = None,
    provider: BreakableProvider | None = None,
    own: bool = False,
    holders: MemoryHolders | None = None,
    places: int = 8,
    wait_seconds: float = 0.0,
    patience: Patience | None = None,
    body_bytes_max: int = 1024 * 1024,
    outfit: ScriptedOutfit | None = None,
    check_tools: CheckTools | None = None,
    inspect: Callable[[Sandbox], Awaitable[None]] | None = None,
) -> AsyncGenerator[Server]:
    """Serve, with a provider and a harness that a test holds in its hands."""
    journal, clock = journal or MemoryJournal(), SystemClock()
    provider, harness = provider or BreakableProvider(), harness or ScriptedHarness()
    holders = holders or MemoryHolders()
    release = ReleaseClaim(journal=journal, clock=clock, provider=provider)
    claim = ClaimSandbox(
        journal=journal,
        clock=clock,
        provider=provider,
        owner=OwnerId("owner-1"),
        holders=holders,
        release=release,
    )
    sessions = AgentSessions(
        journal=journal,
        clock=clock,
        holders=holders,
        harness=harness,
        sandboxes=SessionSandboxes(
            harness=harness,
            providers={provider.name: provider},
            own=OwnSandboxes(claim=claim, release=release, spec=SandboxSpec())
            if own
            else None,
        ),
        activate_harness=ActivateHarness(
            harness=harness,
            artifacts=MemoryArtifactStore(),
            clock=clock,
            supervisor_program=b"",
        ),
        among_others=True,
        outfit=outfit,
        check_tools=check_tools,
        inspect=inspect,
    )

    async def outlives(ticket: Ticket) -> bool:
        return await needs_its_place(journal, AgentSessionId(ticket))

    admit = AdmitOverWorkers(
        queue=AdmitSessions(clock=clock, places=places, patience_seconds=wait_seconds),
        shared=SharedPlaces(
            journal=journal,
            clock=clock,
            holders=holders,
            name="agent_sessions",
            places=places,
            outlives=outlives,
        ),
    )
    async with serve_sessions(sessions, admit, patience or Patience()) as served:
        routes = AgentRoutes(
            served=served,
            cookies=SessionCookies(COOKIE, "a secret of the tests", key=COOKIE_KEY),
            body_bytes_max=body_bytes_max,
            secrets=SecretValues(),
        )
        transport = httpx.ASGITransport(app=to_application(routes.routes()))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://agent"
        ) as client:
            yield Server(client, served, harness, provider, routes)
