# SPDX-License-Identifier: Apache-2.0
"""A runtime in a small world: two processes bring one program into one sandbox.

Each stages under a name of its own, looks at what it staged, and renames what was
verified. A copy can be cut short or wrong, and a stager can die at any step: then the
other one gives its staging up for it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from livery.domain.deciders import Instant
from livery.domain.runtimes import (
    DECIDER,
    AbandonStaging,
    Install,
    Platform,
    Runtime,
    RuntimePhase,
    Stager,
    StagingUnderWay,
    StartStaging,
    Verify,
)

from .walk import Model
from .worlds import ANSWER, Business, Move, Rules, World, went

NOW: Final = Instant(0.0)
NONE: Final = ""
GOOD: Final = "good"
BAD: Final = "bad"


class Files(NamedTuple):
    """What lies in the sandbox."""

    staged: frozenset[tuple[str, str]] = frozenset()
    """Files that are not in use: whose, and of what kind."""
    final: str = NONE
    wrong: str = ""


def model(*, crashes: int, faults: int) -> Model:
    """Return the world with so many crashes and faults."""
    rules = Rules(DECIDER)
    initial = rules.number(DECIDER.initial)
    runtimes = {
        "install": _runtime(GOOD),
        "install another": _runtime("another"),
    }

    def stager(world: World, i: int) -> Stager:
        return Stager(world.holder(i))

    def start(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "start")
        asked = StartStaging(
            runtime=runtimes[world.workers[i].asked], stager=stager(world, i), at=NOW
        )

        after = rules.carry_out(
            fresh,
            i,
            (asked,),
            "stage",
            refused=lambda no: "wait" if isinstance(no, StagingUnderWay) else ANSWER,
        )
        if rules.known(after, i).phase is RuntimePhase.INSTALLED:
            after = after.with_worker(i, at=ANSWER)
        yield went(after, i, "starts to stage")

    def wait(world: World, i: int) -> Iterator[Move]:
        fresh = rules.read(world, i, "start")
        known = rules.known(fresh, i)
        if known.stager is None or known.stager == stager(world, i):
            yield went(fresh, i, "looks again")
        elif not any(stager(world, j) == known.stager for j in range(2)):
            left = (AbandonStaging(stager=known.stager, reason="", at=NOW),)
            cleared = _without(fresh, known.stager)
            after = rules.carry_out(cleared, i, left, "start", refused="start")
            yield went(after, i, "gives a dead one's staging up")

    def stage(world: World, i: int) -> Iterator[Move]:
        mine = stager(world, i)
        wanted = runtimes[world.workers[i].asked].sha256
        kinds = [(wanted, True)] + ([(BAD, False)] if world.faults else [])
        for kind, calm in kinds:
            staged = _without(world, mine)
            staged = staged.with_outside(staged=staged.outside.staged | {(mine, kind)})
            yield went(
                staged.with_worker(i, at="look"), i, f"stages a {kind} one", calm=calm
            )
        if world.faults:
            gave = world.with_worker(i, at="abandon")
            yield went(gave, i, "cannot stage it", calm=False)

    def look(world: World, i: int) -> Iterator[Move]:
        mine = stager(world, i)
        found = dict(world.outside.staged).get(mine, NONE)
        told = (Verify(stager=mine, sha256=found, version="1", at=NOW),)
        after = rules.carry_out(world, i, told, "rename", refused="abandon")
        if rules.known(after, i).phase is RuntimePhase.ABSENT:
            after = _without(after, mine).with_worker(i, at=ANSWER)
        yield went(after, i, "looks at what it staged")

    def rename(world: World, i: int) -> Iterator[Move]:
        mine = stager(world, i)
        if rules.known(world, i).phase is RuntimePhase.INSTALLED:
            yield went(_without(world, mine).with_worker(i, at=ANSWER), i, "finds it")
            return
        found = dict(world.outside.staged).get(mine, NONE)
        renamed = _without(world, mine).with_outside(final=found or world.outside.final)
        yield went(renamed.with_worker(i, at="install it"), i, "renames it")
        if world.faults:
            deaf = renamed.with_worker(i, at="install it")
            yield went(deaf, i, "renames it and hears nothing", calm=False)
            lost = world.with_worker(i, at="abandon")
            yield went(lost, i, "cannot rename it", calm=False)

    def install(world: World, i: int) -> Iterator[Move]:
        told = (Install(stager=stager(world, i), path="/p", at=NOW),)
        after = rules.carry_out(world, i, told, ANSWER, refused="abandon")
        yield went(after, i, "writes that it is installed")

    def abandon(world: World, i: int) -> Iterator[Move]:
        mine = stager(world, i)
        told = (AbandonStaging(stager=mine, reason="", at=NOW),)
        after = rules.carry_out(_without(world, mine), i, told, ANSWER, refused=ANSWER)
        yield went(after, i, "gives its staging up")

    def sweep(world: World, i: int) -> Iterator[Move]:
        """Clear what dead processes left: nobody else does."""
        known = rules.of(world)
        staging = known.phase in (RuntimePhase.STAGING, RuntimePhase.VERIFIED)
        if staging and not any(stager(world, j) == known.stager for j in range(2)):
            asked = world.with_worker(i, at="wait", asked="install")
            yield went(asked, i, "looks for what dead ones left")

    business = Business(
        requests=(
            ("install", "install", "install"),
            ("install", "install another", "install"),
        ),
        last=(2, 2),
        steps={
            "install": start,
            "install another": start,
            "start": start,
            "wait": wait,
            "stage": stage,
            "look": look,
            "rename": rename,
            "install it": install,
            "abandon": abandon,
        },
        on_its_own=sweep,
    )

    def broken(world: World) -> Iterator[str]:
        known, files = rules.of(world), world.outside
        if files.final == BAD:
            yield "what was not verified can be run"
        if known.phase is RuntimePhase.INSTALLED:
            assert known.runtime is not None, "what is installed is known"
            if files.final != known.runtime.sha256:
                yield "another program stands under the name than is written"
        if known.phase is RuntimePhase.VERIFIED and files.final == NONE:
            assert known.runtime is not None, "what was verified is known"
            kinds = dict(files.staged)
            alive = any(stager(world, i) == known.stager for i in range(2))
            if alive and kinds.get(str(known.stager)) not in (
                NONE,
                known.runtime.sha256,
            ):
                yield "what is called verified is another file"

    def at_rest(world: World) -> bool:
        settled = rules.of(world).phase in (
            RuntimePhase.ABSENT,
            RuntimePhase.INSTALLED,
        )
        return settled and business.all_answered(world)

    return Model(
        name="runtimes",
        beginning=World(state=initial, outside=Files(), crashes=crashes, faults=faults),
        moves=business.moves,
        broken=broken,
        at_rest=at_rest,
    )


def _runtime(sha256: str) -> Runtime:
    return Runtime(
        name="harness",
        version="1",
        platform=Platform(system="linux", machine="x86_64", libc="glibc"),
        sha256=sha256,
    )


def _without(world: World, stager: str) -> World:
    staged: frozenset[tuple[str, str]] = world.outside.staged
    return world.with_outside(staged=frozenset(s for s in staged if s[0] != stager))
