# SPDX-License-Identifier: Apache-2.0
"""Each refusal and fault has a kind of its own, a text and an HTTP status."""

import string
from collections import Counter
from typing import TypeVar

import attrs
import pytest

from livery.domain.refusals import Refusal
from livery.entrypoints.http_statuses import (
    OTHER_FAULT,
    OTHER_REFUSAL,
    STATUSES,
    status_of,
)
from livery.ports.required.faults import Fault

from .tree import import_everything

Fact = TypeVar("Fact")
ALLOWED = {400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504, 507}
WORDS_MAX = 60

import_everything()


def below(kind: type[Fact]) -> list[type[Fact]]:
    """Return every subclass that the project itself declares."""
    found: dict[str, type[Fact]] = {}
    for child in kind.__subclasses__():
        for one in (child, *below(child)):
            if one.__module__.startswith("livery."):
                found[f"{one.__module__}.{one.__qualname__}"] = one
    return [found[name] for name in sorted(found)]


FACTS: list[type[Refusal] | type[Fault]] = [*below(Refusal), *below(Fault)]
each_fact = pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)


def test_kinds_are_distinct() -> None:
    counted = Counter(fact.kind for fact in FACTS)

    assert FACTS
    assert not {kind for kind, times in counted.items() if times > 1}


@each_fact
def test_a_fact_says_its_own_kind_and_message(
    fact: type[Refusal] | type[Fault],
) -> None:
    assert {"kind", "message"} <= set(vars(fact))
    assert fact.kind.isidentifier()
    assert fact.kind == fact.kind.lower()
    assert fact.message.endswith((".", "}"))


@each_fact
def test_the_placeholders_of_a_message_are_fields(
    fact: type[Refusal] | type[Fault],
) -> None:
    names = {
        name.partition(".")[0].partition("[")[0]
        for _, name, _, _ in string.Formatter().parse(fact.message)
        if name is not None
    }

    assert names <= {field.name for field in attrs.fields(fact)}


@each_fact
def test_a_fact_has_an_http_status(fact: type[Refusal] | type[Fault]) -> None:
    assert STATUSES.get(fact.kind) in ALLOWED


def test_a_status_stands_for_a_fact() -> None:
    assert set(STATUSES) == {fact.kind for fact in FACTS}


def test_a_plug_in_s_own_kind_has_the_status_of_what_it_is() -> None:
    class Elsewhere(Refusal):
        kind = "somebody_else_s"

    class Broken(Fault):
        kind = "somebody_else_s"

    assert status_of(Elsewhere()) == OTHER_REFUSAL
    assert status_of(Broken()) == OTHER_FAULT
