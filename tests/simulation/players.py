# SPDX-License-Identifier: Apache-2.0
"""The harness, the world and the durable things as a simulated process has them."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs

from livery.domain.activations import Outcome
from livery.domain.claims import Holder
from livery.domain.digests import Json
from livery.domain.rollouts import Record
from livery.domain.scores import GraderEnd, GraderEvidence
from livery.domain.tasks import Task, TaskId
from livery.ports.required.artifact_store import Artifact, Reader, Shelf
from livery.ports.required.harness import (
    Capture,
    HarnessRequest,
    Launch,
    Observations,
    Place,
    PlacedFile,
    Reading,
    Run,
)
from livery.ports.required.journal import History, Stream
from livery.ports.required.sandbox import Command, Exited, Lost, TimedOut
from livery.ports.required.sandbox_provider import Capabilities, SandboxSpec
from livery.ports.required.world import GraderPlan, GraderRun, GradeWhere

from .chance import Chance
from .outside import Process

E = TypeVar("E")
HARNESS_SECONDS_MAX = 400.0


def some_task(
    number: int, chance: Chance, longest: float = HARNESS_SECONDS_MAX
) -> Task:
    """Return a task whose harness and grader do as chance has it."""
    question = f"task {number}"
    return Task(
        task_id=TaskId("simulated", str(number)),
        responses_create_params={"input": f"task {number}"},
        task_data={
            "seconds": chance.between(question, 1, longest * 1.1),
            "how": chance.one_of(question, "exited", "exited", "exited", "signalled"),
            "status": chance.one_of(question, 0, 0, 0, 1),
            "where": chance.one_of(question, *GradeWhere),
            "grader": chance.one_of(
                question, "ends", "ends", "ends", "ends early", "hangs"
            ),
            "grader_seconds": chance.between(question, 0.1, 60),
        },
    )


def solves(task: Task) -> bool:
    """Tell whether the harness does the task when nobody disturbs it."""
    data = task.task_data
    return (data["how"], data["status"]) == ("exited", 0) and (
        float(str(data["seconds"])) < HARNESS_SECONDS_MAX
    )


@attrs.frozen
class SimulatedHarness:
    """One command for each activation; how it goes is the task's."""

    tasks: Mapping[TaskId, Task]
    name: str = "simulated"
    stepwise: bool = False
    needs: Capabilities = frozenset()

    def check(self, request: HarnessRequest) -> None:
        pass

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        data = self.tasks[request.task].task_data
        argv = (
            request.episode.key,
            *(data[key] for key in ("seconds", "how", "status")),
        )
        return Launch(
            files=(PlacedFile(path=f"{place.scratch}/prompt", content=b"do it"),),
            run=Run(
                argv=("harness", *map(str, argv)), timeout_seconds=HARNESS_SECONDS_MAX
            ),
        )

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        match capture.how:
            case Exited(0):
                outcome = Outcome.COMPLETED
            case TimedOut():
                outcome = Outcome.TIMEOUT
            case Lost():
                outcome = Outcome.SANDBOX_ERROR
            case _:
                outcome = Outcome.FAILED
        return Reading(outcome=outcome, observations=Observations(source=self.name))


@attrs.frozen
class SimulatedWorld:
    """A workspace that is solved or not."""

    name: str = "simulated"

    def check(self, task: Task) -> None:
        pass

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        return configured

    def files(self, task: Task) -> tuple[PlacedFile, ...]:
        return (PlacedFile(path="task.txt", content=b"task"),)

    def grader(self, task: Task, mark: str) -> GraderPlan | None:
        data = task.task_data
        return GraderPlan(
            where=GradeWhere(str(data["where"])),
            files=(PlacedFile(path="grader.txt", content=b"secret"),),
            command=Command(
                argv=("grade", str(data["grader"]), str(data["grader_seconds"])),
                timeout_seconds=120.0,
                stdin=mark.encode(),
            ),
        )

    def evidence(self, task: Task, run: GraderRun | None) -> GraderEvidence:
        assert run is not None, "every task has a grader"
        match run.ended.how:
            case Lost(reason=reason):
                return GraderEvidence(end=GraderEnd.LOST, reason=reason)
            case TimedOut():
                return GraderEvidence(end=GraderEnd.TIMED_OUT)
            case _:
                word, _, mark = run.ended.stdout.kept.decode().partition(" ")
                return GraderEvidence(
                    end=GraderEnd.ENDED,
                    marked=mark == run.mark,
                    reward=1.0 if word == "solved" else 0.0,
                )


@attrs.frozen
class ProcessJournal:
    """The journal, as a process reaches it that can be killed before and after."""

    process: Process

    async def append(
        self, stream: Stream[E], events: Any, *, expected_version: int
    ) -> int:
        outside = self.process.outside
        self.process.step()
        version = await outside.journal.append(
            stream, events, expected_version=expected_version
        )
        # In the file, whether or not the process lives on to know it.
        outside.ledger.setdefault((stream.category, stream.key), []).extend(events)
        names = ", ".join(type(event).__name__ for event in events)
        outside.note(f"{stream.category}/{stream.key}: {names}")
        self.process.step()
        return version

    async def read(self, stream: Stream[E], *, after: int = 0) -> History[E]:
        self.process.step()
        return await self.process.outside.journal.read(stream, after=after)

    async def open_streams(self, category: str) -> tuple[str, ...]:
        self.process.step()
        return await self.process.outside.journal.open_streams(category)

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        self.process.step()
        return await self.process.outside.journal.moved(stream, after=after)

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        outside = self.process.outside
        self.process.step()
        await outside.journal.forget(stream, expected_version=expected_version)
        outside.ledger.pop((stream.category, stream.key), None)
        outside.note(f"{stream.category}/{stream.key} is forgotten")
        self.process.step()


@attrs.frozen
class ProcessArtifacts:
    """The artifacts, likewise."""

    process: Process

    async def put(
        self,
        shelf: Shelf,
        name: str,
        chunks: AsyncIterable[bytes],
        *,
        readers: frozenset[Reader] = frozenset(),
    ) -> Artifact:
        self.process.step()
        store = self.process.outside.artifacts
        artifact = await store.put(shelf, name, chunks, readers=readers)
        self.process.step()
        return artifact

    @asynccontextmanager
    async def get(
        self, shelf: Shelf, name: str, *, reader: Reader
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        self.process.step()
        store = self.process.outside.artifacts
        async with store.get(shelf, name, reader=reader) as chunks:
            yield chunks

    async def list(self, shelf: Shelf) -> tuple[Artifact, ...]:
        self.process.step()
        return await self.process.outside.artifacts.list(shelf)

    async def find(self, shelf: Shelf, name: str) -> Artifact | None:
        self.process.step()
        return await self.process.outside.artifacts.find(shelf, name)


@attrs.frozen
class ProcessResults:
    """The results, likewise."""

    process: Process

    def records(self) -> tuple[Record, ...]:
        return self.process.outside.results.records()

    async def append(self, row: Mapping[str, Json]) -> Record:
        self.process.step()
        record = await self.process.outside.results.append(row)
        self.process.outside.note(f"row {record.episode.key}: {record.kind}")
        self.process.step()
        return record


@attrs.frozen
class ProcessHolders:
    """Which processes live: this one, and those that it knows of."""

    process: Process

    @property
    def own(self) -> Holder:
        return Holder(self.process.name)

    async def alive(self, holder: Holder) -> bool:
        return holder == self.own or holder in self.process.others_alive
