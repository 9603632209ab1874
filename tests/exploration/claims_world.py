# SPDX-License-Identifier: Apache-2.0
"""Claims in a small world: one claim is made, lent, lost, released and reaped.

The steps are those of `ClaimSandbox`, `ReleaseClaim` and `ReapClaims`. Outside is a
provider: at most one sandbox lives under the claim's name at a time, which can come
late, die, or run out of time.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from livery.domain.claims import (
    DECIDER,
    Borrower,
    Claim,
    ClaimId,
    ClaimPhase,
    Doubt,
    HandBack,
    Hold,
    Lend,
    NoteExpired,
    NoteLost,
    NoteReleased,
    NoteReleaseFailed,
    OwnerId,
    RequestClaim,
    SpecDigest,
    StartCreation,
    StartRelease,
    TakeOver,
)
from livery.domain.deciders import Instant

from .walk import Model
from .worlds import ANSWER, IDLE, NOBODY, Business, Move, Rules, World, went

NONE: Final = -1
LIFETIME: Final = 2
"""In ticks of the clock, which goes on that often as well."""
NOW: Final = Instant(0.0)
"""Where the moment makes no difference to what may follow."""


class Provider(NamedTuple):
    """What is there of the claim's sandboxes."""

    live: int = NONE
    """Which one lives, by its number."""
    made: int = 0
    expires: int = 0
    coming: bool = False
    """Whether one is on its way that nobody waits for."""
    held: int = NONE
    """The first that was written down as the claim's."""
    wrong: str = ""
    """What was done against the rules."""


def model(*, crashes: int, faults: int) -> Model:
    """Return the world with so many crashes and faults."""
    rules = Rules(DECIDER)
    initial = rules.number(DECIDER.initial)

    def request(world: World, i: int) -> RequestClaim:
        return RequestClaim(
            claim=ClaimId("c"),
            owner=OwnerId("o"),
            provider="p",
            spec=SpecDigest("s"),
            used_by="e",
            holder=world.holder(i),
            at=NOW,
        )

    def use(world: World, i: int) -> Iterator[Move]:
        commands = (request(world, i), StartCreation(at=NOW))
        after = rules.carry_out(
            world, i, commands, "make", refused="use again", anew=True
        )
        yield went(after, i, "requests")

    def use_again(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "use again")
        commands = (request(world, i), TakeOver(holder=world.holder(i), at=NOW))
        after = rules.carry_out(fresh, i, commands, "make", refused=ANSWER)
        yield went(after, i, "requests again")

    def make(world: World, i: int) -> Iterator[Move]:
        phase = rules.known(world, i).phase
        if phase in (ClaimPhase.HELD, ClaimPhase.LENT):
            yield went(world.with_worker(i, at="find"), i, "finds it held")
        elif phase is ClaimPhase.REQUESTED:
            start = (StartCreation(at=NOW),)
            after = rules.carry_out(world, i, start, "create", refused="release")
            yield went(after, i, "writes the intent")
        elif phase in (ClaimPhase.CREATING, ClaimPhase.IN_DOUBT):
            yield went(world.with_worker(i, at="create"), i, "goes on making")
        else:
            yield went(world.with_worker(i, at=ANSWER), i, f"is told {phase}")

    def find(world: World, i: int) -> Iterator[Move]:
        named = rules.known(world, i).sandbox
        outside: Provider = world.outside
        if outside.live != NONE and named == f"box-{outside.live}":
            yield went(world.with_worker(i, at="held"), i, "finds it")
        else:
            lost = (NoteLost(reason="", at=NOW),)
            after = rules.carry_out(world, i, lost, ANSWER, refused=ANSWER)
            yield went(after, i, "finds it lost")
        if world.faults:
            failed = world.with_worker(i, at=ANSWER)
            yield went(failed, i, "cannot look", calm=False)

    def made(world: World) -> World:
        outside: Provider = world.outside
        if outside.live != NONE:
            return world
        return world.with_outside(
            live=outside.made, made=outside.made + 1, expires=world.clock + LIFETIME
        )

    def create(world: World, i: int) -> Iterator[Move]:
        if rules.of(world).phase in (ClaimPhase.ABSENT, ClaimPhase.REQUESTED):
            world = world.with_outside(wrong="rule 3: it is made without an intent")
        after = made(world)
        held = after.with_worker(i, at="hold", has=(after.outside.live, after.clock))
        yield went(held, i, "makes it")
        if world.faults:
            undo = world.with_worker(i, at="release")
            yield went(undo, i, "asks for it in vain", calm=False)
            doubt = (Doubt(reason="", at=NOW),)
            doubted = rules.carry_out(after, i, doubt, "make", refused="release")
            yield went(doubted, i, "hears nothing of making it", calm=False)
            late = world.with_outside(coming=True).with_worker(i, at="release")
            yield went(late, i, "asks for it, and it will come late", calm=False)

    def hold(world: World, i: int) -> Iterator[Move]:
        number, since = world.workers[i].has
        outside: Provider = world.outside
        commands = (
            Hold(
                sandbox=f"box-{number}",
                expires_at=Instant(outside.expires)
                if outside.live == number
                else Instant(since + LIFETIME),
                at=Instant(world.clock),
            ),
            Lend(borrower=Borrower("episode"), at=NOW),
        )
        after = rules.carry_out(world, i, commands, "held", refused="release")
        if after.outside.held == NONE and rules.of(after).sandbox is not None:
            after = after.with_outside(held=number)
        yield went(after.with_worker(i, has=None), i, "writes that it is held")

    def held(world: World, i: int) -> Iterator[Move]:
        unwanted = world.workers[i].serves == NOBODY
        at = "release" if unwanted else ANSWER
        yield went(world.with_worker(i, at=at), i, "has it held")

    def release(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "release")
        if not rules.known(fresh, i).open:
            yield went(fresh.with_worker(i, at=ANSWER), i, "has nothing to release")
            return
        start = (StartRelease(reason="", at=NOW),)
        after = rules.carry_out(fresh, i, start, "destroy", refused=ANSWER)
        yield went(after, i, "starts the release")

    def destroy(world: World, i: int) -> Iterator[Move]:
        if rules.of(world).phase not in (ClaimPhase.RELEASING, ClaimPhase.RELEASED):
            world = world.with_outside(wrong="rule 4: it is ended while in use")
        ended = world.with_outside(live=NONE)
        yield went(ended.with_worker(i, at="released"), i, "sees it gone")
        if world.faults:
            failed = world.with_worker(i, at="not released")
            yield went(failed, i, "asks for its end in vain", calm=False)
            ended = ended.with_worker(i, at="not released")
            yield went(ended, i, "hears nothing of its end", calm=False)

    def released(world: World, i: int) -> Iterator[Move]:
        gone = (NoteReleased(at=NOW),)
        after = rules.carry_out(world, i, gone, ANSWER, refused=ANSWER)
        yield went(after, i, "writes that it is gone")

    def not_released(world: World, i: int) -> Iterator[Move]:
        failed = (NoteReleaseFailed(reason="", at=NOW),)
        if rules.known(world, i).release_attempts > faults:
            yield went(world.with_worker(i, at=ANSWER), i, "gives up")
            return
        after = rules.carry_out(world, i, failed, ANSWER, refused=ANSWER)
        yield went(after, i, "writes that it is not gone")

    def borrowing(shared: bool) -> tuple[Lend]:
        return (Lend(borrower=Borrower("visitor"), shared=shared, at=NOW),)

    def lend(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "lend")
        for shared in (False, True):
            after = rules.carry_out(fresh, i, borrowing(shared), ANSWER, refused=ANSWER)
            yield went(after, i, f"lends it, shared: {shared}")

    def hand_back(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "hand back")
        for borrower in ("episode", "visitor"):
            back = (HandBack(borrower=Borrower(borrower), at=NOW),)
            after = rules.carry_out(fresh, i, back, ANSWER, refused=ANSWER)
            yield went(after, i, f"takes it back from {borrower}")

    def look(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "look")
        over = (NoteExpired(at=Instant(world.clock)),)
        after = rules.carry_out(fresh, i, over, ANSWER, refused=ANSWER)
        yield went(after, i, "looks whether it is expired")

    def reap(world: World, i: int) -> Iterator[Move]:
        claim = rules.of(world)
        dead = claim.open and not _is_used(world, claim)
        stray = world.outside.live != NONE and not claim.open
        if dead or stray:
            listed = world.with_worker(i, at="reap", has=world.outside.live)
            yield went(listed, i, "lists what the provider has")

    def reap_on(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "reap")
        claim = rules.known(fresh, i)
        if claim.open:
            kept = _is_used(world, claim)
            at = IDLE if kept else "release"
            yield went(_rested(fresh, i, at), i, f"is to {at} it")
        elif fresh.workers[i].has != NONE:
            ended = _rested(fresh.with_outside(live=NONE), i, IDLE)
            yield went(ended, i, "ends a sandbox without a claim")
        else:
            yield went(_rested(fresh, i, IDLE), i, "finds nothing")

    business = Business(
        requests=(("use", "hand back", "release"), ("lend", "look", "hand back")),
        last=(2, 2),
        steps={
            "use": use,
            "use again": use_again,
            "make": make,
            "find": find,
            "create": create,
            "hold": hold,
            "held": held,
            "release": release,
            "destroy": destroy,
            "released": released,
            "not released": not_released,
            "lend": lend,
            "hand back": hand_back,
            "look": look,
            "reap": reap_on,
        },
        on_its_own=reap,
        clock_max=LIFETIME,
    )

    def moves(world: World) -> Iterator[Move]:
        yield from business.moves(world)
        outside: Provider = world.outside
        if outside.coming:
            yield Move(
                "a sandbox comes late", True, made(world).with_outside(coming=False)
            )
        if outside.live != NONE:
            ended = world.with_outside(live=NONE)
            if world.clock >= outside.expires:
                yield Move("the sandbox's time is over", True, ended)
            if world.faults:
                died = ended._replace(faults=world.faults - 1)
                yield Move("the sandbox dies", False, died)

    def broken(world: World) -> Iterator[str]:
        claim, outside = rules.of(world), world.outside
        if outside.wrong:
            yield outside.wrong
        if claim.sandbox not in (None, f"box-{outside.held}"):
            yield "rule 2: the claim has a second sandbox"
        if outside.live != NONE and claim.requested is None:
            yield "rule 3: a sandbox belongs to nobody"
        if claim.phase is ClaimPhase.RELEASED and outside.live == outside.held != NONE:
            yield "rule 3: it is called released and lives"
        lent = (ClaimPhase.LENT, ClaimPhase.LOST, ClaimPhase.EXPIRED)
        if claim.borrowers and claim.phase not in lent:
            yield f"rule 4: it is borrowed while {claim.phase}"

    def at_rest(world: World) -> bool:
        gone = world.outside.live == NONE and not world.outside.coming
        return gone and not rules.of(world).open and business.all_answered(world)

    return Model(
        name="claims",
        beginning=World(
            state=initial, outside=Provider(), crashes=crashes, faults=faults
        ),
        moves=moves,
        broken=broken,
        at_rest=at_rest,
    )


def _is_used(world: World, claim: Claim) -> bool:
    return world.lives(claim.holder) and not claim.release_attempts


def _rested(world: World, index: int, at: str) -> World:
    if at == IDLE:
        return world.with_worker(index, at=IDLE, known=-1, fresh=False, has=None)
    return world.with_worker(index, at=at, has=None)
