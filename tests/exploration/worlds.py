# SPDX-License-Identifier: Apache-2.0
"""Small worlds: one stream of events, two workers, two callers, and an outside.

A worker carries out a caller's request step by step, as the shells do: it decides on
what it knows of the stream, and what it appends holds only if nobody wrote meanwhile;
else it reads again. Between any two steps it can crash; the next life of the worker is
another holder. A caller whose reply was lost, or whose worker crashed, asks again;
one that goes away does not, and its worker goes on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import attrs

from livery.domain.claims import Holder
from livery.domain.deciders import Decider
from livery.domain.refusals import Refusal

S = TypeVar("S")
C = TypeVar("C")
E = TypeVar("E")

IDLE = "idle"
ANSWER = "answer"
UNKNOWN = -1
NOBODY = -1


class Worker(NamedTuple):
    """One process, and what it is doing."""

    at: str = IDLE
    """The step that it takes next."""
    life: int = 0
    serves: int = NOBODY
    """For which caller."""
    asked: str = ""
    """The request that it was asked to carry out."""
    known: int = UNKNOWN
    """The state that it knows of the stream, by its number."""
    fresh: bool = False
    """Whether nobody wrote since."""
    has: Any = None
    """What it took from the outside."""


class World(NamedTuple):
    """Everything there is."""

    state: int
    """Of the stream, by its number."""
    outside: Any
    """What is there apart from the stream: a NamedTuple of the model's own."""
    crashes: int
    """How many there may still be."""
    faults: int
    """How many calls may still go wrong, and callers go away."""
    workers: tuple[Worker, ...] = (Worker(), Worker())
    callers: tuple[int, ...] = (0, 0)
    """How many of its requests each caller is through with."""
    clock: int = 0
    """How often it went on."""
    written: bool = False
    """Whether the stream holds anything."""

    def with_worker(self, index: int, **changes: Any) -> "World":
        """Return the world with this worker changed."""
        changed = self.workers[index]._replace(**changes)
        workers = (*self.workers[:index], changed, *self.workers[index + 1 :])
        return self._replace(workers=workers)

    def with_caller(self, index: int, through_with: int) -> "World":
        """Return the world with this caller further on."""
        callers = list(self.callers)
        callers[index] = through_with
        return self._replace(callers=tuple(callers))

    def with_outside(self, **changes: Any) -> "World":
        """Return the world with something else outside."""
        return self._replace(outside=self.outside._replace(**changes))

    def holder(self, index: int) -> Holder:
        """Return the name of a worker in its present life."""
        return Holder(f"{index}.{self.workers[index].life}")

    def lives(self, holder: Holder | None) -> bool:
        """Tell whether a process is alive, as its file lock says."""
        return any(self.holder(index) == holder for index in range(len(self.workers)))

    @property
    def quiet(self) -> bool:
        """Tell whether no worker is at work."""
        return all(worker.at == IDLE for worker in self.workers)


class Move(NamedTuple):
    """One thing that may happen next."""

    what: str
    calm: bool
    """Whether it is no fault, no crash and nobody's going away."""
    after: World


Step = Callable[[World, int], Iterator[Move]]
"""What a worker may do next, and how it may go."""


@attrs.define
class Rules(Generic[S, C, E]):
    """A decider whose states have numbers, each decision made once."""

    decider: Decider[S, C, E]
    states: list[S] = attrs.field(factory=list[S], init=False)
    _numbers: dict[S, int] = attrs.field(factory=dict[S, int], init=False)
    _made: dict[tuple[int, tuple[C, ...]], int | Refusal] = attrs.field(
        factory=dict[tuple[int, tuple[C, ...]], int | Refusal], init=False
    )

    def number(self, state: S) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self.states)
            self.states.append(state)
        return number

    def of(self, world: World) -> S:
        """Return the stream's state."""
        return self.states[world.state]

    def known(self, world: World, index: int) -> S:
        """Return the state that a worker knows."""
        return self.states[world.workers[index].known]

    def decided(self, number: int, commands: tuple[C, ...]) -> int | Refusal:
        """Return the state after the commands; the same number when nothing follows."""
        key = (number, commands)
        made = self._made.get(key)
        if made is None:
            try:
                events, state = self.decider.decide_all(self.states[number], commands)
                made = self.number(state) if events else number
            except Refusal as refusal:
                made = refusal
            self._made[key] = made
        return made

    def read(self, world: World, index: int, at: str) -> World:
        """Let a worker read the stream, and go on at `at`."""
        return world.with_worker(index, known=world.state, fresh=True, at=at)

    def carry_out(
        self,
        world: World,
        index: int,
        commands: tuple[C, ...],
        at: str,
        *,
        refused: str | Callable[[Refusal], str],
        anew: bool = False,
        moved: str = "",
    ) -> World:
        """Decide and append as `carry_out` of the shells does, and go on at `at`.

        `anew` takes the stream for one that does not exist yet. With `moved` there is
        one attempt, and the worker goes on there when another one wrote meanwhile.
        """
        worker = world.workers[index]
        known, fresh = worker.known, worker.fresh
        if anew:
            known, fresh = 0, not world.written
        elif known == UNKNOWN:
            known, fresh = world.state, True
        made = self.decided(known, commands)
        if not fresh and not isinstance(made, Refusal) and made != known:
            if moved:
                return world.with_worker(index, known=UNKNOWN, fresh=False, at=moved)
            known, fresh = world.state, True
            made = self.decided(known, commands)
        if isinstance(made, Refusal):
            at = refused if isinstance(refused, str) else refused(made)
            return world.with_worker(index, known=known, fresh=fresh, at=at)
        if made == known:
            return world.with_worker(index, known=known, fresh=fresh, at=at)
        workers = tuple(
            each._replace(known=made, fresh=True, at=at)
            if number == index
            else each._replace(fresh=False)
            for number, each in enumerate(world.workers)
        )
        return world._replace(state=made, workers=workers, written=True)


@attrs.frozen(kw_only=True)
class Business:
    """What callers ask for, and the steps in which it is done."""

    requests: Sequence[Sequence[str]]
    """The requests of each caller, which it makes one after the other."""
    last: Sequence[int]
    """Which request of each is made at the end, also for one who went away."""
    steps: Mapping[str, Step]
    """By name; a request begins with the step of its own name."""
    on_its_own: Step | None = None
    """What an idle worker does unasked."""
    clock_max: int = 0

    def moves(self, world: World) -> Iterator[Move]:
        """Return everything that workers, callers and time may do next."""
        for index, worker in enumerate(world.workers):
            if worker.at == IDLE:
                yield from self._taken(world, index)
                if self.on_its_own is not None:
                    yield from self.on_its_own(world, index)
            elif worker.at == ANSWER:
                yield from self._answered(world, index)
            else:
                yield from self.steps[worker.at](world, index)
            if world.crashes:
                crashed = world._replace(crashes=world.crashes - 1)
                again = Worker(life=worker.life + 1)
                workers = (*world.workers[:index], again, *world.workers[index + 1 :])
                what = f"worker {index} crashes at {worker.at}"
                yield Move(what, False, crashed._replace(workers=workers))
            if world.faults and worker.serves != NOBODY:
                hasty = world._replace(faults=world.faults - 1)
                left = hasty.with_worker(index, serves=NOBODY)
                yield Move(f"caller {worker.serves} asks again", False, left)
                last = self.last[worker.serves]
                if world.callers[worker.serves] < last:
                    gone = left.with_caller(worker.serves, last)
                    yield Move(f"caller {worker.serves} goes away", False, gone)
        if world.clock < self.clock_max:
            yield Move("the clock goes on", True, world._replace(clock=world.clock + 1))

    def all_answered(self, world: World) -> bool:
        """Tell whether every caller is through and no worker is at work."""
        return world.quiet and all(
            done == len(asked)
            for done, asked in zip(world.callers, self.requests, strict=True)
        )

    def _taken(self, world: World, index: int) -> Iterator[Move]:
        served = {worker.serves for worker in world.workers}
        for caller, done in enumerate(world.callers):
            if caller not in served and done < len(self.requests[caller]):
                asked = self.requests[caller][done]
                after = world.with_worker(index, at=asked, asked=asked, serves=caller)
                yield Move(f"worker {index}: caller {caller} asks {asked}", True, after)

    def _answered(self, world: World, index: int) -> Iterator[Move]:
        worker = world.workers[index]
        idle = Worker(life=worker.life)
        workers = (*world.workers[:index], idle, *world.workers[index + 1 :])
        rested = world._replace(workers=workers)
        caller = worker.serves
        if caller == NOBODY:
            yield Move(f"worker {index} is through, and nobody hears it", True, rested)
            return
        heard = rested.with_caller(caller, world.callers[caller] + 1)
        yield Move(f"worker {index} answers caller {caller}", True, heard)
        if world.faults:
            lost = rested._replace(faults=world.faults - 1)
            yield Move(f"the reply to caller {caller} is lost", False, lost)


def went(world: World, index: int, how: str, *, calm: bool = True) -> Move:
    """Return what worker `index` did, as a move; a fault that is not calm is spent."""
    after = world if calm else world._replace(faults=world.faults - 1)
    return Move(f"worker {index}: {how}", calm, after)
