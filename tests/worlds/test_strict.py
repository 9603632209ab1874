# SPDX-License-Identifier: Apache-2.0
"""Strict reading: nothing becomes what it is not, and mistakes have paths."""

import math
from typing import Any

import attrs
import pytest

from livery.adapters.worlds.strict import (
    Mistaken,
    shown,
    strict_converter,
    structured,
    to_number,
)

CONVERTER = strict_converter()


@attrs.frozen
class Inner:
    flag: bool


@attrs.frozen
class Outer:
    word: str
    count: int
    share: float
    inner: tuple[Inner, ...] = ()


GOOD = {"word": "w", "count": 1, "share": 2}


def mistakes(**fields: Any) -> dict[str, str]:
    with pytest.raises(Mistaken) as caught:
        structured(CONVERTER, {**GOOD, **fields}, Outer, "root")
    return dict(caught.value.found)


def test_what_is_right_is_read() -> None:
    found = structured(CONVERTER, {**GOOD, "inner": [{"flag": True}]}, Outer, "root")

    assert found == Outer(word="w", count=1, share=2.0, inner=(Inner(flag=True),))
    assert type(found.share) is float


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("word", 1),
        ("word", None),
        ("word", ["w"]),
        ("count", "1"),
        ("count", 1.0),
        ("count", True),
        ("share", "1.5"),
        ("share", False),
        ("share", math.nan),
        ("share", math.inf),
        ("share", 10**400),
        ("inner", [{"flag": 1}]),
        ("inner", [{"flag": "true"}]),
        ("inner", ["flag"]),
    ],
)
def test_a_value_of_another_kind_is_told_at_its_place(field: str, value: Any) -> None:
    ((path, text),) = mistakes(**{field: value}).items()

    assert path.startswith(f"root.{field}")
    assert "must be" in text


def test_mistakes_in_a_list_have_their_place_in_it() -> None:
    found = mistakes(inner=[{"flag": True}, {"flag": 0}, {}, {"flag": True, "x": 1}])

    assert found.keys() == {
        "root.inner[1].flag",
        "root.inner[2].flag",
        "root.inner[3].x",
    }


def test_mistakes_can_be_read_as_one_text() -> None:
    mistaken = Mistaken([("a", "is wrong"), ("b.c", "missing")])

    assert str(mistaken) == "a: is wrong; b.c: missing"


def test_a_fault_in_reading_is_not_taken_for_a_mistake() -> None:
    converter = strict_converter()
    converter.register_structure_hook(Inner, lambda value, _: value / 0)

    with pytest.raises(ZeroDivisionError):
        structured(converter, {**GOOD, "inner": [1]}, Outer, "root")


def test_a_long_value_is_shown_in_part() -> None:
    assert shown("x" * 1000).endswith("… (1002 characters)")
    assert shown({"a": 1}) == "an object"
    assert shown([1]) == "a list"
    with pytest.raises(ValueError, match="must be seconds"):
        to_number(None, "seconds")
