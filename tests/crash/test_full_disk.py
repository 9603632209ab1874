# SPDX-License-Identifier: Apache-2.0
"""The journal's disk is full at one write: the user is told, and making room is enough.

Nothing starts without its intent, and what had started is found again.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..journals.disks import small_disk
from .courses import UNDISTURBED, Case, listed, todays
from .doomed_livery import FILLER
from .forks import Forks
from .one_episode import OneEpisode

pytestmark = [pytest.mark.peer("docker"), pytest.mark.peer("root")]

WRITES = [point for point in listed() if point.startswith("before Journal.append")]
CASES = [Case("FULL", point) for point in WRITES]
INTENT = "before Journal.append ActivationStarted"
A_DAY = 1
DISK_MEBIBYTES = 16


@pytest.fixture
def one(tmp_path: Path, test_image: str, forks: Forks) -> Iterator[OneEpisode]:
    with small_disk(tmp_path / "disk", mebibytes=DISK_MEBIBYTES) as disk:
        episode = OneEpisode(folder=tmp_path, image=test_image, forks=forks, disk=disk)
        episode.prepare()
        yield episode


def check_full(one: OneEpisode, point: str) -> None:
    first = one.begin({point: ["FULL"]})
    assert point in one.notes, first.said
    assert first.status == (1 if (one.out / "run.json").exists() else 2), first.said
    assert "the disk is full" in first.said
    assert "Make room" in first.said
    assert "Traceback" not in first.said
    if WRITES.index(point) <= WRITES.index(INTENT):
        assert one.starts == [], "it started, and nothing says so"
    assert one.disk is not None
    (one.disk / FILLER).unlink()
    second = one.again()

    told = f"{point}\n{first.said}\n{second.said}"
    assert second.status == 0, told
    assert one.end() == UNDISTURBED, told


@pytest.mark.parametrize("share", range(A_DAY))
def test_todays_part(one: OneEpisode, share: int) -> None:
    case = todays(CASES, A_DAY)[share]
    print(case)

    check_full(one, case.point)


@pytest.mark.long
@pytest.mark.parametrize("point", WRITES)
def test_a_full_disk_at_each_write_of_the_journal(one: OneEpisode, point: str) -> None:
    check_full(one, point)
