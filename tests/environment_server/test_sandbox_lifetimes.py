# SPDX-License-Identifier: Apache-2.0
"""Stepped episodes of a slow agent: none holds a sandbox before its turn has come.

Hours pass in the time of a virtual clock: a sandbox lives as long as three episodes,
an agent has eight sessions at once, and 128 episodes are asked for in one moment.
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.gym_servers.wire_names import AboutAgent
from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.virtual_clock import SeededIds, VirtualClock, leaping_loop
from livery.domain.activations import Outcome
from livery.domain.claims import ClaimId
from livery.domain.digests import Json
from livery.domain.resources_sessions import ResourcesSessionId
from livery.domain.scores import GraderEnd, GraderEvidence
from livery.domain.tasks import EpisodeId, Task, TaskId
from livery.entrypoints.composition import Foundation, claims_of
from livery.entrypoints.environment_server.composition import (
    AgentPlaces,
    open_episodes,
)
from livery.entrypoints.environment_settings import EnvironmentServerSettings
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.provided.activate_harness import ActivateHarness
from livery.ports.provided.admit_over_workers import AdmitOverWorkers
from livery.ports.provided.admit_sessions import AdmitSessions
from livery.ports.provided.agent_sessions import AgentSessions
from livery.ports.provided.episode_rows import Row
from livery.ports.provided.grade_work import GradeWork
from livery.ports.provided.in_process_agent import InProcessAgent
from livery.ports.provided.in_process_resources import InProcessResources
from livery.ports.provided.resources_sessions import ResourcesSessions
from livery.ports.provided.secret_values import SecretValues
from livery.ports.provided.serve_episodes import ServedEpisodes
from livery.ports.provided.serve_sessions import Patience, serve_sessions
from livery.ports.provided.session_sandboxes import SessionSandboxes
from livery.ports.provided.shared_places import SharedPlaces
from livery.ports.required.harness import (
    Capture,
    HarnessRequest,
    HostRun,
    Launch,
    Observations,
    Place,
    Reading,
)
from livery.ports.required.participants import Lent, TaskState
from livery.ports.required.sandbox import SandboxAccess, SandboxLost
from livery.ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    SandboxSpec,
)
from livery.ports.required.world import GraderRun

from ..benchmarks.nothing_provider import NothingProvider, NothingSandbox, NothingWorld

EPISODES = 128
CONCURRENCY = 8
STEPS = 10
STEP_SECONDS = 60.0
EPISODE_SECONDS = (STEPS + 1) * STEP_SECONDS
LIFETIME_SECONDS = 3 * EPISODE_SECONDS
CREATE_SECONDS = 5.0


@attrs.define
class MortalProvider(NothingProvider):
    """Its sandboxes take a moment to make, and end by themselves when their time is up."""

    clock: VirtualClock = attrs.field(kw_only=True)
    expires_at: dict[ClaimId, float] = attrs.field(factory=dict[ClaimId, float])
    expired: set[ClaimId] = attrs.field(factory=set[ClaimId])
    """Those whose time was up before they were given back."""
    live_most: int = 0

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> NothingSandbox:
        await self.clock.sleep(CREATE_SECONDS)
        made = await NothingProvider.create(self, label, spec)
        assert spec.lifetime_seconds is not None
        ends = self.clock.now() + spec.lifetime_seconds
        self.expires_at[label.claim] = ends
        self.live_most = max(self.live_most, len(self.live))
        return attrs.evolve(made, expires_at=ends)

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> NothingSandbox:
        claim = ClaimId(access.descriptor["id"])
        if self._is_over(claim):
            raise SandboxLost(self.name, claim, "expired")
        return await NothingProvider.connect(self, access, borrower=borrower)

    async def destroy(self, label: ClaimLabel) -> None:
        self._is_over(label.claim)
        await NothingProvider.destroy(self, label)

    def _is_over(self, claim: ClaimId) -> bool:
        if claim in self.live and self.clock.now() >= self.expires_at[claim]:
            self.expired.add(claim)
        return claim in self.expired


@attrs.frozen
class Office(NothingWorld):
    """The `World` of tasks that are done after so many calls, or never."""

    calls: dict[TaskId, int] = attrs.field(factory=dict[TaskId, int])
    """How many were made for each task."""
    name: str = "office"

    def evidence(self, task: Task, run: GraderRun | None) -> GraderEvidence:
        reward = float(self.is_done(task.task_id))
        return GraderEvidence(end=GraderEnd.ENDED, marked=True, reward=reward)

    def is_done(self, task: TaskId) -> bool:
        return completes(task) and self.calls.get(task, 0) >= STEPS


def completes(task: TaskId) -> bool:
    """Every second task comes to its end by the agent's calls."""
    return int(task.task_id) % 2 == 0


@attrs.frozen
class Step:
    """One call to a model that is slow, and one call of a tool, while it has any."""

    office: Office
    clock: VirtualClock
    task: TaskId

    async def carry_out(self) -> None:
        await self.clock.sleep(STEP_SECONDS)
        self.office.calls[self.task] = self.office.calls.get(self.task, 0) + 1

    def reading(self, *, stopped: bool) -> Reading:
        called = self.office.calls.get(self.task, 0) <= STEPS
        call: Mapping[str, Json] = {"type": "function_call", "name": "do"}
        answer: Mapping[str, Json] = {
            "type": "message",
            "role": "assistant",
            "content": [],
        }
        return Reading(
            outcome=Outcome.CANCELLED if stopped else Outcome.COMPLETED,
            output=(call if called else answer,),
            observations=Observations(source="stepper"),
        )


@attrs.frozen
class Stepper:
    """The stepwise `HostHarness` of such a model."""

    office: Office
    clock: VirtualClock
    name: str = "stepper"
    stepwise: bool = True
    needs: Capabilities = frozenset()

    def check(self, request: HarnessRequest) -> None:
        pass

    def begin(self, request: HarnessRequest, place: Place) -> HostRun:
        return Step(self.office, self.clock, request.task)

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        return Launch()

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        raise AssertionError("no run is found again")


@attrs.frozen(kw_only=True)
class SteppedResources(InProcessResources):
    """Resources that tell when a task is complete, of a world without apps."""

    office: Office
    tasks: dict[ResourcesSessionId, TaskId] = attrs.field(
        factory=dict[ResourcesSessionId, TaskId]
    )

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> Lent:
        self.tasks[session] = task.task_id
        return await InProcessResources.seed(self, session, episode, task)

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        task = self.tasks[session]
        made = self.office.calls.get(task, 0)
        return TaskState(complete=self.office.is_done(task), revision=made)


@attrs.frozen
class About:
    """What the agent server tells of itself."""

    async def about(self) -> AboutAgent:
        return AboutAgent(concurrency=CONCURRENCY, stepwise=True)


@asynccontextmanager
async def episodes(
    folder: Path,
    clock: VirtualClock,
    provider: MortalProvider,
    office: Office,
    cap: int | None,
) -> AsyncGenerator[ServedEpisodes]:
    """Serve episodes over real sessions of both participants."""
    foundation = Foundation(
        state=open_state_folder(folder),
        secrets=SecretValues(),
        journal=MemoryJournal(),
        holders=MemoryHolders(),
        clock=clock,
        ids=SeededIds(),
    )
    claim, release = claims_of(foundation, provider)
    harness, artifacts = Stepper(office, clock), MemoryArtifactStore()
    resources = ResourcesSessions(
        journal=foundation.journal,
        clock=clock,
        world=office,
        spec=SandboxSpec(lifetime_seconds=LIFETIME_SECONDS),
        claim=claim,
        release=release,
        grade=GradeWork(
            world=office,
            claim=claim,
            release=release,
            artifacts=artifacts,
            archive_program=b"",
            marks=foundation.ids,
        ),
        lends=True,
    )
    sessions = AgentSessions(
        journal=foundation.journal,
        clock=clock,
        holders=foundation.holders,
        harness=harness,
        sandboxes=SessionSandboxes(
            harness=harness, providers={provider.name: provider}
        ),
        activate_harness=ActivateHarness(
            harness=harness, artifacts=artifacts, clock=clock, supervisor_program=b""
        ),
        among_others=True,
    )
    settings = EnvironmentServerSettings(max_steps=50, max_concurrent_episodes=cap)
    admit = AdmitOverWorkers(
        queue=AdmitSessions(
            clock=clock,
            places=CONCURRENCY,
            patience_seconds=settings.queue_timeout_seconds,
        ),
        shared=SharedPlaces(
            journal=foundation.journal,
            clock=clock,
            holders=foundation.holders,
            name="agent_sessions",
            places=CONCURRENCY,
        ),
    )
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            serve_sessions(sessions, admit, Patience())
        )
        yield await stack.enter_async_context(
            open_episodes(
                settings,
                foundation,
                InProcessAgent(served),
                SteppedResources(sessions=resources, office=office),
                AgentPlaces(settings=settings, agent=About()),
            )
        )


def ran(folder: Path, cap: int | None) -> tuple[MortalProvider, Office, Sequence[Row]]:
    """Ask for all episodes at once; return what came of them."""
    clock, office = VirtualClock(), Office()
    provider, rows = MortalProvider(clock=clock), list[Row]()

    async def main() -> None:
        async with episodes(folder, clock, provider, office, cap) as served:

            async def one(number: int) -> None:
                task = Task(
                    task_id=TaskId("set", str(number)),
                    responses_create_params={"input": "do it"},
                    task_data={},
                )
                rows.append(await served(EpisodeId(f"r{number}", 0), task))

            async with anyio.create_task_group() as group:
                for number in range(EPISODES):
                    group.start_soon(one, number)

    anyio.run(main, backend_options={"loop_factory": leaping_loop(clock)})
    return provider, office, rows


def verdict(row: Row) -> tuple[object, object]:
    result = row["result"]
    assert isinstance(result, Mapping), row
    return result["reward"], result["mask_sample"]


def test_no_sandbox_expires_while_its_episode_waits_for_the_agent(
    tmp_path: Path,
) -> None:
    provider, office, rows = ran(tmp_path, cap=None)

    assert [row["failure"] for row in rows] == [None] * EPISODES
    assert provider.expired == set()
    assert provider.live_most == CONCURRENCY
    assert provider.live == {}
    assert len(provider.expires_at) == EPISODES
    found = sorted(verdict(row) for row in rows)
    half = EPISODES // 2
    assert found == [(0.0, False)] * half + [(1.0, False)] * half
    # Its calls until it was complete, or its calls and one answer without tools.
    assert office.calls == {
        task: STEPS if completes(task) else STEPS + 1 for task in office.calls
    }


def test_sandboxes_do_expire_where_more_episodes_begin_than_the_agent_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    provider, _, rows = ran(tmp_path, cap=EPISODES)

    assert provider.live_most == EPISODES
    assert provider.expired
    assert {row["failure"] is None for row in rows} == {True, False}
    assert provider.live == {}
