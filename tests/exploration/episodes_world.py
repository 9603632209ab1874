# SPDX-License-Identifier: Apache-2.0
"""An episode in a small world: two workers are asked for it, and two participants.

The steps are those of `RunEpisode`, each participant a session that is opened, closed
once, and then never opened again. What a worker of a dead process left, another goes
on with.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.episodes import (
    DECIDER,
    Admit,
    EndTurn,
    EpisodeOutOfStep,
    EpisodePhase,
    Fail,
    Finish,
    NoteClosed,
    NoteSeeded,
    NoteUnclosed,
    NoteVerified,
    Participant,
    QueueEpisode,
    StartSeed,
    StartTurn,
    StartVerifying,
    TakeOverEpisode,
)
from livery.domain.failures import TRANSPORT_TIMEOUT, Failure, Stage
from livery.domain.refusals import Refusal
from livery.domain.tasks import EpisodeId, TaskId

from .walk import Model
from .worlds import ANSWER, Business, Move, Rules, World, went

NOW: Final = Instant(0.0)
NONE: Final = ""
OPEN: Final = "open"
CLOSED: Final = "closed"
RESOURCES, AGENT = Participant.RESOURCES, Participant.AGENT
_ENDED: Final = (EpisodePhase.CLEANING, EpisodePhase.DONE)


class Sessions(NamedTuple):
    """What the participants have."""

    resources: str = NONE
    agent: str = NONE
    runs: bool = False
    """Whether the harness runs."""
    starts: int = 0
    gradings: int = 0
    row: str = ""
    """What the episode was first told to have come to."""
    wrong: str = ""


def model(*, crashes: int, faults: int) -> Model:
    """Return the world with so many crashes and faults."""
    rules = Rules(DECIDER)
    initial = rules.number(DECIDER.initial)

    def queue(world: World, i: int) -> QueueEpisode:
        return QueueEpisode(
            episode=EpisodeId("e", 0),
            task=TaskId("t", "1"),
            request=RequestDigest(world.workers[i].asked),
            holder=world.holder(i),
            at=NOW,
        )

    def run(world: World, i: int) -> Iterator[Move]:
        commands = (
            queue(world, i),
            Admit(at=NOW),
            StartSeed(participant=RESOURCES, session="r", at=NOW),
        )

        def refused(refusal: Refusal) -> str:
            return "again" if isinstance(refusal, EpisodeOutOfStep) else ANSWER

        after = rules.carry_out(
            world, i, commands, "seed resources", refused=refused, anew=True
        )
        yield went(after, i, "queues it")

    def again(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "again")
        after = rules.carry_out(
            fresh, i, (queue(world, i),), "seed resources", refused=ANSWER
        )
        episode = rules.known(after, i)
        if episode.phase is EpisodePhase.DONE:
            yield went(after.with_worker(i, at="tell"), i, "finds it done")
        elif episode.holder == world.holder(i):
            if any(
                j != i and world.workers[j].at not in ("idle", "again")
                for j in range(2)
                if j != i and world.holder(j) == world.holder(i)
            ):
                return
            yield went(after, i, "goes on with it")
        elif world.lives(episode.holder):
            yield went(after.with_worker(i, at=ANSWER), i, "finds it elsewhere")
        else:
            take = TakeOverEpisode(
                taken_from=episode.holder, holder=world.holder(i), at=NOW
            )
            taken = rules.carry_out(fresh, i, (take,), "again", refused="again")
            yield went(taken, i, "takes it over")

    def seed(world: World, i: int, who: Participant, then: str) -> Iterator[Move]:
        episode = rules.known(world, i)
        if episode.phase in _ENDED:
            yield went(world.with_worker(i, at="clean"), i, "finds it ended")
            return
        if who is AGENT and episode.response is not None:
            yield went(world.with_worker(i, at=then), i, "needs no agent")
            return
        state = getattr(world.outside, who)
        if who not in dict(rules.of(world).owed) and state == NONE:
            world = world.with_outside(wrong=f"rule 3: nobody will close the {who}")
        if state == CLOSED:
            yield went(world.with_worker(i, at="fail"), i, f"finds the {who} closed")
            return
        opened = world.with_outside(**{str(who): OPEN})
        yield went(opened.with_worker(i, at=then), i, f"seeds the {who}")
        if world.faults:
            deaf = opened.with_worker(i, at="fail")
            yield went(deaf, i, f"hears nothing of seeding the {who}", calm=False)
            lost = world.with_worker(i, at="fail")
            yield went(lost, i, f"seeds the {who} in vain", calm=False)

    def seed_resources(world: World, i: int) -> Iterator[Move]:
        yield from seed(world, i, RESOURCES, "owe agent")

    def owe_agent(world: World, i: int) -> Iterator[Move]:
        if rules.known(world, i).phase is not EpisodePhase.SEEDING:
            yield went(world.with_worker(i, at="seed agent"), i, "is further on")
            return
        commands = (
            NoteSeeded(participant=RESOURCES, at=NOW),
            StartSeed(participant=AGENT, session="a", at=NOW),
        )
        after = rules.carry_out(world, i, commands, "seed agent", refused="fail")
        yield went(after, i, "writes that the agent is to be closed")

    def seed_agent(world: World, i: int) -> Iterator[Move]:
        yield from seed(world, i, AGENT, "turn")

    def turn(world: World, i: int) -> Iterator[Move]:
        if rules.known(world, i).phase is EpisodePhase.SEEDING:
            commands = (NoteSeeded(participant=AGENT, at=NOW), StartTurn(at=NOW))
            after = rules.carry_out(world, i, commands, "act", refused="fail")
            yield went(after, i, "starts the turn")
        else:
            yield went(world.with_worker(i, at="act"), i, "goes on with the turn")

    def act(world: World, i: int) -> Iterator[Move]:
        if rules.known(world, i).response is not None:
            yield went(world.with_worker(i, at="close agent"), i, "has the answer")
            return
        outside: Sessions = world.outside
        if outside.agent != OPEN:
            yield went(world.with_worker(i, at="fail"), i, "finds no agent")
            return
        if not outside.starts:
            began = world.with_outside(runs=True, starts=1)
            yield went(began.with_worker(i, at="answered"), i, "activates the agent")
            if world.faults:
                deaf = began.with_worker(i, at="fail")
                yield went(deaf, i, "hears nothing of it", calm=False)
        else:
            yield went(world.with_worker(i, at="answered"), i, "asks the agent again")

    def answered(world: World, i: int) -> Iterator[Move]:
        if world.outside.runs:
            return
        told = (EndTurn(response="{}", at=NOW),)
        after = rules.carry_out(world, i, told, "close agent", refused="fail")
        yield went(after, i, "writes the answer")

    def close_agent(world: World, i: int) -> Iterator[Move]:
        closed = world.with_outside(agent=CLOSED, runs=False)
        yield went(closed.with_worker(i, at="verify"), i, "closes the agent")
        if world.faults:
            failed = world.with_worker(i, at="fail")
            yield went(failed, i, "cannot close the agent", calm=False)

    def verify(world: World, i: int) -> Iterator[Move]:
        if rules.known(world, i).phase is EpisodePhase.ACTING:
            commands = (NoteClosed(participant=AGENT, at=NOW), StartVerifying(at=NOW))
            after = rules.carry_out(world, i, commands, "grade", refused="fail")
            yield went(after, i, "starts to verify")
        else:
            yield went(world.with_worker(i, at="grade"), i, "goes on verifying")

    def grade(world: World, i: int) -> Iterator[Move]:
        outside: Sessions = world.outside
        if outside.resources != OPEN:
            yield went(world.with_worker(i, at="fail"), i, "finds no resources")
            return
        if outside.runs or outside.agent == OPEN:
            world = world.with_outside(wrong="rule 5: it is graded while written to")
        graded = world.with_outside(gradings=1)
        yield went(graded.with_worker(i, at="verified"), i, "has it graded")
        if world.faults:
            deaf = graded.with_worker(i, at="fail")
            yield went(deaf, i, "hears nothing of the grade", calm=False)

    def verified(world: World, i: int) -> Iterator[Move]:
        told = (NoteVerified(result="{}", at=NOW),)
        after = rules.carry_out(world, i, told, "clean", refused="fail")
        yield went(after, i, "writes the result")

    def fail(world: World, i: int) -> Iterator[Move]:
        if rules.known(world, i).phase in _ENDED:
            yield went(world.with_worker(i, at="clean"), i, "has its end already")
            return
        failure = Failure(
            stage=Stage.SEED, kind=TRANSPORT_TIMEOUT, reason="", terminal=False
        )
        told = (Fail(failure=failure, at=NOW),)
        after = rules.carry_out(world, i, told, "clean", refused="clean")
        yield went(after, i, "writes the failure")

    def clean(world: World, i: int) -> Iterator[Move]:
        owed = rules.known(world, i).owed
        if not owed:
            done = (Finish(at=NOW),)
            after = rules.carry_out(world, i, done, "tell", refused=ANSWER)
            yield went(after, i, "is done")
            return
        who = owed[-1][0]
        closed = world.with_outside(**{str(who): CLOSED})
        if who is AGENT:
            closed = closed.with_outside(runs=False)
        note = (NoteClosed(participant=who, at=NOW),)
        after = rules.carry_out(closed, i, note, "clean", refused=ANSWER)
        yield went(after, i, f"closes the {who}")
        if world.faults:
            left = (NoteUnclosed(participant=who, reason="", at=NOW),)
            after = rules.carry_out(world, i, left, "clean", refused=ANSWER)
            yield went(after, i, f"cannot close the {who}", calm=False)

    def tell(world: World, i: int) -> Iterator[Move]:
        episode = rules.known(world, i)
        row = f"{episode.result} {episode.failure}"
        if world.outside.row not in ("", row):
            world = world.with_outside(wrong="rule 6: its row is another one")
        told = world.with_outside(row=row).with_worker(i, at=ANSWER)
        yield went(told, i, "tells the row")

    def orphan(world: World, i: int) -> Iterator[Move]:
        """Ask again for what a dead process left, as who resumes a run does."""
        episode = rules.of(world)
        left = episode.phase not in (EpisodePhase.ABSENT, EpisodePhase.DONE)
        if left and not world.lives(episode.holder):
            asked = str(episode.queued.request) if episode.queued else "run"
            yield went(world.with_worker(i, at="again", asked=asked), i, "resumes it")

    business = Business(
        requests=(("run", "run"), ("run", "run another")),
        last=(1, 1),
        steps={
            "run": run,
            "run another": run,
            "again": again,
            "seed resources": seed_resources,
            "owe agent": owe_agent,
            "seed agent": seed_agent,
            "turn": turn,
            "act": act,
            "answered": answered,
            "close agent": close_agent,
            "verify": verify,
            "grade": grade,
            "verified": verified,
            "fail": fail,
            "clean": clean,
            "tell": tell,
        },
        on_its_own=orphan,
    )

    def moves(world: World) -> Iterator[Move]:
        yield from business.moves(world)
        if world.outside.runs:
            yield Move("the harness ends", True, world.with_outside(runs=False))

    def broken(world: World) -> Iterator[str]:
        episode, outside = rules.of(world), world.outside
        if outside.wrong:
            yield outside.wrong
        if episode.result is not None and episode.failure is not None:
            yield "rule 6: it has a result and a failure"
        if episode.phase in _ENDED and (episode.result or episode.failure) is None:
            yield "rule 6: it has neither a result nor a failure"
        told = {who for who, _ in (*episode.owed, *episode.unclosed)}
        for who in (RESOURCES, AGENT):
            if getattr(outside, who) == OPEN and who not in told:
                yield f"rule 3: the {who} is open and forgotten"
        if [who for who, _ in episode.owed] not in (
            [],
            [RESOURCES],
            [RESOURCES, AGENT],
        ):
            yield "it owes in another order than it seeds"

    def at_rest(world: World) -> bool:
        over = rules.of(world).phase in (EpisodePhase.DONE, EpisodePhase.ABSENT)
        return over and not world.outside.runs and business.all_answered(world)

    return Model(
        name="episodes",
        beginning=World(
            state=initial, outside=Sessions(), crashes=crashes, faults=faults
        ),
        moves=moves,
        broken=broken,
        at_rest=at_rest,
    )
