# SPDX-License-Identifier: Apache-2.0
"""What Livery itself costs: `nop` episodes on a provider that does nothing.

The journal is the SQLite one, on disk, durable as in use. Printed are episodes per
second and processor time per episode; the bound is `CPU_MS_MAX`.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import anyio
import attrs

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.harnesses.nop import NopHarness
from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import open_sqlite_journal
from livery.adapters.system_clock import RandomIds, SystemClock
from livery.domain.claims import OwnerId
from livery.domain.digests import Json
from livery.domain.rollouts import Record, RecordKind, owed
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
from livery.ports.required.journal import Journal
from livery.ports.required.sandbox_provider import SandboxSpec

from .nothing_provider import NothingProvider, NothingWorld

EPISODES = 2000
CONCURRENCY = 64
CPU_MS_MAX = 2.0


@attrs.define
class CountedResults:
    """Keeps the records alone."""

    kept: list[Record] = attrs.field(factory=list[Record])

    def records(self) -> tuple[Record, ...]:
        return tuple(self.kept)

    async def append(self, row: Mapping[str, Json]) -> Record:
        episode, result = row["episode_id"], row["result"]
        assert isinstance(episode, Mapping)
        assert isinstance(result, Mapping), row["failure"]
        assert result["mask_sample"] is False
        rollout, attempt = episode["rollout_id"], episode["attempt"]
        assert isinstance(rollout, str)
        assert isinstance(attempt, int)
        record = Record(episode=EpisodeId(rollout, attempt), kind=RecordKind.FAILED)
        self.kept.append(record)
        return record


def task(number: int) -> Task:
    """Return one of many small tasks."""
    return Task(
        task_id=TaskId("bench:nothing", str(number)),
        responses_create_params={"input": [{"role": "user", "content": "Do nothing."}]},
        task_data={},
    )


async def run(folder: Path, episodes: int) -> tuple[float, float]:
    """Return the wall and the processor seconds of all episodes together."""
    async with open_sqlite_journal(folder / "journal.sqlite") as journal:
        return await run_on(journal, episodes)


async def run_on(journal: Journal, episodes: int) -> tuple[float, float]:
    """Run them on this journal; return the wall and the processor seconds."""
    clock, provider, world = SystemClock(), NothingProvider(), NothingWorld()
    artifacts = MemoryArtifactStore()
    release = ReleaseClaim(journal=journal, clock=clock, provider=provider)
    claim = ClaimSandbox(
        journal=journal,
        clock=clock,
        provider=provider,
        owner=OwnerId("bench"),
        holders=MemoryHolders(),
        release=release,
    )
    resources = InProcessResources(
        sessions=ResourcesSessions(
            journal=journal,
            clock=clock,
            world=world,
            spec=SandboxSpec(),
            claim=claim,
            release=release,
            grade=GradeWork(
                world=world,
                claim=claim,
                release=release,
                artifacts=artifacts,
                archive_program=b"",
                marks=RandomIds(),
            ),
        )
    )
    agent = InProcessAgent(
        AgentSessions(
            journal=journal,
            clock=clock,
            holders=MemoryHolders(),
            harness=NopHarness(),
            sandboxes=SessionSandboxes(
                harness=NopHarness(), providers={"nothing": provider}
            ),
            activate_harness=ActivateHarness(
                harness=NopHarness(),
                artifacts=artifacts,
                clock=clock,
                supervisor_program=b"",
            ),
        )
    )
    tasks = {each.task_id: each for each in map(task, range(episodes))}
    results = CountedResults()
    collect = CollectRollouts(
        run_episode=RunEpisode(
            journal=journal,
            clock=clock,
            run="bench",
            resources=resources,
            agent=agent,
        ),
        results=results,
        task=tasks.__getitem__,
        concurrency=CONCURRENCY,
    )
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await collect(owed(tuple(tasks), 1, ()))
    spent = time.perf_counter() - wall, time.process_time() - cpu
    assert len(results.kept) == episodes
    assert not provider.live
    return spent


def main() -> int:
    """Print the figures; the status is 1 when the bound is broken."""
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else EPISODES
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = anyio.run(run, Path(folder), episodes)
    cpu_ms = cpu / episodes * 1000
    print(
        f"{episodes} nop episodes, {CONCURRENCY} at once: {episodes / wall:,.0f} per"
        f" second, {cpu_ms:.2f} ms of processor time each (at most {CPU_MS_MAX:g})"
    )
    return 0 if cpu_ms <= CPU_MS_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
