# SPDX-License-Identifier: Apache-2.0
"""What is asked of an episode that met its fate at a point, and of its second course."""

import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs

from .effects import EFFECTS
from .one_episode import End, OneEpisode
from .one_session import OneSession

C = TypeVar("C")

LIST: Final = Path(__file__).with_name("points.txt")
LIST_SERVED: Final = Path(__file__).with_name("points_served.txt")
FATES: Final = ("KILL", "TERM", "INT")
DAY_SECONDS: Final = 86_400
UNDISTURBED: Final = End(
    graded=(("0", 1.0, False, None, "completed", ("done\n",)),),
    starts_of_one=(1,),
    on_engine=(),
    still_open=(),
)

NOT_PASSED: Final[Mapping[str, str]] = {
    "AppWorld": "a world with apps has a server of its own, and its own tests",
    "Apps": "a world with apps has a server of its own, and its own tests",
    "Agent": "in one process these are calls, and what they do has points of its own",
    "Engine.kill": "only a container that resists its removal is killed",
    "Engine.pause": "nothing is frozen in this episode",
    "Engine.pull": "the image is there",
    "Engine.put_archive": "only files of a megabyte and more go that way",
    "Engine.unpause": "nothing is frozen in this episode",
    "FreezingProvider": "nothing is frozen in this episode",
    "HostRun": "the harness runs in the sandbox, not on this host",
    "ModelAccess": "the harness has no model",
    "Resources": "in one process these are calls, and what they do has points of its own",
    "RuntimeSource": "the harness needs no program",
    "StreamingSandbox": "only a relay attaches streams, and this harness has no model",
}
"""Effects that neither course has, by protocol or method, and why."""


AfterKill = Callable[[OneEpisode], None]
"""What happens between a kill and the second course, by itself or by time."""


@attrs.frozen
class Case:
    """One fate at one point."""

    fate: str
    point: str

    def __str__(self) -> str:
        return f"{self.fate} {self.point}"


def listed(path: Path = LIST) -> list[str]:
    """Return the points of an undisturbed course, as they are written down."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def cases(path: Path = LIST) -> list[Case]:
    """Return the whole matrix."""
    return [Case(fate, point) for fate in FATES for point in listed(path)]


def todays(all_cases: Sequence[C], count: int, day: int | None = None) -> list[C]:
    """Return those whose day it is; in as many days as it takes, each has one."""
    shuffled = random.Random(0).sample(all_cases, len(all_cases))
    day = int(time.time()) // DAY_SECONDS if day is None else day
    return [shuffled[(day * count + n) % len(shuffled)] for n in range(count)]


def differences(passed: Sequence[str], path: Path = LIST) -> tuple[set[str], set[str]]:
    """Return which listed points were not passed, and which others were.

    An engine that is slow is asked more often to end a container; that is no other.
    """
    known = set(listed(path))
    others = {
        point
        for point in set(passed) - known
        if not effect_of(point).startswith("Engine.")
        or point.partition(" #")[0] not in known
    }
    return known - set(passed), others


def effect_of(point: str) -> str:
    """Return which effect a point is around."""
    return point.split()[1]


def reasoned(effect: str) -> bool:
    """Whether it is said why the episode does not have the effect."""
    return effect in NOT_PASSED or effect.partition(".")[0] in NOT_PASSED


def unpassed(points: Sequence[str]) -> set[str]:
    """Return the effects that none of the points is around."""
    return set(EFFECTS) - {effect_of(point) for point in points}


def check(one: OneEpisode, case: Case, after_kill: AfterKill | None = None) -> None:
    """Have the episode meet its fate, begin again, and hold its end against the rules."""
    first = one.begin({case.point: [case.fate]})
    passed, starts = one.notes, len(one.starts)
    assert case.point in passed, f"{case} was never passed: {first.said}"
    if case.fate == "KILL":
        assert first.status == -signal.SIGKILL, first.said
        if after_kill is not None:
            after_kill(one)
    else:
        assert first.status in (0, 1), first.said
        assert "Traceback" not in first.said, first.said
        assert one.on_engine() == (), "it ended in order, and something is left"
    second = one.again()

    told = f"{case}, {starts} started\n{first.said}\n{second.said}"
    assert second.status == 0, told
    assert one.end() == UNDISTURBED, told
    if case.fate == "KILL":
        assert len(one.starts) == 1, told


def check_served(one: OneSession, case: Case) -> None:
    """Have a server meet its fate under a session, and hold what its client got."""
    served = one.serve({case.point: [case.fate]})

    told = f"{case}, {len(one.starts)} started\n{one.said}"
    assert case.point in one.notes, told
    if case.fate == "KILL":
        assert served.servers > 1, told
    assert "Traceback" not in told, told
    assert (served.on_engine, served.still_open) == ((), ()), told
    assert served.last_status == 0, told
    answers = (served.seeded, *served.activated, *served.closed)
    told += "".join(f"\n{each.status_code} {each.text}" for each in answers)
    assert {answer.status_code for answer in answers} == {200}, told
    assert served.activated[0].content == served.activated[1].content, told
    assert served.closed[0].content == served.closed[1].content, told
    if served.status == "completed":
        assert one.starts == ["start"], told
        assert "done" in served.activated[0].text, told
    else:
        # Killed between the intent and the launch, or stopped: it is told so. One that
        # was stopped before the run has given the sandbox back.
        stopped = case.fate != "KILL" and "given back" in served.activated[0].text
        assert served.status == ("failed" if stopped else "cancelled"), told
        assert len(one.starts) <= (0 if case.fate == "KILL" else 1), told
