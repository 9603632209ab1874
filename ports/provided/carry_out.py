# SPDX-License-Identifier: Apache-2.0
"""Carry out commands: read, decide, append, and again when another was first."""

from typing import Final, Generic, TypeVar

import attrs

from ...domain.deciders import Decider
from ...domain.refusals import Refusal
from ..required.journal import Journal, Stream, StreamMoved

ATTEMPTS_MAX: Final = 16

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")


@attrs.frozen
class Standing(Generic[State]):
    """What is known of a stream: its state as of a version."""

    state: State
    version: int


async def read_state(
    journal: Journal,
    stream: Stream[Event],
    decider: Decider[State, Command, Event],
    known: Standing[State] | None = None,
) -> Standing[State]:
    """Return the stream's state now; `known` saves reading what it covers."""
    version = 0 if known is None else known.version
    history = await journal.read(stream, after=version)
    if history.version < version:  # It was forgotten, and what was known with it.
        known, history = None, await journal.read(stream)
    state = decider.replay(history.events, None if known is None else known.state)
    return Standing(state, history.version)


async def read_most_likely_absent(
    journal: Journal,
    stream: Stream[Event],
    decider: Decider[State, Command, Event],
) -> Standing[State]:
    """Return the stream's state now, at little cost where there is none.

    An append of nothing says so, and goes to the disk with what others append; a read
    would be a turn of its own.
    """
    try:
        await journal.append(stream, (), expected_version=0)
    except StreamMoved:
        return await read_state(journal, stream, decider)
    return Standing(decider.initial, 0)


async def carry_out(
    journal: Journal,
    stream: Stream[Event],
    decider: Decider[State, Command, Event],
    *commands: Command,
    known: Standing[State] | None = None,
    attempts_max: int = ATTEMPTS_MAX,
) -> Standing[State]:
    """Carry out `commands` as one and return the state after them.

    `known` is tried without reading first: the version that goes with the append
    says whether it is still true, and what it would refuse is read before it is
    refused. What it says was done was done: facts stay. Commands that speak of what is
    known have one attempt: after another writer's they may be untrue.

    Raises:
        Refusal: A rule says no; nothing was written.
        StreamMoved: Other writers won every one of `attempts_max` races.
    """
    standing = known
    for attempt in range(1, attempts_max + 1):
        if standing is None:
            standing = await read_state(journal, stream, decider)
        try:
            return await _decide_and_append(
                journal, stream, decider, commands, standing
            )
        except Refusal:
            if standing is not known or attempt == attempts_max:
                raise
            standing = await read_state(journal, stream, decider, standing)
            known = None
        except StreamMoved:
            if attempt == attempts_max:
                raise
            standing = await read_state(journal, stream, decider, standing)
    raise AssertionError("the loop returns or raises")


async def carry_out_at_once(
    journal: Journal,
    stream: Stream[Event],
    decider: Decider[State, Command, Event],
    *commands: Command,
    known: Standing[State],
) -> Standing[State] | None:
    """Carry out `commands` as one where `known` is still true and allows them all.

    None: nothing was written, and whoever asks goes the long way.
    """
    try:
        return await _decide_and_append(journal, stream, decider, commands, known)
    except (Refusal, StreamMoved):
        return None


async def _decide_and_append(
    journal: Journal,
    stream: Stream[Event],
    decider: Decider[State, Command, Event],
    commands: tuple[Command, ...],
    standing: Standing[State],
) -> Standing[State]:
    events, state = decider.decide_all(standing.state, commands)
    if not events:
        return standing
    version = await journal.append(stream, events, expected_version=standing.version)
    return Standing(state, version)
