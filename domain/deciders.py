# SPDX-License-Identifier: Apache-2.0
"""Deciders: small state machines as two functions and a table.

`decide(state, command)` returns what happens next, in facts, or raises a typed
refusal; `evolve(state, event)` returns the state after a fact. Neither waits,
reads a clock or rolls dice. Which fact may follow in which phase is data: a
table from phase and kind of fact to the next phase, from which docs/ draws its
diagrams. A fact that the table does not know cannot happen, so `evolve` asserts.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Generic, NewType, TypeVar

import attrs

Instant = NewType("Instant", float)
"""A moment in Unix seconds. It comes in with the command."""

Phase = TypeVar("Phase", bound=StrEnum)
State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")

Table = Mapping[tuple[Phase, type], Phase]


@attrs.frozen
class Decider(Generic[State, Command, Event]):
    """An aggregate's rules, for a shell that knows nothing else of it."""

    initial: State
    decide: Callable[[State, Command], tuple[Event, ...]]
    evolve: Callable[[State, Event], State]

    def replay(self, events: Iterable[Event], state: State | None = None) -> State:
        """Return the state after `events`, starting at `state` or the beginning."""
        current = self.initial if state is None else state
        for event in events:
            current = self.evolve(current, event)
        return current

    def decide_all(
        self, state: State, commands: Iterable[Command]
    ) -> tuple[tuple[Event, ...], State]:
        """Decide several commands in order, as one: all facts, or a refusal."""
        happened: tuple[Event, ...] = ()
        for command in commands:
            events = self.decide(state, command)
            happened += events
            state = self.replay(events, state)
        return happened, state


def next_phase(table: Table[Phase], phase: Phase, event: object) -> Phase:
    """Return the phase after `event`, which the table must know."""
    following = table.get((phase, type(event)))
    assert following is not None, f"{type(event).__name__} cannot follow {phase}"
    return following


def may_follow(table: Table[Phase], phase: Phase, event: type) -> bool:
    """Whether a fact of this kind can happen in this phase."""
    return (phase, event) in table


__all__ = [
    "Command",
    "Decider",
    "Event",
    "Instant",
    "Phase",
    "State",
    "Table",
    "may_follow",
    "next_phase",
]
