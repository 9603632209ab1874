# SPDX-License-Identifier: Apache-2.0
"""The outside of a simulation: a provider whose replies are late, lost or bad.

What stands in `Outside` outlives every process: boxes, journal, artifacts, results,
and the ledger that the checkers read. A process reaches it through `Process`, which
can be killed at each of its steps; a dead process changes nothing any more.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import Any

import anyio
import attrs

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.journals import MemoryJournal
from livery.adapters.virtual_clock import BEGINNING, VirtualClock
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


DELAY_TIMES = 200.0
STALL_SECONDS = 300.0
LAG_SECONDS = 30.0
"""How far a list may lag behind."""


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
    by_claim: dict[ClaimId, list[Box]] = attrs.field(factory=dict[ClaimId, list[Box]])
    coming: list[tuple[float, ClaimLabel, SandboxSpec]] = attrs.field(
        factory=list[tuple[float, ClaimLabel, SandboxSpec]]
    )
    """Creations that come about although nobody waits for them."""
    launching: list[Box] = attrs.field(factory=list[Box])
    """Where launches are on their way."""
    most_boxes: int = 0
    """The most sandboxes that there were at a time."""
    ended: int = 0
    """How many were ended on request."""
    served: int = 0
    """Sessions of servers that went from their seed to their close."""
    starts: Counter[str] = attrs.field(factory=Counter[str])
    """Starts of the harness's command, by episode."""
    ledger: dict[tuple[str, str], list[Any]] = attrs.field(
        factory=dict[tuple[str, str], list[Any]]
    )
    """What was written to the journal, by stream."""
    _words: dict[ClaimId, str] = attrs.field(factory=dict[ClaimId, str], init=False)
    _numbers: Counter[str] = attrs.field(factory=Counter[str], init=False)
    faults: list[str] = attrs.field(factory=list[str])
    """Broken rules, as they were seen."""
    moments: list[float] = attrs.field(factory=list[float])
    notes: list[str] = attrs.field(factory=list[str])
    """What happened, each at its moment. No pairs: they would be looked through by the
    collector, and a large story has millions."""

    @property
    def now(self) -> float:
        """The outside's own time, whatever the host's clock says."""
        now = BEGINNING + self.clock.monotonic()
        if self.coming or self.launching:
            self.catch_up(now)
        return now

    @property
    def until_all_came(self) -> float:
        """In how many seconds the last creation comes about that nobody waits for."""
        now = self.now
        return max((moment - now for moment, _, _ in self.coming), default=0.0)

    @property
    def came_late(self) -> int:
        """How many creations have come about so far that nobody waited for."""
        return sum(1 for box in self.boxes if box.late)

    def catch_up(self, now: float) -> None:
        """Let what is due by now come about, and what comes of that."""
        while due := [each for each in self.coming if each[0] <= now]:
            first = min(due, key=lambda each: each[0])
            self.coming.remove(first)
            moment, label, spec = first
            if self.live(label.claim, moment) is None:
                self.make(label, spec, moment, late=True)
        for box in self.launching:
            box.catch_up(now)
        self.launching[:] = [box for box in self.launching if box.on_the_way]

    def live(self, claim: ClaimId, now: float) -> Box | None:
        """Return the claim's sandbox that lives, of which there may be one."""
        boxes = [box for box in self.by_claim.get(claim, ()) if box.alive(now)]
        if len(boxes) > 1:
            self.broken(2, f"claim {claim} has {len(boxes)} live sandboxes")
        return boxes[0] if boxes else None

    def make(
        self, label: ClaimLabel, spec: SandboxSpec, now: float, *, late: bool = False
    ) -> Box:
        word = self.word(label.claim)
        name = f"box {word}"
        box = Box(
            number=len(self.boxes),
            claim=label.claim,
            owner=label.owner,
            ready_at=now,
            expires_at=now + spec.lifetime_seconds,
            dies_at=NEVER,
            late=late,
            word=word,
            on_start=self.note_start,
        )
        fate = self.chance.mishap(
            f"{name} dies", self.roughness, "dies", "replaced", "out of memory"
        )
        if fate is not None:
            moment = self.chance.between(f"{name} until", 0, 600)
            if fate == "out of memory":
                box.memory_until = moment
            else:
                box.dies_at = now + moment
            if fate == "replaced":
                self.coming.append((now + moment, label, spec))
        self.boxes.append(box)
        self.most_boxes = max(self.most_boxes, len(self.boxes) - self.ended)
        self.by_claim.setdefault(label.claim, []).append(box)
        self.note(f"made {label.claim}{' late' if late else ''}")
        return box

    def note_start(self, episode: str) -> None:
        self.starts[episode] += 1
        self.note(f"started {episode}")
        if self.starts[episode] > 1:
            self.broken(1, f"the harness of {episode} started again")

    def word(self, claim: ClaimId) -> str:
        """Return a name of the claim that is the same however the story goes."""
        word = self._words.get(claim)
        if word is None:
            requested = self.claim(claim).requested
            episode = "" if requested is None else requested.used_by.partition(" ")[0]
            self._numbers[episode] += 1
            word = self._words[claim] = f"{episode} #{self._numbers[episode]}"
        return word

    def claim(self, claim: ClaimId) -> claims.Claim:
        """Return the claim as the journal has it."""
        return claims.DECIDER.replay(self.ledger.get(("claims", claim), ()))

    def note(self, what: str) -> None:
        self.moments.append(self.clock.monotonic())
        self.notes.append(what)

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
    on_death: Callable[[], None] = lambda: None
    """Called when it is killed: who is connected to it notices."""

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
        self.on_death()

    def mishap(self, question: str, *kinds: str) -> str | None:
        """Return what goes wrong with a call, if something does."""
        if self.calm:
            return None
        outside = self.outside
        kind = outside.chance.mishap(question, outside.roughness, *kinds)
        if kind is not None:
            outside.note(f"{question}: {kind}")
        return kind

    async def travel(self, question: str, seconds_max: float = 0.5) -> None:
        """Take the time that a call needs on its way."""
        self.step()
        way = f"{question} travels"
        seconds = self.outside.chance.between(way, 0, seconds_max)
        if not self.calm and self.outside.chance.mishap(
            f"{way} slowly", self.outside.roughness / 4, "delayed"
        ):
            seconds *= DELAY_TIMES
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
        question = f"create {self.outside.word(label.claim)}"
        await self.process.travel(question)
        wrong = self.process.mishap(
            question,
            "refused",
            "half done",
            "request lost",
            "reply lost",
            "done late",
            "done twice",
        )
        if wrong == "refused":
            raise CapacityExhausted(self.name, "8 of 8 in use")
        if wrong == "request lost":
            raise self._unreachable("the connection was cut")
        if wrong == "done late":
            self._comes_later(label, spec)
            raise self._unreachable("the connection was cut")
        box = await self._made(label, spec, question)
        if wrong == "half done":
            raise CreateFailed(self.name, label.claim, "ready", "it did not answer")
        if wrong == "done twice":
            self._comes_later(label, spec)
        try:
            await self.process.travel(question)
        except BaseException:
            if not self.process.dead:
                box.ended_at = min(box.ended_at, self.outside.now)
            raise
        if wrong == "reply lost":
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
            f"late {self.outside.word(label.claim)}", 0.1, LATE_SECONDS_MAX
        )
        self.outside.coming.append((self.outside.now + after, label, spec))

    async def find(self, label: ClaimLabel) -> "SimulatedSandbox | None":
        await self._ask(f"find {self.outside.word(label.claim)}")
        box = self.outside.live(label.claim, self.outside.now)
        return None if box is None else SimulatedSandbox(self.process, box)

    async def identify(self, access: SandboxAccess) -> SandboxId:
        return SandboxId(access.descriptor["id"])

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> "SimulatedSandbox":
        await self._ask(f"connect {borrower}")
        name = access.descriptor["id"]
        box = self.outside.boxes[int(str(name).rpartition("-")[2])]
        if not box.alive(self.outside.now):
            raise SandboxLost(self.name, name, "it is gone")
        return SimulatedSandbox(self.process, box)

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        lags = await self._ask("list", "lags behind")
        now = self.outside.now
        seen_at = now - LAG_SECONDS if lags else now
        for box in tuple(self.outside.boxes):
            listed = box.ready_at <= seen_at and box.alive(seen_at)
            if box.owner == owner and listed:
                yield ListedSandbox(label=box.label, sandbox_id=SandboxId(box.name))

    async def destroy(self, label: ClaimLabel) -> None:
        question = f"destroy {self.outside.word(label.claim)}"
        await self.process.travel(question)
        wrong = self.process.mishap(
            question,
            "refused",
            "half done",
            "request lost",
            "reply lost",
            "done late",
            "done twice",
        )
        now = self.outside.now
        box = self.outside.live(label.claim, now)
        if wrong == "half done" and box is not None:
            box.stop_all(now)
        if wrong in ("refused", "half done"):
            raise DestroyFailed(self.name, label.claim, "it is still there")
        if wrong == "request lost":
            raise self._unreachable("the connection was cut")
        if wrong == "done late" and box is not None:
            after = self.outside.chance.between(question, 0.1, LATE_SECONDS_MAX)
            box.ended_at = min(box.ended_at, now + after)
        if wrong == "done late":
            raise self._unreachable("the connection was cut")
        if box is not None:
            if box.owner != label.owner:
                raise ClaimTaken(self.name, label.claim, "another owner")
            box.ended_at = now
            self.outside.ended += 1
            self.outside.note(f"ended {label.claim}")
        # Before the answer travels: another may be made meanwhile that was asked for.
        if wrong == "done twice" and self.outside.live(label.claim, now) is not None:
            self.outside.broken(3, f"{label.claim} is there after its end")
        await self.process.travel(question)
        if wrong == "reply lost":
            raise self._unreachable("the reply was lost")

    async def aclose(self) -> None:
        pass

    async def _ask(self, question: str, *besides: str) -> str | None:
        """Travel there and back; return what else goes wrong than a cut."""
        await self.process.travel(question)
        wrong = self.process.mishap(question, "request lost", *besides)
        if wrong == "request lost":
            raise self._unreachable("the connection was cut")
        return wrong

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
        question = f"exec {self.box.word}"
        await self.process.travel(question)
        if not self.box.alive(self.outside.now):
            return _lost()
        is_launch = "launch" in command.argv
        kinds = ("request lost", "reply lost")
        if is_launch:
            kinds = (*kinds, "done late", "done twice")
        wrong = self.process.mishap(question, *kinds)
        if wrong in ("done late", "done twice"):
            moment = self.outside.now + self.outside.chance.between(question, 0, 30)
            folder = command.argv[-1]
            self.box.on_the_way.append((moment, folder, json.loads(command.stdin)))
            self.outside.launching.append(self.box)
        if wrong in ("request lost", "done late"):
            raise self._failed("exec", "the connection was cut")
        ended = await self._done(command)
        if not self.box.alive(self.outside.now):
            return _lost()
        if wrong == "reply lost":
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
        if program == "archive":
            return _told(self._archive(words))
        if (seconds := self._waits(words)) is not None:
            await self.outside.clock.sleep(seconds)
            self.process.step()
        return _told(self._supervise(words, command.stdin))

    def _waits(self, words: tuple[str, ...]) -> float | None:
        """Return how long the supervisor waits before it answers, if it does."""
        question, folder = words[0], words[1]
        if question == "stop":
            return self.outside.chance.between("stop", 0, 2)
        run = self.box.runs.get(folder)
        if question != "status" or run is None or isinstance(run, str):
            return None
        left = min(run.ends_at, run.stopped_at, self.box.gone_at) - self.outside.now
        patience = float(words[3]) if "--wait" in words else 0.0
        return min(patience, max(left, 0.0))

    def _supervise(self, words: tuple[str, ...], stdin: bytes) -> dict[str, object]:
        question, folder = words[0], words[1]
        if question == "launch":
            now = self.outside.now
            return {"state": self.box.launch(folder, json.loads(stdin), now)}
        if question == "forbid":
            return self.box.forbid(folder, self.outside.now)
        if question == "stop":
            return self.box.stop(folder, self.outside.now)
        return self.box.state(folder, self.outside.now)

    def _archive(self, words: tuple[str, ...]) -> dict[str, object]:
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
        wrong = await self._reach("put", "half done", "reply lost")
        half = wrong == "half done"
        self.box.files[path] = content[: len(content) // 2] if half else content
        if wrong is not None:
            raise self._failed("put", "the connection was cut")

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        wrong = await self._reach("get", "stream cut", "stream stalled")
        if path not in self.box.files:
            raise FileMissing(path)
        yield self._pieces(self.box.files[path], wrong)

    async def _pieces(self, content: bytes, wrong: str | None) -> AsyncIterator[bytes]:
        if wrong is None:
            yield content
            return
        yield content[: len(content) // 2]
        if wrong == "stream stalled":
            await self.outside.clock.sleep(STALL_SECONDS)
            self.process.step()
        raise self._failed("get", "the stream was cut")

    async def stat(self, path: str) -> FileStat:
        await self._reach("stat")
        if path == self.workdir:
            return FileStat(kind=FileKind.FOLDER, size=0, mode=0o755)
        if path not in self.box.files:
            raise FileMissing(path)
        size = len(self.box.files[path])
        return FileStat(kind=FileKind.FILE, size=size, mode=0o600)

    async def status(self) -> Status:
        await self.process.travel(f"status {self.box.word}")
        alive = self.box.alive(self.outside.now)
        if self.process.mishap(f"status {self.box.word}", "wrong state"):
            return Status(liveness=Liveness.UNKNOWN if alive else Liveness.RUNNING)
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

    async def _reach(self, operation: str, *besides: str) -> str | None:
        """Get there; return what else goes wrong than a cut."""
        question = f"{operation} {self.box.word}"
        await self.process.travel(question)
        if not self.box.alive(self.outside.now):
            raise SandboxLost(PROVIDER, self.box.name, "it is gone")
        wrong = self.process.mishap(question, "request lost", *besides)
        if wrong == "request lost":
            raise self._failed(operation, "the connection was cut")
        return wrong

    def _failed(self, operation: str, reason: str) -> SandboxFailed:
        return SandboxFailed(PROVIDER, self.box.name, operation, reason)


def _lost() -> Ended:
    return Ended(how=Lost("it is gone"))


def _told(answer: dict[str, object]) -> Ended:
    return _printed(json.dumps(answer).encode())


def _printed(content: bytes) -> Ended:
    return Ended(how=Exited(0), stdout=Output(head=content, size=len(content)))
