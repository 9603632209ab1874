# SPDX-License-Identifier: Apache-2.0
"""A simulation: a run that is started, killed and resumed until it is complete.

One seed decides everything: how rough the outside is, where each process is killed
or stopped, what each task does. Time is virtual, so hours take milliseconds.
`simulate` returns what stands at the end, and every broken rule.
"""

from collections.abc import Callable, Mapping
from typing import Final

import anyio
import attrs

from livery.adapters.virtual_clock import SeededIds, leaping_loop
from livery.domain.claims import OwnerId
from livery.domain.rollouts import owed
from livery.domain.tasks import Task, TaskId
from livery.ports.provided.activate_harness import ActivateHarness
from livery.ports.provided.agent_sessions import AgentSessions
from livery.ports.provided.claim_sandbox import ClaimSandbox
from livery.ports.provided.collect_rollouts import CollectRollouts
from livery.ports.provided.grade_work import GradeWork
from livery.ports.provided.in_process_agent import InProcessAgent
from livery.ports.provided.in_process_resources import InProcessResources
from livery.ports.provided.reap_claims import Finding, ReapClaims
from livery.ports.provided.release_claim import ReleaseClaim
from livery.ports.provided.resources_sessions import ResourcesSessions
from livery.ports.provided.run_episode import RunEpisode
from livery.ports.provided.session_sandboxes import SessionSandboxes
from livery.ports.required.sandbox_provider import SandboxSpec

from . import checks
from .chance import Chance
from .clients import Client
from .doors import Open, open_routes, open_use_cases
from .in_order import numbered_scopes, numbering
from .outside import (
    LATE_SECONDS_MAX,
    PROVIDER,
    Killed,
    Outside,
    Process,
    SimulatedProvider,
)
from .players import (
    HARNESS_SECONDS_MAX,
    ProcessArtifacts,
    ProcessHolders,
    ProcessJournal,
    ProcessResults,
    SimulatedHarness,
    SimulatedWorld,
    some_task,
)
from .served import Server, rest

OWNER: Final = OwnerId("simulation")
DISTURBED_LIVES_MAX: Final = 4
CALM_LIVES_MAX: Final = 12
TASKS_MAX: Final = 4
SERVERS: Final = 2
ROUGH_SECONDS_MAX: Final = 1500.0
SERVED_SECONDS_MAX: Final = 60.0
"""How long a harness takes under a server: who waits for it there looks every second."""
WORKLOADS: Final[tuple[Callable[[], Open] | None, ...]] = (
    (None,) * 16 + (open_use_cases,) * 3 + (open_routes,)
)
"""Runs of one process after the other, and servers that are asked in two ways."""
JUMP_SECONDS: Final = 600.0


@attrs.frozen(kw_only=True)
class Story:
    """What a seed came to."""

    seed: int
    outside: Outside
    tasks: Mapping[TaskId, Task]
    disturbed: bool
    """Whether anything was killed, stopped or went wrong."""
    by_routes: bool = False
    """Whether clients came in by the routes of a server."""

    @property
    def faults(self) -> list[str]:
        return self.outside.faults

    @property
    def told(self) -> str:
        """The story in lines, for whoever has to find out what went wrong."""
        happened = zip(self.outside.moments, self.outside.notes, strict=True)
        trace = (f"{moment:.3f} {what}" for moment, what in happened)
        return "\n".join((f"seed {self.seed}", *trace, *self.faults))

    @property
    def episodes(self) -> int:
        """How many attempts came to a row, and how many sessions to their close."""
        return len(self.outside.results.kept) + self.outside.served

    @property
    def mishaps(self) -> list[tuple[str, str]]:
        """What went wrong outside, each with its name."""
        return self.outside.chance.mishaps


def simulate(seed: int, only: frozenset[str] | None = None) -> Story:
    """Play one seed to its end; with `only`, no other mishaps than of these names."""
    with numbered_scopes():
        return _played(seed, only)


def _played(seed: int, only: frozenset[str] | None) -> Story:
    chance = Chance(seed, only)
    roughness = chance.one_of("roughness", 0.0, 0.0, 0.02, 0.1, 0.25)
    lifetime_seconds = chance.one_of("lifetime", 3600.0, 3600.0, 300.0)
    outside = Outside(chance, roughness, lifetime_seconds)
    count = 1 + int(chance.number("tasks") * TASKS_MAX)
    way_in = chance.one_of("workload", *WORKLOADS)
    longest = HARNESS_SECONDS_MAX if way_in is None else SERVED_SECONDS_MAX
    tasks = {
        task.task_id: task
        for task in (some_task(number, chance, longest) for number in range(count))
    }
    if way_in is not None:
        _serve(outside, tasks, way_in())
        checks.after_a_life(outside)
        checks.nothing_is_left(outside)
        return Story(
            seed=seed,
            outside=outside,
            tasks=tasks,
            disturbed=True,
            by_routes=way_in is open_routes,
        )
    lives = int(chance.number("lives") * (DISTURBED_LIVES_MAX + 1))
    for number in range(lives):
        _live(_Life(outside, tasks, number))
        checks.after_a_life(outside)
    outside.clock.move_to(outside.clock.monotonic() + LATE_SECONDS_MAX)
    for number in range(lives, lives + CALM_LIVES_MAX):
        before = outside.came_late
        is_complete = _live(_Life(outside, tasks, number, calm=True))
        left = outside.until_all_came
        outside.clock.move_to(outside.clock.monotonic() + left)
        # What comes behind its last list is for the reaper of the next life.
        if is_complete and not left and outside.came_late == before:
            break
    else:
        outside.faults.append("the run did not come to an end")
    story = Story(
        seed=seed,
        outside=outside,
        tasks=tasks,
        disturbed=bool(lives) or roughness > 0 or lifetime_seconds < 3600,
    )
    checks.at_the_end(outside, tasks, disturbed=story.disturbed)
    return story


def _serve(outside: Outside, tasks: dict[TaskId, Task], way_in: Open) -> None:
    """Let servers serve clients, a session for each task, until all is at rest."""
    loop = {"loop_factory": numbering(leaping_loop(outside.clock))}
    anyio.run(_served, outside, tasks, way_in, backend_options=loop)


async def _served(outside: Outside, tasks: dict[TaskId, Task], way_in: Open) -> None:
    alive: set[str] = set()
    done = anyio.Event()
    rough_until = outside.chance.between("rough until", 200, ROUGH_SECONDS_MAX)
    servers = [
        Server(
            outside=outside,
            tasks=tasks,
            number=number,
            owner=OWNER,
            alive=alive,
            rough_until=rough_until,
            open_door=way_in,
            done=done,
        )
        for number in range(SERVERS)
    ]
    async with anyio.create_task_group() as group:
        for server in servers:
            group.start_soon(server.serve)
        async with anyio.create_task_group() as clients:
            for number in range(len(tasks)):
                client = Client(
                    outside=outside,
                    servers=servers,
                    number=number,
                    rough_until=rough_until,
                )
                clients.start_soon(client.live)
        left = rough_until - outside.clock.monotonic()
        await outside.clock.sleep(max(left, 0.0) + LATE_SECONDS_MAX)
        checks.no_permit_is_held(outside, alive)
        done.set()
    for number in range(CALM_LIVES_MAX):
        last = Process(outside, f"reaper-{number}", OWNER, None, calm=True)
        before = outside.came_late
        is_at_rest = await rest(last, tasks)
        left = outside.until_all_came
        await outside.clock.sleep(left)
        # What comes behind its last list is for the next one's.
        if is_at_rest and not left and outside.came_late == before:
            return
    outside.faults.append("what was served did not come to rest")


@attrs.define
class _Life:
    """What one process does from its start to its end."""

    outside: Outside
    tasks: Mapping[TaskId, Task]
    number: int
    calm: bool = False
    complete: bool = False

    async def live(self, process: Process) -> None:
        chance = self.outside.chance
        collect, reap = self._wired(process)
        async with anyio.create_task_group() as group:
            if not self.calm:
                group.start_soon(self._disturb, process, collect)
                group.start_soon(self._set_clock, process)
            group.start_soon(self._visit, process)
            if chance.happens("reap first", 0.25):
                await reap()
            repeats = 1 + int(self.outside.chance.seed % 3 == 0)
            await collect(owed(list(self.tasks), repeats, collect.results.records()))
            if self.calm or chance.happens("reap last", 0.5):
                report = await reap()
                plan = owed(list(self.tasks), repeats, collect.results.records())
                findings = {reaped.finding for reaped in report.reaped}
                self.complete = not plan and findings <= {Finding.RELEASED}
            group.cancel_scope.cancel()

    async def _disturb(self, process: Process, collect: CollectRollouts) -> None:
        """Kill or stop the process at some moment, if not at a step."""
        chance, clock = self.outside.chance, self.outside.clock
        await clock.sleep(chance.between("disturbed at", 0, 900))
        how = chance.mishap(f"{process.name} ends", 1.0, "host stopped", "host killed")
        if how == "host stopped":
            self.outside.note(f"{process.name} is stopped")
            collect.stop()
            process.stopping = True
        elif how == "host killed":
            process.die()
            raise Killed

    async def _set_clock(self, process: Process) -> None:
        """Let the host's clock jump, as one does that is set."""
        chance, clock = self.outside.chance, self.outside.clock
        await clock.sleep(chance.between("clock set at", 0, 900))
        question = f"clock of {process.name}"
        if chance.mishap(question, self.outside.roughness, "clock jumps"):
            clock.shift_wall(
                chance.between("clock set by", -JUMP_SECONDS, JUMP_SECONDS)
            )

    async def _visit(self, process: Process) -> None:
        """Let another process reap while this one lives: `livery claims reap`."""
        chance, clock = self.outside.chance, self.outside.clock
        await clock.sleep(chance.between("visited at", 0, 900))
        visitor = attrs.evolve(process, name=f"visitor-{self.number}", steps_left=None)
        visitor.others_alive.add(process.name)
        _, reap = self._wired(visitor)
        await reap()

    def _wired(self, process: Process) -> tuple[CollectRollouts, ReapClaims]:
        marks = self.outside.chance.seed * 100 + self.number
        return wired_run(process, self.tasks, marks=marks)


def wired_run(
    process: Process,
    tasks: Mapping[TaskId, Task],
    *,
    concurrency: int = 3,
    marks: int = 0,
) -> tuple[CollectRollouts, ReapClaims]:
    """Return what one process that collects rollouts has."""
    journal, artifacts = ProcessJournal(process), ProcessArtifacts(process)
    clock, world = process.outside.clock, SimulatedWorld()
    provider, holders = SimulatedProvider(process), ProcessHolders(process)
    harness = SimulatedHarness(tasks)
    release = ReleaseClaim(journal=journal, clock=clock, provider=provider)
    claim = ClaimSandbox(
        journal=journal,
        clock=clock,
        provider=provider,
        owner=OWNER,
        holders=holders,
        release=release,
    )
    grade = GradeWork(
        world=world,
        claim=claim,
        release=release,
        artifacts=artifacts,
        archive_program=b"archive",
        marks=SeededIds(marks),
    )
    resources = InProcessResources(
        sessions=ResourcesSessions(
            journal=journal,
            clock=clock,
            world=world,
            spec=SandboxSpec(lifetime_seconds=process.outside.lifetime_seconds),
            claim=claim,
            release=release,
            grade=grade,
        )
    )
    agent = InProcessAgent(
        AgentSessions(
            journal=journal,
            clock=clock,
            holders=holders,
            harness=harness,
            sandboxes=SessionSandboxes(harness=harness, providers={PROVIDER: provider}),
            activate_harness=ActivateHarness(
                harness=harness,
                artifacts=artifacts,
                clock=clock,
                supervisor_program=b"supervisor",
            ),
        )
    )
    run_episode = RunEpisode(
        journal=journal, clock=clock, run="run", resources=resources, agent=agent
    )
    collect = CollectRollouts(
        run_episode=run_episode,
        results=ProcessResults(process),
        task=tasks.__getitem__,
        concurrency=concurrency,
    )
    reap = ReapClaims(
        journal=journal,
        clock=clock,
        providers={PROVIDER: provider},
        owner=OWNER,
        holders=holders,
    )
    return collect, reap


def _live(life: _Life) -> bool:
    """Let the process live; tell whether the run is complete and nothing is left."""
    outside = life.outside
    name = f"process-{life.number}"
    steps = None
    share = 0.0 if life.calm else 0.7
    if outside.chance.mishap(f"{name} at a step", share, "host killed"):
        steps = 1 + int(outside.chance.number("steps") ** 2 * 600)
    process = Process(outside, name, OWNER, steps, calm=life.calm)
    outside.note(f"{name} begins")
    loop = {"loop_factory": numbering(leaping_loop(outside.clock))}
    try:
        anyio.run(life.live, process, backend_options=loop)
    except BaseException:
        if not process.dead:
            raise
    process.dead = True
    return life.complete
