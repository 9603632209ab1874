# SPDX-License-Identifier: Apache-2.0
"""An agent session in a small world: two callers seed, activate and close it.

The steps are those of `AgentSessions`. Outside is the session's own sandbox with one
supervised run for each request: it starts once, never when it was forbidden, and may
be started late by a launch whose caller heard nothing.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from livery.domain.activations import (
    Activate,
    EndActivation,
    Ending,
    Outcome,
    RunId,
)
from livery.domain.agent_sessions import (
    DECIDER,
    AbandonSeed,
    AgentSession,
    AgentSessionId,
    Close,
    Command,
    Event,
    FailClose,
    FailSetup,
    GiveUpSeed,
    MarkReady,
    Seed,
    SessionIsClosing,
    SessionPhase,
    StartCapture,
    StartClose,
    TakeOver,
)
from livery.domain.claims import ClaimId
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.refusals import Refusal
from livery.domain.tasks import EpisodeId

from .walk import Model
from .worlds import ANSWER, Business, Move, Rules, World, went

EPISODE: Final = EpisodeId("e", 0)
NOW: Final = Instant(0.0)
NONE: Final = ""
RUNNING: Final = "running"
FINISHED: Final = "finished"
FORBIDDEN: Final = "forbidden"
_OVER: Final = (SessionPhase.CLOSED, SessionPhase.ABSENT)


class Machine(NamedTuple):
    """The session's sandbox, and what ran in it."""

    lives: bool = False
    runs: tuple[str, str] = (NONE, NONE)
    """Of the first and the second request."""
    starts: tuple[int, int] = (0, 0)
    on_the_way: int = -1
    """The request of a launch that will arrive late."""
    reply: str = ""
    """What the first close was answered."""
    wrong: str = ""


def model(*, crashes: int, faults: int, stepwise: bool = False) -> Model:
    """Return the world with so many crashes and faults."""
    rules = Rules(DECIDER)
    initial = rules.number(DECIDER.initial)

    def seed(world: World, i: int) -> Iterator[Move]:
        asked = Seed(
            session=AgentSessionId("s"),
            episode=EPISODE,
            request=RequestDigest(world.workers[i].asked),
            stepwise=stepwise,
            holder=world.holder(i),
            at=NOW,
        )
        anew = world.workers[i].at != "seed again"
        if not anew:
            world = rules.read(world, i, "seed again")
        after = rules.carry_out(world, i, (asked,), "set up", refused=ANSWER, anew=anew)
        yield went(after, i, "writes the seed")

    def set_up(world: World, i: int) -> Iterator[Move]:
        session = rules.known(world, i)
        if session.seed_over:
            yield went(world.with_worker(i, at=ANSWER), i, "finds it seeded")
        elif session.holder == world.holder(i):
            if _others(world, i, ("set up", "mark ready", "undo")):
                return  # It waits for the one beside it in its process.
            made = world.with_outside(lives=True).with_worker(i, at="mark ready")
            yield went(made, i, "reaches a sandbox")
            if world.faults:
                failed = made.with_worker(i, at="undo")
                yield went(failed, i, "cannot use its sandbox", calm=False)
                none = world.with_worker(i, at="undo")
                yield went(none, i, "reaches none", calm=False)
        else:
            yield from wait(world, i, "seed again")

    def wait(world: World, i: int, at: str) -> Iterator[Move]:
        """Wait for a living holder, or take over from a dead one."""
        holder = rules.known(world, i).holder
        if holder is not None and world.lives(holder):
            if not world.workers[i].fresh or holder == world.holder(i):
                yield went(world.with_worker(i, at=at), i, "looks again")
            return
        take = TakeOver(taken_from=holder, holder=world.holder(i), at=NOW)
        after = rules.carry_out(world, i, (take,), at, refused=at)
        yield went(after, i, "takes over")

    def mark_ready(world: World, i: int) -> Iterator[Move]:
        ready = (MarkReady(claim=ClaimId("s"), at=NOW),)
        after = rules.carry_out(world, i, ready, ANSWER, refused="undo")
        yield went(after, i, "writes that it is ready")

    def undo(world: World, i: int) -> Iterator[Move]:
        gone = world.with_outside(lives=False)
        yield went(_set_up_over(rules, gone, i, AbandonSeed), i, "undoes it")
        if world.faults:
            kept = _set_up_over(rules, world, i, FailSetup)
            yield went(kept, i, "cannot undo it", calm=False)

    def activate(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "activate")
        which = world.workers[i].asked
        asked = Activate(
            request=RequestDigest(which),
            run=RunId(which),
            holder=world.holder(i),
            at=NOW,
        )
        after = rules.carry_out(fresh, i, (asked,), "ending", refused=ANSWER)
        started = after.state != fresh.state
        at = "launch" if started else after.workers[i].at
        yield went(after.with_worker(i, at=at), i, "writes the intent")

    def launch(world: World, i: int) -> Iterator[Move]:
        n = _which(world.workers[i].asked)
        started = _launched(world, n)
        yield went(started.with_worker(i, at="watch"), i, "launches it")
        if world.faults:
            deaf = started.with_worker(i, at="settle")
            yield went(deaf, i, "hears nothing of its launch", calm=False)
            lost = world.with_worker(i, at="settle")
            yield went(lost, i, "launches it in vain", calm=False)
            late = lost.with_outside(on_the_way=n)
            yield went(late, i, "launches it, and it will come late", calm=False)

    def settle(world: World, i: int) -> Iterator[Move]:
        n = _which(world.workers[i].asked)
        if world.outside.runs[n] == NONE:
            world = _run(world, n, FORBIDDEN)
        yield went(world.with_worker(i, at="watch"), i, "forbids what has not begun")

    def watch(world: World, i: int) -> Iterator[Move]:
        n = _which(world.workers[i].asked)
        state = world.outside.runs[n]
        closing = rules.of(world).phase is SessionPhase.CLOSING
        if state == RUNNING and world.outside.lives:
            if closing:
                stopped = _run(world, n, FINISHED).with_worker(i, at="end")
                yield went(stopped, i, "stops it for the close")
        else:
            capture = (StartCapture(request=_digest(world, i), at=NOW),)
            read = rules.carry_out(world, i, capture, "end", refused="end")
            yield went(read, i, "reads what it left")

    def end(world: World, i: int) -> Iterator[Move]:
        state = world.outside.runs[_which(_digest(world, i))]
        if state == RUNNING and world.outside.lives:
            world = world.with_outside(wrong="rule 5: it is called over and runs")
        outcome = Outcome.COMPLETED if state == FINISHED else Outcome.CANCELLED
        ended = EndActivation(
            request=_digest(world, i),
            ending=Ending(outcome=outcome, reply=""),
            at=NOW,
        )
        at = "seed over" if world.workers[i].asked == "close" else ANSWER
        after = rules.carry_out(world, i, (ended,), at, refused=at)
        yield went(after.with_worker(i, has=None), i, "writes the ending")

    def ending(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "ending")
        session = rules.known(fresh, i)
        activation = session.activations.of(_digest(world, i))
        if activation is None or activation.ending is not None:
            yield went(fresh.with_worker(i, at=ANSWER), i, "finds its ending")
        elif session.holder == world.holder(i):
            if not _others(world, i, ("launch", "settle", "watch", "end")):
                yield went(fresh.with_worker(i, at="settle"), i, "takes the run up")
        elif not world.lives(session.holder):
            yield from wait(fresh, i, "ending")

    def close(world: World, i: int) -> Iterator[Move]:
        start = (StartClose(episode=EPISODE, at=NOW),)
        after = rules.carry_out(world, i, start, "seed over", refused=ANSWER)
        session = rules.known(after, i)
        if session.closed is not None:
            after = after.with_worker(i, at="closed")
        elif session.seeded is None:
            after = after.with_worker(i, at="close it")
        yield went(after, i, "starts the close")

    def seed_over(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "seed over")
        session = rules.known(fresh, i)
        if session.seeded is not None and not session.seed_over:
            if session.holder == world.holder(i):
                if not _others(world, i, ("set up", "mark ready", "undo")):
                    over = (GiveUpSeed(reason="", at=NOW),)
                    after = rules.carry_out(
                        fresh, i, over, "seed over", refused="seed over"
                    )
                    yield went(after, i, "gives the seed up")
            elif not world.lives(session.holder):
                yield from wait(fresh, i, "seed over")
        elif (under_way := session.activations.under_way) is not None:
            if session.holder == world.holder(i):
                if not _others(world, i, ("launch", "settle", "watch", "end")):
                    n = _which(under_way.request)
                    state = FINISHED if world.outside.runs[n] == RUNNING else FORBIDDEN
                    stopped = fresh
                    if world.outside.runs[n] in (NONE, RUNNING):
                        stopped = _run(fresh, n, state)
                    stopped = stopped.with_worker(i, at="end", has=under_way.request)
                    yield went(stopped, i, "stops what was left")
            elif not world.lives(session.holder):
                yield from wait(fresh, i, "seed over")
        else:
            yield went(fresh.with_worker(i, at="give back"), i, "finds nothing to stop")

    def give_back(world: World, i: int) -> Iterator[Move]:
        gone = world.with_outside(lives=False).with_worker(i, at="close it")
        yield went(gone, i, "gives the sandbox back")
        if world.faults:
            failed = (FailClose(reason="", at=NOW),)
            after = rules.carry_out(world, i, failed, "close", refused="close")
            yield went(after.with_worker(i, known=-1), i, "cannot", calm=False)

    def close_it(world: World, i: int) -> Iterator[Move]:
        told = Close(
            session=AgentSessionId("s"),
            episode=EPISODE,
            reply=f"by {i}",
            at=NOW,
        )
        after = rules.carry_out(
            world, i, (told,), "closed", refused=ANSWER, moved="close"
        )
        yield went(after, i, "writes the reply")

    def closed(world: World, i: int) -> Iterator[Move]:
        reply = rules.known(world, i).closed
        assert reply is not None, "it was just closed"
        if world.outside.reply not in ("", reply.reply):
            world = world.with_outside(wrong="rule 7: close answers otherwise")
        told = world.with_outside(reply=reply.reply).with_worker(i, at=ANSWER)
        yield went(told, i, "tells the reply")

    second = "run 2"
    business = Business(
        requests=(("seed", "run 1", "close"), ("seed", second, "close")),
        last=(2, 2),
        steps={
            "seed": seed,
            "seed again": seed,
            "set up": set_up,
            "mark ready": mark_ready,
            "undo": undo,
            "run 1": activate,
            "run 2": activate,
            "launch": launch,
            "settle": settle,
            "watch": watch,
            "end": end,
            "ending": ending,
            "close": close,
            "seed over": seed_over,
            "give back": give_back,
            "close it": close_it,
            "closed": closed,
        },
    )

    def moves(world: World) -> Iterator[Move]:
        yield from business.moves(world)
        outside: Machine = world.outside
        for n, state in enumerate(outside.runs):
            if state == RUNNING and outside.lives:
                yield Move(f"run {n + 1} ends", True, _run(world, n, FINISHED))
        if outside.on_the_way >= 0:
            arrived = _launched(world, outside.on_the_way)
            yield Move("a launch arrives", True, arrived.with_outside(on_the_way=-1))
        if outside.lives and world.faults:
            died = world.with_outside(lives=False)._replace(faults=world.faults - 1)
            yield Move("the sandbox dies", False, died)

    def broken(world: World) -> Iterator[str]:
        session, outside = rules.of(world), world.outside
        if outside.wrong:
            yield outside.wrong
        if max(outside.starts) > 1:
            yield "rule 1: a harness started again"
        yield from _without_intent(session, outside)
        if session.phase in _OVER and outside.lives and not _setting_up(world):
            yield "rule 3: the session is over and its sandbox is not"
        if outside.lives and outside.runs.count(RUNNING) > 1:
            yield "rule 1: two harnesses run at once"

    def at_rest(world: World) -> bool:
        gone = not world.outside.lives and world.outside.on_the_way < 0
        over = rules.of(world).phase in _OVER
        return gone and over and business.all_answered(world)

    return Model(
        name="agent_sessions" + (", stepwise" if stepwise else ""),
        beginning=World(
            state=initial, outside=Machine(), crashes=crashes, faults=faults
        ),
        moves=moves,
        broken=broken,
        at_rest=at_rest,
    )


def _which(request: str) -> int:
    return int(request[-1]) - 1


def _digest(world: World, index: int) -> RequestDigest:
    worker = world.workers[index]
    return RequestDigest(worker.has or worker.asked)


def _others(world: World, index: int, steps: tuple[str, ...]) -> bool:
    """Tell whether this process does one of these already: a worker does one thing."""
    return any(
        number != index
        and worker.at in steps
        and world.holder(number) == world.holder(index)
        for number, worker in enumerate(world.workers)
    )


def _setting_up(world: World) -> bool:
    return any(
        worker.at in ("set up", "mark ready", "undo") for worker in world.workers
    )


def _without_intent(session: AgentSession, outside: Machine) -> Iterator[str]:
    if session.phase is SessionPhase.ABSENT:
        return
    for n, starts in enumerate(outside.starts):
        known = session.activations.of(RequestDigest(f"run {n + 1}"))
        if starts and known is None:
            yield "rule 1: a harness started that nobody wrote of"


def _run(world: World, n: int, state: str) -> World:
    runs = tuple(state if m == n else each for m, each in enumerate(world.outside.runs))
    return world.with_outside(runs=runs)


def _launched(world: World, n: int) -> World:
    outside: Machine = world.outside
    if not outside.lives or outside.runs[n] != NONE:
        return world
    starts = tuple(s + (m == n) for m, s in enumerate(outside.starts))
    return _run(world, n, RUNNING).with_outside(starts=starts)


def _set_up_over(
    rules: Rules[AgentSession, Command, Event],
    world: World,
    index: int,
    how: type[AbandonSeed | FailSetup],
) -> World:
    """Write that the setup failed; when a close came first, that it is given up."""

    def otherwise(refusal: Refusal) -> str:
        return "give up" if isinstance(refusal, SessionIsClosing) else ANSWER

    told = (how(reason="", at=NOW),)
    after = rules.carry_out(world, index, told, ANSWER, refused=otherwise)
    if after.workers[index].at != "give up":
        return after
    given_up = (GiveUpSeed(reason="", at=NOW),)
    return rules.carry_out(after, index, given_up, ANSWER, refused=ANSWER)
