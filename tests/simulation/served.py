# SPDX-License-Identifier: Apache-2.0
"""Several servers on one journal, each session with a sandbox of its own.

A server is a process with the real use cases of the agent server; it is killed or
stopped, and started again. In the end all is calm, and everything has to come to rest.
"""

import logging
from contextlib import AsyncExitStack
from typing import Final

import anyio
import attrs

from livery.domain.admissions import Ticket
from livery.domain.agent_sessions import AgentSessionId
from livery.domain.claims import OwnerId
from livery.domain.tasks import Task, TaskId
from livery.ports.provided.activate_harness import ActivateHarness
from livery.ports.provided.admit_over_workers import AdmitOverWorkers
from livery.ports.provided.admit_sessions import AdmitSessions
from livery.ports.provided.agent_sessions import AgentSessions
from livery.ports.provided.claim_sandbox import ClaimSandbox
from livery.ports.provided.reap_claims import Finding, ReapClaims
from livery.ports.provided.release_claim import ReleaseClaim
from livery.ports.provided.serve_sessions import Patience, serve_sessions
from livery.ports.provided.session_sandboxes import (
    OwnSandboxes,
    SessionSandboxes,
    needs_its_place,
)
from livery.ports.provided.shared_places import SharedPlaces
from livery.ports.required.sandbox_provider import SandboxSpec

from .doors import Door, Open
from .outside import PROVIDER, Killed, Outside, Process, SimulatedProvider
from .players import ProcessArtifacts, ProcessHolders, ProcessJournal, SimulatedHarness

LIVES_MAX: Final = 3
"""How often a server ends before its time."""
REAP_SECONDS: Final = 400.0
PLACES: Final = 3
PATIENCE: Final = Patience(
    disconnect_grace_seconds=20.0,
    close_timeout_seconds=120.0,
    close_retry_window_seconds=10_000.0,
    closed_max=100,
    idle_timeout_seconds=2_500.0,
    shutdown_seconds=30.0,
)

log = logging.getLogger(__name__)


@attrs.define(eq=False, kw_only=True)
class Server:
    """One server, which is started again when it has ended."""

    outside: Outside
    tasks: dict[TaskId, Task]
    number: int
    owner: OwnerId
    alive: set[str]
    """The names of the processes that live."""
    rough_until: float
    """From when on nothing goes wrong any more."""
    open_door: Open
    done: anyio.Event
    door: Door | None = None
    """Where clients come in, while it is up."""
    calls: dict[anyio.CancelScope, str] = attrs.field(
        factory=dict[anyio.CancelScope, str]
    )
    """The calls of clients, which are cut when it ends, and whose they are."""

    async def serve(self) -> None:
        """Serve, end and be started again, until all is done."""
        clock, chance = self.outside.clock, self.outside.chance
        life = 0
        while not self.done.is_set():
            life += 1
            name = f"server-{self.number}.{life}"
            is_calm = clock.monotonic() >= self.rough_until
            share = 0.0 if is_calm or life > LIVES_MAX else 0.8
            how = chance.mishap(f"{name} ends", share, "host killed", "host stopped")
            steps = None
            if how == "host killed" and chance.happens(f"{name} at a step", 0.7):
                steps = 1 + int(chance.number(f"{name} steps") ** 2 * 400)
            process = Process(
                self.outside,
                name,
                self.owner,
                steps,
                calm=is_calm,
                others_alive=self.alive,
                on_death=self._cut,
            )
            self.alive.add(name)
            try:
                await self._live(process, how)
            except BaseException:
                if not process.dead:
                    raise
            process.dead = True
            self._cut()
            self.alive.discard(name)
            self.outside.note(f"{name} has ended")
            await clock.sleep(chance.between(f"{name} is down", 0.5, 60))

    async def _live(self, process: Process, how: str | None) -> None:
        sessions, reap = wired(process, self.tasks)
        clock, journal = self.outside.clock, ProcessJournal(process)

        async def outlives(ticket: Ticket) -> bool:
            return await needs_its_place(journal, AgentSessionId(ticket))

        admit = AdmitOverWorkers(
            queue=AdmitSessions(clock=clock, places=PLACES, patience_seconds=300.0),
            shared=SharedPlaces(
                journal=journal,
                clock=clock,
                holders=ProcessHolders(process),
                name="agent_sessions",
                places=PLACES,
                outlives=outlives,
            ),
        )
        async with AsyncExitStack() as stack:
            served = await stack.enter_async_context(
                serve_sessions(sessions, admit, PATIENCE)
            )
            self.door = await self.open_door(served, stack)
            async with anyio.create_task_group() as group:
                group.start_soon(self._calm_down, process)
                group.start_soon(self._reap, reap)
                await self._until_its_end(process, how)
                self._cut()
                group.cancel_scope.cancel()

    def _cut(self) -> None:
        """Let nobody in any more, and end the connections that there are."""
        self.door = None
        for scope in tuple(self.calls):
            scope.cancel()

    async def _until_its_end(self, process: Process, how: str | None) -> None:
        chance = self.outside.chance
        span = None if how is None else chance.between(f"{process.name} lives", 1, 900)
        with anyio.move_on_after(span):
            await self.done.wait()
            return
        if how == "host killed":
            process.die()
            raise Killed
        process.stopping = True

    async def _calm_down(self, process: Process) -> None:
        await self.outside.clock.sleep(
            self.rough_until - self.outside.clock.monotonic()
        )
        process.calm = True

    async def _reap(self, reap: ReapClaims) -> None:
        """Reap now and then, as a server does."""
        while True:
            await self.outside.clock.sleep(REAP_SECONDS)
            await reap()


async def rest(process: Process, tasks: dict[TaskId, Task]) -> bool:
    """Reap what is left; tell whether nothing is."""
    _, reap = wired(process, tasks)
    report = await reap()
    return {reaped.finding for reaped in report.reaped} <= {Finding.RELEASED}


def wired(
    process: Process, tasks: dict[TaskId, Task]
) -> tuple[AgentSessions, ReapClaims]:
    """Return what one process has."""
    clock, journal = process.outside.clock, ProcessJournal(process)
    provider, holders = SimulatedProvider(process), ProcessHolders(process)
    harness = SimulatedHarness(tasks)
    release = ReleaseClaim(journal=journal, clock=clock, provider=provider)
    claim = ClaimSandbox(
        journal=journal,
        clock=clock,
        provider=provider,
        owner=process.owner,
        holders=holders,
        release=release,
    )
    spec = SandboxSpec(lifetime_seconds=process.outside.lifetime_seconds)
    sessions = AgentSessions(
        journal=journal,
        clock=clock,
        holders=holders,
        harness=harness,
        sandboxes=SessionSandboxes(
            harness=harness,
            providers={PROVIDER: provider},
            own=OwnSandboxes(claim=claim, release=release, spec=spec),
        ),
        activate_harness=ActivateHarness(
            harness=harness,
            artifacts=ProcessArtifacts(process),
            clock=clock,
            supervisor_program=b"supervisor",
        ),
        among_others=True,
    )
    reap = ReapClaims(
        journal=journal,
        clock=clock,
        providers={PROVIDER: provider},
        owner=process.owner,
        holders=holders,
    )
    return sessions, reap
