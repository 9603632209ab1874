# SPDX-License-Identifier: Apache-2.0
"""Admission in a small world: every command, for three tickets, while time goes on.

A ticket joins, perhaps again since its reply was lost, waits, is admitted and leaves;
one whose process died leaves late. The cap moves, and admission is shut at some time.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from livery.domain.admissions import (
    DECIDER,
    OVERTAKEN_MAX,
    Command,
    Join,
    Keep,
    Leave,
    SetCapacity,
    Shut,
    Tick,
    Ticket,
)
from livery.domain.deciders import Instant
from livery.domain.refusals import Refusal

from .walk import Model
from .worlds import Move, Rules, World

PLACES: Final = {Ticket("a"): 1, Ticket("b"): 2, Ticket("c"): 1}
PATIENCES: Final = (0.0, 2.0)
CAPACITIES: Final = (1, 2, 3)
CLOCK_MAX: Final = 2


class Room(NamedTuple):
    """What was seen beside the state."""

    capacity_moves: int = 1
    """How often the cap may still be moved."""
    inside_at_shut: frozenset[str] | None = None
    """Who was inside when admission was shut."""
    wrong: str = ""


def model(*, crashes: int, faults: int) -> Model:
    """Return the world with so many restarts and lost replies."""
    rules = Rules(DECIDER)
    start = SetCapacity(places=2, at=Instant(0.0))
    beginning = rules.decided(rules.number(DECIDER.initial), (start,))
    assert not isinstance(beginning, Refusal), "there is room to begin with"

    def after(world: World, command: Command) -> World:
        made = rules.decided(world.state, (command,))
        if isinstance(made, Refusal):
            return world
        before, now = rules.of(world), rules.states[made]
        room: Room = world.outside
        inside = frozenset(str(ticket) for ticket in now.admitted)
        wrong = room.wrong
        if room.inside_at_shut is not None and not inside <= room.inside_at_shut:
            wrong = "rule 8: somebody was admitted after the shut"
        taken = sum(now.admitted.values())
        came = sum(not before.holds(ticket) for ticket in now.admitted)
        if came and taken > now.capacity and not isinstance(command, Keep):
            wrong = "more were admitted than there is room for"
        passed = {waiting.ticket: waiting.overtaken for waiting in before.waiting}
        for waiting in now.waiting:
            known = passed.get(waiting.ticket, 0)
            enough = known >= OVERTAKEN_MAX and waiting.places <= now.capacity
            if enough and waiting.overtaken > known:
                wrong = "somebody is passed for ever"
        changed = world.with_outside(wrong=wrong)
        if now.shut and room.inside_at_shut is None:
            changed = changed.with_outside(inside_at_shut=inside)
        return changed._replace(state=made)

    def moves(world: World) -> Iterator[Move]:
        at, admission = Instant(world.clock), rules.of(world)
        known = {w.ticket for w in admission.waiting} | set(admission.admitted)
        for ticket, places in PLACES.items():
            if ticket in known:
                leave = Leave(ticket=ticket, at=at)
                yield Move(f"{ticket} leaves", True, after(world, leave))
                if world.faults:
                    again = Join(
                        ticket=ticket, patience_seconds=1.0, places=places, at=at
                    )
                    spent = world._replace(faults=world.faults - 1)
                    yield Move(f"{ticket} joins again", False, after(spent, again))
            else:
                for patience in PATIENCES:
                    join = Join(
                        ticket=ticket, patience_seconds=patience, places=places, at=at
                    )
                    yield Move(
                        f"{ticket} joins for {patience}", True, after(world, join)
                    )
                if world.crashes:
                    keep = Keep(ticket=ticket, places=places, at=at)
                    spent = world._replace(crashes=world.crashes - 1)
                    yield Move(f"{ticket} is kept", False, after(spent, keep))
        if world.outside.capacity_moves:
            fewer = world.with_outside(capacity_moves=world.outside.capacity_moves - 1)
            for places in CAPACITIES:
                cap = SetCapacity(places=places, at=at)
                yield Move(f"the cap is {places}", True, after(fewer, cap))
        yield Move("admission is shut", True, after(world, Shut(at=at)))
        if world.clock < CLOCK_MAX:
            later = world._replace(clock=world.clock + 1)
            tick = Tick(at=Instant(later.clock))
            yield Move("the clock goes on", True, after(later, tick))

    def broken(world: World) -> Iterator[str]:
        admission, room = rules.of(world), world.outside
        if room.wrong:
            yield room.wrong
        if admission.shut and admission.waiting:
            yield "rule 8: somebody waits although it is shut"
        tickets = [w.ticket for w in admission.waiting]
        tickets += admission.admitted
        if len(tickets) != len(set(tickets)):
            yield "rule 10: a ticket stands twice"
        if any(waiting.until <= world.clock for waiting in admission.waiting):
            yield "somebody waits longer than it would"
        if admission.waiting and admission.waiting[0].places <= admission.free:
            yield "the first waits although there is room"

    def at_rest(world: World) -> bool:
        return not rules.of(world).waiting and not rules.of(world).admitted

    return Model(
        name="admissions",
        beginning=World(
            state=beginning, outside=Room(), crashes=crashes, faults=faults
        ),
        moves=moves,
        broken=broken,
        at_rest=at_rest,
    )
