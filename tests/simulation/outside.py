# SPDX-License-Identifier: Apache-2.0
"""The outside of a simulation: a provider whose replies are late, lost or bad.

What stands in `Outside` outlives every process: boxes, journal, artifacts, results,
and the ledger that the checkers read. A process reaches it through `Process`, which
can be killed at each of its steps; a dead process changes nothing any more.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import Any

import anyio
import attrs

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.journals import MemoryJournal
from livery.adapters.virtual_clock import VirtualClock
from livery.domain import claims
from livery.domain.claims import ClaimId, ClaimPhase, OwnerId
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Endpoint,
    Exited,
    FileKind,
    FileMissing,
    FileStat,
    Liveness,
    Lost,
    Output,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
    Status,
    TimedOut,
)
from livery.ports.required.sandbox_provider import (
    Capabilities,
    CapacityExhausted,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    DestroyFailed,
    ListedSandbox,
    ProviderUnreachable,
    SandboxSpec,
)

from ..use_cases.stable import Rows
from .boxes import NEVER, Box
from .chance import Chance

PROVIDER = "simulated"
LATE_SECONDS_MAX = 100.0
"""How long after its caller gave up a creation can still come about."""


class Killed(BaseException):
    """The process is gone, in the middle of whatever it did."""


@attrs.define
class Outside:
    """Everything that outlives a process."""

    chance: Chance
    roughness: float
    """The share of calls that go wrong."""
    lifetime_seconds: float
    """How long a sandbox lives when nobody ends it."""
    clock: VirtualClock = attrs.field(factory=VirtualClock)
    journal: MemoryJournal = attrs.field(factory=MemoryJournal)
    artifacts: MemoryArtifactStore = attrs.field(factory=MemoryArtifactStore)
    results: Rows = attrs.field(factory=Rows)
    boxes: list[Box] = attrs.field(factory=list[Box])
    coming: list[tuple[float, ClaimLabel, SandboxSpec]] = attrs.field(
        factory=list[tuple[float, ClaimLabel, SandboxSpec]]
    )
    """Creations that come about although nobody waits for them."""
    starts: Counter[str] = attrs.field(factory=Counter[str])
    """Starts of the harness's command, by episode."""
    ledger: dict[tuple[str, str], list[Any]] = attrs.field(
        factory=dict[tuple[str, str], list[Any]]
    )
    """What was written to the journal, by stream."""
    faults: list[str] = attrs.field(factory=list[str])
    """Broken rules, as they were seen."""
    trace: list[str] = attrs.field(factory=list[str])

    @property
    def now(self) -> float:
        self.catch_up()
        return float(self.clock.now())

    def catch_up(self) -> None:
        """Let what is due by now come about."""
        now = float(self.clock.now())
        due = sorted(self.coming, key=lambda each: each[0])
        self.coming[:] = [each for each in self.coming if each[0] > now]
        for moment, label, spec in due:
            if moment <= now and self.live(label.claim, moment) is None:
                self.make(label, spec, moment, late=True)
        for box in self.boxes:
            box.catch_up(now)

    def live(self, claim: ClaimId, now: float) -> Box | None:
        boxes = [box for box in self.boxes if box.claim == claim and box.alive(now)]
        if len(boxes) > 1:
            self.broken(2, f"claim {claim} has {len(boxes)} live sandboxes")
        return boxes[0] if boxes else None

    def make(
        self, label: ClaimLabel, spec: SandboxSpec, now: float, *, late: bool = False
    ) -> Box:
        name = f"box {label.claim}"
        dies = self.chance.happens(f"{name} dies", self.roughness / 2)
        box = Box(
            number=len(self.boxes),
            claim=label.claim,
            owner=label.owner,
            ready_at=now,
            expires_at=now + spec.lifetime_seconds,
            dies_at=now + self.chance.between(f"{name} until", 0, 600)
            if dies
            else NEVER,
            late=late,
            on_start=self.note_start,
        )
        self.boxes.append(box)
        self.note(f"made {label.claim}{' late' if late else ''}")
        return box

    def note_start(self, episode: str) -> None:
        self.starts[episode] += 1
        self.note(f"started {episode}")
        if self.starts[episode] > 1:
            self.broken(1, f"the harness of {episode} started again")

    def claim(self, claim: ClaimId) -> claims.Claim:
        """Return the claim as the journal has it."""
        return claims.DECIDER.replay(self.ledger.get(("claims", claim), ()))

    def note(self, what: str) -> None:
        self.trace.append(f"{float(self.clock.now()) - 1.7e9:.3f} {what}")

    def broken(self, rule: int, what: str) -> None:
        self.note(f"RULE {rule}: {what}")
        self.faults.append(f"rule {rule}: {what}")


@attrs.define(eq=False)
class Process:
    """One process's life: what it does outside, step by step, until it is killed."""

    outside: Outside
    name: str
    owner: OwnerId
    steps_left: int | None
    """How many steps it takes before it is killed; None: it is not."""
    calm: bool = False
    """Whether the outside does as it is asked, while this process lives."""
    others_alive: set[str] = attrs.field(factory=set[str])
    """Further processes that live."""
    dead: bool = False
    stopping: bool = False

    def step(self) -> None:
        """Take one step outside, if there is life left for it."""
        if self.dead:
            raise Killed
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.die()
                raise Killed

    def die(self) -> None:
        self.dead = True
        self.outside.note(f"{self.name} is killed")

    def goes_wrong(self, question: str) -> bool:
        chance, share = self.outside.chance, self.outside.roughness
        return not self.calm and chance.happens(question, share)

    async def travel(self, question: str, seconds_max: float = 0.5) -> None:
        """Take the time that a call needs on its way."""
        self.step()
        seconds = self.outside.chance.between(f"{question} travels", 0, seconds_max)
        await self.outside.clock.sleep(seconds)
        self.step()


@attrs.define(eq=False)
class SimulatedProvider:
    """A provider as one process sees it."""

    process: Process
    name: str = PROVIDER
    capabilities: Capabilities = frozenset()

    @property
    def outside(self) -> Outside:
        return self.process.outside

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> "SimulatedSandbox":
        phase = self.outside.claim(label.claim).phase
        if phase not in (ClaimPhase.CREATING, ClaimPhase.IN_DOUBT):
            self.outside.broken(3, f"{label.claim} is made while {phase}")
        question = f"create {label.claim}"
        chance = self.outside.chance
        await self.process.travel(question)
        wrong = self.process.goes_wrong(question)
        trouble = chance.one_of(f"{question} how", "full", "broken", "lost", "late")
        if wrong and trouble == "full":
            raise CapacityExhausted(self.name, "8 of 8 in use")
        if wrong and trouble == "broken":
            raise CreateFailed(self.name, label.claim, "ready", "it did not answer")
        if wrong and trouble == "late":
            self._comes_later(label, spec)
            raise self._unreachable("the connection was cut")
        box = await self._made(label, spec, question)
        try:
            await self.process.travel(question)
        except BaseException:
            if not self.process.dead:
                box.ended_at = min(box.ended_at, self.outside.now)
            raise
        if wrong:
            raise self._unreachable("the reply was lost")
        return SimulatedSandbox(self.process, box)

    async def _made(self, label: ClaimLabel, spec: SandboxSpec, question: str) -> Box:
        standing = self.outside.live(label.claim, self.outside.now)
        if standing is not None:
            return standing
        seconds = self.outside.chance.between(f"{question} takes", 0.1, 20)
        try:
            await self.outside.clock.sleep(seconds)
            self.process.step()
        except BaseException:
            # A cancelled creation is undone; who was killed undoes nothing.
            if self.process.dead and self.outside.chance.happens(question, 0.5):
                self._comes_later(label, spec)
            raise
        if self.process.stopping:
            self.outside.broken(8, f"{label.claim} is made after the stop")
        standing = self.outside.live(label.claim, self.outside.now)
        return standing or self.outside.make(label, spec, self.outside.now)

    def _comes_later(self, label: ClaimLabel, spec: SandboxSpec) -> None:
        after = self.outside.chance.between(
            f"late {label.claim}", 0.1, LATE_SECONDS_MAX
        )
        self.outside.coming.append((self.outside.now + after, label, spec))

    async def find(self, label: ClaimLabel) -> "SimulatedSandbox | None":
        await self._ask(f"find {label.claim}")
        box = self.outside.live(label.claim, self.outside.now)
        return None if box is None else SimulatedSandbox(self.process, box)

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> "SimulatedSandbox":
        await self._ask(f"connect {borrower}")
        name = access.descriptor["id"]
        box = next(box for box in self.outside.boxes if box.name == name)
        if not box.alive(self.outside.now):
            raise SandboxLost(self.name, name, "it is gone")
        return SimulatedSandbox(self.process, box)

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        await self._ask("list")
        now = self.outside.now
        for box in tuple(self.outside.boxes):
            if box.owner == owner and box.alive(now):
                yield ListedSandbox(label=box.label, sandbox_id=SandboxId(box.name))

    async def destroy(self, label: ClaimLabel) -> None:
        question = f"destroy {label.claim}"
        await self.process.travel(question)
        wrong = self.process.goes_wrong(question)
        how = self.outside.chance.one_of(f"{question} how", "before", "after", "stuck")
        if wrong and how == "stuck":
            raise DestroyFailed(self.name, label.claim, "it is still there")
        if wrong and how == "before":
            raise self._unreachable("the connection was cut")
        now = self.outside.now
        box = self.outside.live(label.claim, now)
        if box is not None:
            if box.owner != label.owner:
                raise ClaimTaken(self.name, label.claim, "another owner")
            box.ended_at = now
            self.outside.note(f"ended {label.claim}")
        await self.process.travel(question)
        if wrong:
            raise self._unreachable("the reply was lost")

    async def aclose(self) -> None:
        pass

    async def _ask(self, question: str) -> None:
        await self.process.travel(question)
        if self.process.goes_wrong(question):
            raise self._unreachable("the connection was cut")

    def _unreachable(self, reason: str) -> ProviderUnreachable:
        return ProviderUnreachable(self.name, "simulated://", reason)


@attrs.define(eq=False)
class SimulatedSandbox:
    """A box as one process sees it."""

    process: Process
    box: Box
    workdir: str = "/workspace"
    scratch: str = "/scratch"

    @property
    def sandbox_id(self) -> SandboxId:
        return SandboxId(self.box.name)

    @property
    def expires_at(self) -> float | None:
        return self.box.expires_at

    @property
    def outside(self) -> Outside:
        return self.process.outside

    async def exec(self, command: Command) -> Ended:
        question = f"exec {self.box.claim}"
        await self.process.travel(question)
        if not self.box.alive(self.outside.now):
            return _lost()
        wrong = self.process.goes_wrong(question)
        when = self.outside.chance.one_of(f"{question} how", "before", "after", "late")
        if wrong and when == "late" and "launch" in command.argv:
            moment = self.outside.now + self.outside.chance.between(question, 0, 30)
            folder = command.argv[-1]
            self.box.on_the_way.append((moment, folder, json.loads(command.stdin)))
        if wrong and when != "after":
            raise self._failed("exec", "the connection was cut")
        ended = await self._done(command)
        if not self.box.alive(self.outside.now):
            return _lost()
        if wrong:
            raise self._failed("exec", "the reply was lost")
        return ended

    async def _done(self, command: Command) -> Ended:
        argv = command.argv
        if argv[:1] == ("grade",):
            return await self._graded(command)
        if "-c" in argv:
            return _printed(b"3 11\n")
        if argv[0] == "rm":
            self.box.files.pop(argv[-1], None)
            return Ended(how=Exited(0))
        program = PurePosixPath(argv[3]).name.partition("-")[0]
        words = argv[4:]
        told = await (
            self._supervise(words, command.stdin)
            if program == "supervisor"
            else self._archive(words)
        )
        return _printed(json.dumps(told).encode())

    async def _supervise(
        self, words: tuple[str, ...], stdin: bytes
    ) -> dict[str, object]:
        question, folder = words[0], words[1]
        if question == "launch":
            now = self.outside.now
            return {"state": self.box.launch(folder, json.loads(stdin), now)}
        if question == "forbid":
            return self.box.forbid(folder, self.outside.now)
        if question == "stop":
            await self.outside.clock.sleep(self.outside.chance.between("stop", 0, 2))
            self.process.step()
            return self.box.stop(folder, self.outside.now)
        patience = float(words[3]) if "--wait" in words else 0.0
        run = self.box.runs.get(folder)
        if run is not None and not isinstance(run, str):
            left = min(run.ends_at, run.stopped_at, self.box.gone_at) - self.outside.now
            await self.outside.clock.sleep(min(patience, max(left, 0.0)))
            self.process.step()
        return self.box.state(folder, self.outside.now)

    async def _archive(self, words: tuple[str, ...]) -> dict[str, object]:
        if words[0] == "pack":
            self._must_be_still("exported")
            self.box.files[words[2]] = self.box.packed(self.outside.now)
            return {"state": "packed"}
        self.box.unpack(self.box.files[words[1]])
        return {"state": "unpacked"}

    async def _graded(self, command: Command) -> Ended:
        self._must_be_still("graded")
        _, how, seconds = command.argv
        if how == "hangs":
            await self.outside.clock.sleep(command.timeout_seconds)
            return Ended(how=TimedOut(command.timeout_seconds))
        await self.outside.clock.sleep(float(seconds))
        self.process.step()
        self._must_be_still("graded")
        if how == "ends early":
            return Ended(how=Exited(0))
        word = b"solved " if self.box.is_solved(self.outside.now) else b"open "
        return _printed(word + command.stdin)

    def _must_be_still(self, what: str) -> None:
        if self.box.is_written_to(self.outside.now):
            self.outside.broken(5, f"{self.box.claim} is {what} while written to")

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        content = b"".join([chunk async for chunk in chunks])
        await self._reach("put")
        self.box.files[path] = content

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        await self._reach("get")
        if path not in self.box.files:
            raise FileMissing(path)
        yield _pieces(self.box.files[path])

    async def stat(self, path: str) -> FileStat:
        await self._reach("stat")
        if path not in self.box.files:
            raise FileMissing(path)
        size = len(self.box.files[path])
        return FileStat(kind=FileKind.FILE, size=size, mode=0o600)

    async def status(self) -> Status:
        await self.process.travel(f"status {self.box.claim}")
        alive = self.box.alive(self.outside.now)
        return Status(liveness=Liveness.RUNNING if alive else Liveness.ENDED)

    async def endpoint(self, port: int) -> Endpoint:
        raise AssertionError("no port was asked for")

    def access(self) -> SandboxAccess:
        return SandboxAccess(
            provider=PROVIDER, descriptor={"id": self.box.name}, workdir=self.workdir
        )

    async def disconnect(self) -> None:
        if not self.process.dead:
            await anyio.lowlevel.checkpoint()

    async def _reach(self, operation: str) -> None:
        question = f"{operation} {self.box.claim}"
        await self.process.travel(question)
        if not self.box.alive(self.outside.now):
            raise SandboxLost(PROVIDER, self.box.name, "it is gone")
        if self.process.goes_wrong(question):
            raise self._failed(operation, "the connection was cut")

    def _failed(self, operation: str, reason: str) -> SandboxFailed:
        return SandboxFailed(PROVIDER, self.box.name, operation, reason)


def _lost() -> Ended:
    return Ended(how=Lost("it is gone"))


def _printed(content: bytes) -> Ended:
    return Ended(how=Exited(0), stdout=Output(head=content, size=len(content)))


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content
