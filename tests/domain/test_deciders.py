# SPDX-License-Identifier: Apache-2.0
"""Deciders: tables that know every fact, and phases that all lead to the end."""

from enum import StrEnum
from types import ModuleType
from typing import Any, get_args

import attrs
import pytest

from livery.domain import (
    activations,
    admissions,
    agent_sessions,
    claims,
    episodes,
    resources_sessions,
    runtimes,
)
from livery.domain.deciders import Instant, may_follow, next_phase
from livery.domain.refusals import Refusal

from .deciding import after

WITH_A_TABLE = (agent_sessions, claims, episodes, resources_sessions, runtimes)
WITHOUT_ONE = (activations, admissions)
BEGINNING = "absent"
ENDS = {
    agent_sessions: "closed",
    claims: "released",
    episodes: "done",
    resources_sessions: "closed",
    runtimes: "installed",
}


def events_of(module: ModuleType) -> set[type]:
    return set(get_args(module.Event))


def short(module: ModuleType) -> str:
    return module.__name__.rsplit(".", 1)[-1]


def reached(module: ModuleType, start: StrEnum) -> set[StrEnum]:
    """Return the phases that can come after `start`, itself included."""
    found, before = {start}, set[StrEnum]()
    while found != before:
        before = set(found)
        found |= {to for (at, _), to in module.TRANSITIONS.items() if at in before}
    return found


def phases_of(module: ModuleType) -> type[StrEnum]:
    (phases,) = {type(phase) for phase in module.TRANSITIONS.values()}
    return phases


@pytest.mark.parametrize("module", WITH_A_TABLE, ids=short)
def test_the_table_knows_every_fact_and_no_other(module: ModuleType) -> None:
    assert {event for _, event in module.TRANSITIONS} == events_of(module)


@pytest.mark.parametrize("module", WITH_A_TABLE, ids=short)
def test_every_phase_can_be_reached(module: ModuleType) -> None:
    phases = phases_of(module)

    assert reached(module, phases(BEGINNING)) == set(phases)


@pytest.mark.parametrize("module", WITH_A_TABLE, ids=short)
def test_the_end_can_be_reached_from_every_phase(module: ModuleType) -> None:
    phases = phases_of(module)

    for phase in phases:
        assert phases(ENDS[module]) in reached(module, phase)


@pytest.mark.parametrize("module", WITH_A_TABLE, ids=short)
def test_a_fact_that_the_table_does_not_know_cannot_happen(module: ModuleType) -> None:
    phases = phases_of(module)
    first = next(iter(module.TRANSITIONS))[1]
    fact = object.__new__(first)

    assert not may_follow(module.TRANSITIONS, phases(ENDS[module]), first)
    with pytest.raises(AssertionError):
        next_phase(module.TRANSITIONS, phases(ENDS[module]), fact)


@pytest.mark.parametrize("module", [*WITH_A_TABLE, *WITHOUT_ONE], ids=short)
def test_commands_and_facts_are_frozen_and_carry_their_moment(
    module: ModuleType,
) -> None:
    for kind in (*get_args(module.Command), *events_of(module)):
        assert "at" in attrs.fields_dict(kind), kind
        assert kind.__attrs_attrs__
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            object.__new__(kind).at = 0.0


@pytest.mark.parametrize("module", [*WITH_A_TABLE, *WITHOUT_ONE], ids=short)
def test_commands_and_facts_have_names_of_their_own(module: ModuleType) -> None:
    commands = {kind.__name__ for kind in get_args(module.Command)}
    facts = {kind.__name__ for kind in events_of(module)}

    assert not commands & facts


def test_several_commands_are_decided_as_one_or_not_at_all() -> None:
    at = Instant(0.0)
    room = after(admissions.DECIDER, admissions.SetCapacity(places=1, at=at))
    good = admissions.Join(ticket=admissions.Ticket("a"), patience_seconds=1, at=at)
    bad: Any = attrs.evolve(good, ticket=admissions.Ticket("b"), places=9)

    events, state = admissions.DECIDER.decide_all(room, (good, good))
    with pytest.raises(Refusal):
        admissions.DECIDER.decide_all(room, (good, bad))

    assert admissions.DECIDER.replay(events, room) == state
    assert admissions.DECIDER.decide_all(room, ()) == ((), room)
