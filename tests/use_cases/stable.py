# SPDX-License-Identifier: Apache-2.0
"""A whole stable in one process: real host sandboxes, a journal, one harness.

It can be built again and again over the same journal, folder and artifacts, as
processes are that follow one another.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.harnesses.command import CommandHarness
from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.local_host.host_settings import LocalHostConfig
from livery.adapters.local_host.sandbox_provider import (
    LocalHostSandboxProvider,
    open_local_host,
)
from livery.adapters.system_clock import RandomIds, SystemClock
from livery.adapters.worker_scripts import program
from livery.adapters.worlds.workspace import WorkspaceWorld
from livery.domain.claims import OwnerId
from livery.domain.digests import Json
from livery.domain.failures import FailureKind
from livery.domain.rollouts import Record, RecordKind
from livery.domain.tasks import EpisodeId, Task, TaskId
from livery.ports.provided.activate_harness import ActivateHarness
from livery.ports.provided.agent_sessions import AgentSessions
from livery.ports.provided.claim_sandbox import ClaimSandbox
from livery.ports.provided.collect_rollouts import CollectRollouts
from livery.ports.provided.grade_work import GradeWork
from livery.ports.provided.in_process_agent import InProcessAgent
from livery.ports.provided.in_process_resources import InProcessResources
from livery.ports.provided.release_claim import ReleaseClaim
from livery.ports.provided.resources_sessions import ResourcesSessions
from livery.ports.provided.run_episode import RunEpisode
from livery.ports.provided.session_sandboxes import SessionSandboxes
from livery.ports.required.harness import Harness
from livery.ports.required.journal import Journal
from livery.ports.required.sandbox_provider import SandboxSpec

OWNER = OwnerId("stable")
GRADER = (
    'read -r mark; test "$(cat answer.txt)" = 42; status=$?; echo "$mark"; exit $status'
)


def task(number: int = 1) -> Task:
    """Return a task whose answer is 42."""
    return Task(
        task_id=TaskId("set", str(number)),
        responses_create_params={"input": "Write 42 into answer.txt."},
        task_data={
            "files": {"answer.txt": "?"},
            "grader": {"files": {}, "command": ["sh", "-c", GRADER]},
        },
    )


@attrs.define
class Rows:
    """Keeps the rows of a run."""

    rows: list[Mapping[str, Json]] = attrs.field(factory=list[Mapping[str, Json]])
    kept: list[Record] = attrs.field(factory=list[Record])

    def records(self) -> tuple[Record, ...]:
        return tuple(self.kept)

    async def append(self, row: Mapping[str, Json]) -> Record:
        episode, result, failure = row["episode_id"], row["result"], row["failure"]
        assert isinstance(episode, Mapping)
        rollout, attempt = episode["rollout_id"], episode["attempt"]
        assert isinstance(rollout, str)
        assert isinstance(attempt, int)
        kind, terminal, failure_kind = RecordKind.BROKEN, True, None
        if isinstance(result, Mapping):
            passed = RecordKind.PASSED if result["reward"] == 1.0 else RecordKind.FAILED
            kind = RecordKind.MASKED if result["mask_sample"] else passed
        else:
            assert isinstance(failure, Mapping)
            terminal = bool(failure["terminal"])
            failure_kind = FailureKind(str(failure["failure_kind"]))
        record = Record(
            episode=EpisodeId(rollout, attempt),
            kind=kind,
            terminal=terminal,
            failure_kind=failure_kind,
        )
        self.rows.append(row)
        self.kept.append(record)
        return record


@attrs.frozen
class Stable:
    """The wired use cases."""

    provider: LocalHostSandboxProvider
    agent: InProcessAgent
    resources: InProcessResources
    run_episode: RunEpisode
    collect: CollectRollouts


@attrs.define
class Ground:
    """What outlives a process."""

    folder: Path
    journal: MemoryJournal = attrs.field(factory=MemoryJournal)
    artifacts: MemoryArtifactStore = attrs.field(factory=MemoryArtifactStore)
    results: Rows = attrs.field(factory=Rows)

    @property
    def sandboxes(self) -> list[Path]:
        """The sandboxes that are there."""
        root = self.folder / "sandboxes"
        return sorted(root.iterdir()) if root.exists() else []

    @property
    def starts(self) -> list[str]:
        """A line for each start of the harness's command, written by itself."""
        file = self.folder / "starts"
        return file.read_text().splitlines() if file.exists() else []

    def counting(self, script: str) -> CommandHarness:
        """Return the harness that counts its start and then runs `script`."""
        return CommandHarness(
            argv=("sh", "-c", f'pwd >> "{self.folder}/starts"; {script}')
        )

    @asynccontextmanager
    async def stable(
        self, harness: Harness, journal: Journal | None = None, tasks: int = 1
    ) -> AsyncGenerator[Stable]:
        """Open what one process has, over what is there."""
        journal = journal or self.journal
        clock, world = SystemClock(), WorkspaceWorld()
        config = LocalHostConfig(root=self.folder / "sandboxes")
        known = {each.task_id: each for each in map(task, range(1, tasks + 1))}
        async with open_local_host(config) as provider:
            release = ReleaseClaim(journal=journal, clock=clock, provider=provider)
            claim = ClaimSandbox(
                journal=journal,
                clock=clock,
                provider=provider,
                owner=OWNER,
                holders=MemoryHolders(),
                release=release,
            )
            grade = GradeWork(
                world=world,
                claim=claim,
                release=release,
                artifacts=self.artifacts,
                archive_program=program("archive"),
                marks=RandomIds(),
            )
            resources = InProcessResources(
                sessions=ResourcesSessions(
                    journal=journal,
                    clock=clock,
                    world=world,
                    spec=SandboxSpec(),
                    claim=claim,
                    release=release,
                    grade=grade,
                )
            )
            agent = InProcessAgent(
                AgentSessions(
                    journal=journal,
                    clock=clock,
                    holders=MemoryHolders(),
                    harness=harness,
                    sandboxes=SessionSandboxes(
                        harness=harness, providers={"local": provider}
                    ),
                    activate_harness=ActivateHarness(
                        harness=harness,
                        artifacts=self.artifacts,
                        clock=clock,
                        supervisor_program=program("supervisor"),
                    ),
                )
            )
            run_episode = RunEpisode(
                journal=journal,
                clock=clock,
                run="run",
                resources=resources,
                agent=agent,
            )
            collect = CollectRollouts(
                run_episode=run_episode, results=self.results, task=known.__getitem__
            )
            yield Stable(provider, agent, resources, run_episode, collect)
