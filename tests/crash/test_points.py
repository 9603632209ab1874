# SPDX-License-Identifier: Apache-2.0
"""Every effect that the code declares has its points, and every point has its day."""

from pathlib import Path

import attrs
import pytest

from .courses import (
    LIST,
    LIST_SERVED,
    NOT_PASSED,
    cases,
    differences,
    effect_of,
    listed,
    reasoned,
    todays,
    unpassed,
)
from .effects import EFFECTS, NO_EFFECTS, declared
from .points import Course

pytestmark = pytest.mark.anyio


def test_every_method_of_a_required_port_is_an_effect_or_is_said_to_be_none() -> None:
    found, told = set(declared()), {*EFFECTS, *NO_EFFECTS}

    assert found - told == set(), "an effect without a point: name it in effects.py"
    assert told - found == set(), "no longer in the code"
    assert not set(EFFECTS) & set(NO_EFFECTS)


def test_an_effect_that_no_course_has_is_said_to_be_so() -> None:
    passed = [*listed(LIST), *listed(LIST_SERVED)]

    absent = unpassed(passed)

    assert {effect for effect in absent if not reasoned(effect)} == set()
    present = {effect_of(point) for point in passed}
    stale = [
        name
        for name in NOT_PASSED
        if any(one == name or one.startswith(f"{name}.") for one in present)
    ]
    assert stale == [], "a course has it after all"


@pytest.mark.parametrize("path", [LIST, LIST_SERVED], ids=lambda path: path.stem)
def test_there_is_a_point_before_and_after_each(path: Path) -> None:
    points = set(listed(path))
    ports = {point.partition(" ")[2] for point in points if "file." not in point}
    without = [one for one in ports if f"before {one}" not in points]

    assert without == []
    # A write that another was first with is refused, and tried again from what stands.
    refused = {one for one in ports if f"after {one}" not in points}
    assert all("Journal.append" in one for one in refused), refused


def test_a_point_that_comes_or_goes_is_told_and_a_slow_engine_is_not() -> None:
    first, *others = listed()
    more = ["before Engine.remove #9", "before Engine.kill", "after Sandbox.exec cat"]

    missing, new = differences([*others, *more])

    assert missing == {first}
    assert new == {"before Engine.kill", "after Sandbox.exec cat"}


def test_each_case_has_its_day() -> None:
    every, count = cases(), 7
    days = -(-len(every) // count)

    drawn = {case for day in range(days) for case in todays(every, count, day)}

    assert drawn == set(every)
    assert todays(every, count, 3) == todays(every, count, 3)


@attrs.define
class Wheel:
    """Something with an effect."""

    turns: int = 0

    async def append(self, stream: object, events: tuple[object, ...]) -> int:
        if not events:
            raise ValueError("nothing")
        self.turns += 1
        return self.turns


async def test_a_point_is_passed_before_and_after_and_the_second_has_a_number() -> None:
    passed: list[str] = []
    course = Course(note=passed.append)
    append = course.around(Wheel.append, "Journal.append")
    wheel = Wheel()

    answers = [
        await append(wheel, "s", events=(1, "a")),
        await append(wheel, "s", (1,)),
    ]
    with pytest.raises(ValueError, match="nothing"):
        await append(wheel, "s", ())

    assert answers == [1, 2]
    assert passed == [
        "before Journal.append int+str",
        "after Journal.append int+str",
        "before Journal.append int",
        "after Journal.append int",
        "before Journal.append",
    ]


async def test_fate_strikes_at_its_point_and_once() -> None:
    passed: list[str] = []
    course = Course(
        note=passed.append,
        fates={"after Journal.append int #2": [lambda: passed.append("fate")]},
    )
    append = course.around(Wheel.append, "Journal.append")

    for _ in range(3):
        await append(Wheel(), "s", (1,))

    assert passed.index("fate") == passed.index("after Journal.append int #2") + 1
    assert passed.count("fate") == 1
