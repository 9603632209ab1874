# SPDX-License-Identifier: Apache-2.0
"""A resources session in a small world: built, graded once, and given back.

The steps are those of `ResourcesSessions`; the two workers are processes that share
nothing but the stream. Outside is the world's sandbox, in which a harness writes.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from livery.domain.activations import Stillness
from livery.domain.claims import ClaimId
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.resources_sessions import (
    DECIDER,
    AbandonBuild,
    CloseResources,
    FailResourcesClose,
    FailVerification,
    GiveVerdict,
    MarkBuilt,
    NoteProviderFailure,
    ResourcesPhase,
    ResourcesSessionId,
    SeedResources,
    StartResourcesClose,
    StartVerification,
)
from livery.domain.tasks import EpisodeId

from .walk import Model
from .worlds import ANSWER, Business, Move, Rules, World, went

NOW: Final = Instant(0.0)
EPISODE: Final = EpisodeId("e", 0)
ABSENT: Final = "absent"
LIVE: Final = "live"
GONE: Final = "gone"
_STAGES: Final = ("build", "mark built", "abandon")


class Ground(NamedTuple):
    """The world's sandbox."""

    sandbox: str = ABSENT
    """Its claim is named by the session, so there is one, ever."""
    written: bool = False
    """Whether a harness may still write there."""
    grading: int = 0
    verdict: str = ""
    """What was first told."""
    wrong: str = ""


def model(*, crashes: int, faults: int) -> Model:
    """Return the world with so many crashes and faults."""
    rules = Rules(DECIDER)
    initial = rules.number(DECIDER.initial)

    def seed(world: World, i: int) -> Iterator[Move]:
        asked = SeedResources(
            session=ResourcesSessionId("r"),
            episode=EPISODE,
            request=RequestDigest(world.workers[i].asked),
            at=NOW,
        )
        after = rules.carry_out(world, i, (asked,), "build", refused=ANSWER, anew=True)
        yield went(after, i, "writes the seed")

    def build(world: World, i: int) -> Iterator[Move]:
        phase = rules.known(world, i).phase
        outside: Ground = world.outside
        if outside.sandbox == GONE:
            at = "abandon" if phase is ResourcesPhase.SEEDING else ANSWER
            yield went(world.with_worker(i, at=at), i, "finds its claim released")
            return
        if phase is ResourcesPhase.CLOSED:
            yield went(world.with_worker(i, at=ANSWER), i, "finds it closed")
            return
        built = world.with_outside(sandbox=LIVE)
        if phase is ResourcesPhase.SEEDING:
            yield went(built.with_worker(i, at="mark built"), i, "builds the world")
            if world.faults:
                undone = world.with_outside(sandbox=GONE).with_worker(i, at="abandon")
                yield went(undone, i, "builds it in vain", calm=False)
                kept = built.with_worker(i, at="abandon")
                yield went(kept, i, "builds it and cannot undo it", calm=False)
        else:
            yield went(world.with_worker(i, at=ANSWER), i, "finds it built")

    def mark_built(world: World, i: int) -> Iterator[Move]:
        told = (MarkBuilt(claim=ClaimId("r"), at=NOW),)
        after = rules.carry_out(world, i, told, ANSWER, refused=ANSWER)
        if rules.known(after, i).phase is ResourcesPhase.READY:
            after = after.with_outside(written=True)
        yield went(after, i, "writes that it is built")

    def abandon(world: World, i: int) -> Iterator[Move]:
        told = (AbandonBuild(reason="", at=NOW),)
        after = rules.carry_out(world, i, told, ANSWER, refused=ANSWER)
        yield went(after, i, "gives the build up")

    def verify(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "verify")
        seen = None if world.outside.written else Stillness.PROCESSES_SEEN_DEAD
        asked = StartVerification(
            request=RequestDigest(world.workers[i].asked), stillness=seen, at=NOW
        )
        after = rules.carry_out(fresh, i, (asked,), "grade", refused=ANSWER)
        if rules.known(after, i).verdict is not None:
            after = after.with_worker(i, at="tell")
        yield went(after, i, "starts to grade")

    def grade(world: World, i: int) -> Iterator[Move]:
        if world.outside.written:
            world = world.with_outside(wrong="rule 5: it is graded while written to")
        yield went(world.with_worker(i, at="give verdict"), i, "grades it")
        if world.faults:
            failed = world.with_worker(i, at=ANSWER)
            yield went(failed, i, "cannot grade it", calm=False)
            told = (FailVerification(reason="", at=NOW),)
            given_up = rules.carry_out(world, i, told, ANSWER, refused=ANSWER)
            yield went(given_up, i, "gives the grading up", calm=False)

    def give_verdict(world: World, i: int) -> Iterator[Move]:
        told = (GiveVerdict(reply=f"by {world.holder(i)}", at=NOW),)
        after = rules.carry_out(world, i, told, "tell", refused=ANSWER)
        yield went(after, i, "writes the verdict")

    def tell(world: World, i: int) -> Iterator[Move]:
        verdict = rules.known(world, i).verdict
        assert verdict is not None, "it was just given"
        if world.outside.verdict not in ("", verdict):
            world = world.with_outside(wrong="rule 6: two verdicts were told")
        told = world.with_outside(verdict=verdict).with_worker(i, at=ANSWER)
        yield went(told, i, "tells the verdict")

    def call(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, ANSWER)
        yield went(fresh, i, "lets a call through")
        if world.faults:
            told = (NoteProviderFailure(reason=f"by {i}", at=NOW),)
            after = rules.carry_out(fresh, i, told, ANSWER, refused=ANSWER)
            yield went(after, i, "notes that the provider failed", calm=False)

    def close(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "close")
        start = (StartResourcesClose(episode=EPISODE, at=NOW),)
        after = rules.carry_out(fresh, i, start, "close it", refused=ANSWER)
        if rules.known(after, i).phase is ResourcesPhase.CLOSING:
            after = after.with_worker(i, at="give back")
        yield went(after, i, "starts the close")

    def give_back(world: World, i: int) -> Iterator[Move]:
        gone = world.with_outside(sandbox=GONE, written=False)
        yield went(gone.with_worker(i, at="close it"), i, "gives the sandbox back")
        if world.faults:
            told = (FailResourcesClose(reason="", at=NOW),)
            failed = rules.carry_out(world, i, told, "close", refused=ANSWER)
            yield went(failed, i, "cannot give it back", calm=False)

    def close_it(world: World, i: int) -> Iterator[Move]:
        told = (CloseResources(episode=EPISODE, at=NOW),)
        after = rules.carry_out(world, i, told, ANSWER, refused=ANSWER, moved="close")
        yield went(after, i, "writes that nothing is left")

    def reap(world: World, i: int) -> Iterator[Move]:
        """End what no session will: that of a build that was given up."""
        over = rules.of(world).phase in (ResourcesPhase.ABSENT, ResourcesPhase.CLOSED)
        if over and world.outside.sandbox == LIVE and not _building(world):
            yield went(world.with_outside(sandbox=GONE), i, "reaps the sandbox")

    business = Business(
        requests=(
            ("seed", "call", "verify", "close"),
            ("seed", "verify", "verify another", "close"),
        ),
        last=(3, 3),
        steps={
            "seed": seed,
            "build": build,
            "mark built": mark_built,
            "abandon": abandon,
            "verify": verify,
            "verify another": verify,
            "grade": grade,
            "give verdict": give_verdict,
            "tell": tell,
            "call": call,
            "close": close,
            "give back": give_back,
            "close it": close_it,
        },
        on_its_own=reap,
    )

    def moves(world: World) -> Iterator[Move]:
        yield from business.moves(world)
        if world.outside.written:
            still = world.with_outside(written=False)
            yield Move("the harness is seen dead", True, still)

    def broken(world: World) -> Iterator[str]:
        session, outside = rules.of(world), world.outside
        if outside.wrong:
            yield outside.wrong
        if session.verdict is not None and session.verification is None:
            yield "rule 5: a verdict was given without a grading"
        if (
            session.phase is ResourcesPhase.CLOSED
            and outside.sandbox == LIVE
            and session.claim is not None
        ):
            yield "rule 3: it is closed and its sandbox is not gone"

    def at_rest(world: World) -> bool:
        over = rules.of(world).phase in (ResourcesPhase.CLOSED, ResourcesPhase.ABSENT)
        return over and world.outside.sandbox != LIVE and business.all_answered(world)

    return Model(
        name="resources_sessions",
        beginning=World(
            state=initial, outside=Ground(), crashes=crashes, faults=faults
        ),
        moves=moves,
        broken=broken,
        at_rest=at_rest,
    )


def _building(world: World) -> bool:
    return any(worker.at in _STAGES for worker in world.workers)
