# SPDX-License-Identifier: Apache-2.0
"""Activations in a small world: two callers, each with two requests, and one sandbox.

Without a session around them: whoever writes the intent launches; who finds an intent
of a dead process settles it by what the sandbox says.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from livery.domain.activations import (
    Activate,
    Activations,
    Command,
    EndActivation,
    Ending,
    Event,
    Outcome,
    RunId,
    decide,
    evolve,
)
from livery.domain.claims import Holder
from livery.domain.deciders import Decider, Instant
from livery.domain.digests import RequestDigest

from .walk import Model
from .worlds import ANSWER, Business, Move, Rules, World, went

REQUESTS: Final = ("run 1", "run 2", "run 3")
NONE: Final = ""
RUNNING: Final = "running"
FINISHED: Final = "finished"
FORBIDDEN: Final = "forbidden"


class Sandbox(NamedTuple):
    """What became of each request in the sandbox."""

    runs: tuple[str, ...] = (NONE,) * len(REQUESTS)
    starts: tuple[int, ...] = (0,) * len(REQUESTS)
    on_the_way: frozenset[int] = frozenset()
    answers: tuple[str, ...] = ("",) * len(REQUESTS)
    """What each request was first answered."""
    wrong: str = ""


def model(*, crashes: int, faults: int, stepwise: bool = False) -> Model:
    """Return the world with so many crashes and faults."""
    initial_state = Activations(stepwise=stepwise)
    decider: Decider[Activations, Command, Event] = Decider(
        initial=initial_state, decide=decide, evolve=evolve
    )
    rules = Rules(decider)
    initial = rules.number(initial_state)
    holders: dict[tuple[str, Holder], RunId] = {}

    def activate(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "activate")
        which = world.workers[i].asked
        # The run's name carries its holder, as a session's stream does beside it.
        run = holders.setdefault(
            (which, world.holder(i)), RunId(f"{which} of {world.holder(i)}")
        )
        asked = (Activate(request=RequestDigest(which), run=run, at=Instant(0.0)),)
        after = rules.carry_out(fresh, i, asked, "ending", refused=ANSWER)
        at = "launch" if after.state != fresh.state else after.workers[i].at
        yield went(after.with_worker(i, at=at), i, "writes the intent")

    def launch(world: World, i: int) -> Iterator[Move]:
        n = REQUESTS.index(world.workers[i].asked)
        started = _launched(world, n)
        yield went(started.with_worker(i, at="watch"), i, "launches it")
        if world.faults:
            deaf = started.with_worker(i, at="settle")
            yield went(deaf, i, "hears nothing of its launch", calm=False)
            late = world.with_outside(on_the_way=world.outside.on_the_way | {n})
            late = late.with_worker(i, at="settle")
            yield went(late, i, "launches it, and it will come late", calm=False)
            lost = world.with_worker(i, at="settle")
            yield went(lost, i, "launches it in vain", calm=False)

    def settle(world: World, i: int) -> Iterator[Move]:
        n = REQUESTS.index(world.workers[i].asked)
        if world.outside.runs[n] == NONE:
            world = _run(world, n, FORBIDDEN)
        yield went(world.with_worker(i, at="watch"), i, "forbids what has not begun")

    def watch(world: World, i: int) -> Iterator[Move]:
        state = world.outside.runs[REQUESTS.index(world.workers[i].asked)]
        if state == NONE:
            wrong = world.with_outside(wrong="rule 1: nobody knows whether it began")
            yield went(wrong, i, "watches nothing")
        elif state != RUNNING:
            outcome = Outcome.COMPLETED if state == FINISHED else Outcome.CANCELLED
            ended = EndActivation(
                request=RequestDigest(world.workers[i].asked),
                ending=Ending(outcome=outcome, reply=f"told by {world.holder(i)}"),
                at=Instant(0.0),
            )
            after = rules.carry_out(world, i, (ended,), "ending", refused="ending")
            yield went(after, i, "writes the ending")

    def ending(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "ending")
        n = REQUESTS.index(world.workers[i].asked)
        standing = rules.known(fresh, i).of(RequestDigest(REQUESTS[n]))
        assert standing is not None, "its intent was written"
        if standing.ending is not None:
            yield went(
                _told(fresh, n, standing.ending).with_worker(i, at=ANSWER),
                i,
                "tells it",
            )
            return
        holder = Holder(standing.run.rpartition(" of ")[2])
        busy = any(
            each.at in ("launch", "settle", "watch") and each.asked == REQUESTS[n]
            for each in world.workers
        )
        if not busy and (holder == world.holder(i) or not world.lives(holder)):
            yield went(fresh.with_worker(i, at="settle"), i, "takes it over")

    def close(world: World, i: int) -> Iterator[Move]:
        """Settle what a dead process left and nobody asks for, as a close does."""
        left = rules.of(world).under_way
        if left is None or world.lives(Holder(left.run.rpartition(" of ")[2])):
            return
        if not any(each.asked == left.request for each in world.workers):
            asked = world.with_worker(i, at="ending", asked=str(left.request))
            yield went(asked, i, "is to settle what was left")

    business = Business(
        requests=(("run 1", "run 2", "run 1"), ("run 1", "run 3", "run 2")),
        last=(2, 2),
        steps={
            **dict.fromkeys(REQUESTS, activate),
            "launch": launch,
            "settle": settle,
            "watch": watch,
            "ending": ending,
        },
        on_its_own=close,
    )

    def moves(world: World) -> Iterator[Move]:
        yield from business.moves(world)
        for n, state in enumerate(world.outside.runs):
            if state == RUNNING:
                yield Move(f"{REQUESTS[n]} ends", True, _run(world, n, FINISHED))
        for n in sorted(world.outside.on_the_way):
            arrived = _launched(world, n)
            left = world.outside.on_the_way - {n}
            yield Move("a launch arrives", True, arrived.with_outside(on_the_way=left))

    def broken(world: World) -> Iterator[str]:
        activations, outside = rules.of(world), world.outside
        if outside.wrong:
            yield outside.wrong
        if max(outside.starts) > 1:
            yield "rule 1: a harness started again"
        if outside.runs.count(RUNNING) > 1:
            yield "rule 1: two harnesses run at once"
        for n, starts in enumerate(outside.starts):
            if starts and activations.of(RequestDigest(REQUESTS[n])) is None:
                yield "rule 1: a harness started that nobody wrote of"
        if sum(each.ending is None for each in activations.standing) > 1:
            yield "two activations are under way"
        if len(activations.standing) > 1 and not stepwise:
            yield "two requests were taken where one may be"

    def at_rest(world: World) -> bool:
        over = rules.of(world).under_way is None and not world.outside.on_the_way
        return (
            over and RUNNING not in world.outside.runs and business.all_answered(world)
        )

    return Model(
        name="activations" + (", stepwise" if stepwise else ""),
        beginning=World(
            state=initial, outside=Sandbox(), crashes=crashes, faults=faults
        ),
        moves=moves,
        broken=broken,
        at_rest=at_rest,
    )


def _told(world: World, n: int, ending: Ending) -> World:
    answers: tuple[str, ...] = world.outside.answers
    if answers[n] not in ("", ending.reply):
        return world.with_outside(wrong="an activation is answered otherwise")
    return world.with_outside(answers=(*answers[:n], ending.reply, *answers[n + 1 :]))


def _run(world: World, n: int, state: str) -> World:
    runs = tuple(state if m == n else each for m, each in enumerate(world.outside.runs))
    return world.with_outside(runs=runs)


def _launched(world: World, n: int) -> World:
    if world.outside.runs[n] != NONE:
        return world
    starts = tuple(s + (m == n) for m, s in enumerate(world.outside.starts))
    return _run(world, n, RUNNING).with_outside(starts=starts)
