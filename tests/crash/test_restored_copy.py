# SPDX-License-Identifier: Apache-2.0
"""The journal's file copied while in use, and put back after a kill.

A copy holds what was written when it was made. What came after it is found outside, by
the names that are derived from what it holds: the claim's sandbox, the supervisor's
record of the run. A run that it does not know of is never begun again under its
activation, and never scored.
"""

import shutil
from collections import Counter
from pathlib import Path

import attrs
import pytest

from .courses import UNDISTURBED, listed, todays
from .doomed_livery import COPIES, JOURNAL
from .forks import Forks
from .one_episode import OneEpisode

pytestmark = pytest.mark.peer("docker")

POINTS = listed()
COPIED_AT = [point for point in POINTS if point.startswith("after Journal.append")]
BUILT = "after Journal.append BuildStarted"
HELD = "after Journal.append ClaimHeld+ClaimLent"
GIVEN_BACK = "after SandboxProvider.destroy #2"
LAUNCHED = "after Sandbox.exec supervisor launch"
KILLED_AT = (
    LAUNCHED,
    "after Journal.append ActivationEnded",
    GIVEN_BACK,
    "before ResultLog.append",
)
"""The harness runs; has ended; its sandbox is gone; all is done but the row."""
A_DAY = 2
COURSES_MAX = 3


@attrs.frozen
class Copied:
    """A copy at one point, and a kill at the same or a later one."""

    copied: str
    killed: str

    def __str__(self) -> str:
        return f"{self.copied} | {self.killed}"

    @property
    def is_of_the_episode(self) -> bool:
        """Whether the copy knows the names of the episode's sessions and claim."""
        return POINTS.index(self.copied) >= POINTS.index(BUILT)

    @property
    def has_no_trace(self) -> bool:
        """Whether the sandbox came and went after the copy: nothing tells of it."""
        return POINTS.index(self.copied) < POINTS.index(HELD) and (
            POINTS.index(self.killed) >= POINTS.index(GIVEN_BACK)
        )


CASES = [
    Copied(copied, killed)
    for copied in COPIED_AT
    for killed in (copied, *KILLED_AT)
    if killed == copied or POINTS.index(copied) < POINTS.index(killed)
]


@pytest.fixture
def one(tmp_path: Path, test_image: str, forks: Forks) -> OneEpisode:
    episode = OneEpisode(folder=tmp_path, image=test_image, forks=forks)
    episode.prepare()
    return episode


def put_back(one: OneEpisode) -> None:
    """Do as an operator does: the copy in place of the journal, with all its files."""
    for file in one.state.glob("journal.sqlite*"):
        file.unlink()
    for name in JOURNAL:
        if (copied := one.state.parent / COPIES / name).exists():
            shutil.copyfile(copied, one.state / name)


def check_copied(one: OneEpisode, case: Copied) -> None:
    at_once = {case.copied: ["COPY", "KILL"]}
    later = {case.copied: ["COPY"], case.killed: ["KILL"]}
    first = one.begin(at_once if case.copied == case.killed else later)
    assert case.killed in one.notes, first.said
    put_back(one)
    said = [one.again().said]
    while len(said) < COURSES_MAX and not any(row["result"] for row in one.rows()):
        said.append(one.again().said)
    unknown = one.on_engine()
    reaped = one.reap() if unknown else None

    told = "\n".join((str(case), *said, *(() if reaped is None else (reaped.said,))))
    end, counted = one.end(), Counter(one.starts)
    assert end.graded == UNDISTURBED.graded, told
    assert (end.on_engine, end.still_open) == ((), ()), told
    if case.is_of_the_episode:
        assert set(counted.values()) == {2 if case.has_no_trace else 1}, told
        assert unknown == (), told
    else:
        # Of what the copy has no word of, the engine tells, and the reaper.
        assert max(counted.values()) <= 2, told
        assert len(unknown) <= 1, told
        assert reaped is None or "in no journal" in reaped.said


@pytest.mark.parametrize("share", range(A_DAY))
def test_todays_part(one: OneEpisode, share: int) -> None:
    case = todays(CASES, A_DAY)[share]
    print(case)

    check_copied(one, case)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_copy_put_back(one: OneEpisode, case: Copied) -> None:
    check_copied(one, case)
