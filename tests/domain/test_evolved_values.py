# SPDX-License-Identifier: Apache-2.0
"""Evolved values are those that attrs makes, at less cost."""

import attrs
import pytest

from livery.domain.evolved_values import evolved


@attrs.frozen
class Horse:
    name: str
    _stall: int = 0
    age: int = attrs.field(default=1, validator=attrs.validators.ge(0))
    legs: int = attrs.field(default=4, init=False)


@pytest.mark.parametrize("changes", [{}, {"name": "b"}, {"stall": 3, "age": 0}])
def test_it_is_what_attrs_makes(changes: dict[str, object]) -> None:
    horse = Horse("a", 2)

    made = evolved(horse, **changes)  # type: ignore[arg-type]

    assert made == attrs.evolve(horse, **changes)  # type: ignore[arg-type]
    assert horse == Horse("a", 2)


def test_it_checks_and_refuses_as_attrs_does() -> None:
    with pytest.raises(ValueError, match="age"):
        evolved(Horse("a"), age=-1)
    with pytest.raises(TypeError, match="colour"):
        evolved(Horse("a"), colour="bay")  # type: ignore[call-arg]
