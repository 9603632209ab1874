# SPDX-License-Identifier: Apache-2.0
"""A session at a server on Docker, which is struck at each point: its client gets all.

The client asks the next server for the same, as callers do. The whole matrix is long;
each day has its part in the peers' tests.
"""

from pathlib import Path

import pytest

from .courses import (
    LIST_SERVED,
    Case,
    cases,
    check_served,
    differences,
    todays,
)
from .one_session import OneSession

pytestmark = pytest.mark.peer("docker")

A_DAY = 3
"""How many cases the peers' tests have in a day."""
CASES = cases(LIST_SERVED)


@pytest.fixture
def one(tmp_path: Path, test_image: str) -> OneSession:
    session = OneSession(folder=tmp_path, image=test_image)
    session.prepare()
    return session


def test_the_undisturbed_session_passes_the_points_that_are_listed(
    one: OneSession,
) -> None:
    served = one.serve()

    assert served.status == "completed"
    assert served.servers == 1
    assert (served.on_engine, served.still_open) == ((), ())
    renewed = "python -m tests.crash --write renews the list"
    assert differences(one.notes, LIST_SERVED) == (set(), set()), renewed


@pytest.mark.parametrize("share", range(A_DAY))
def test_todays_part(one: OneSession, share: int) -> None:
    case = todays(CASES, A_DAY)[share]
    print(f'python -m tests.crash served {case.fate} "{case.point}"')

    check_served(one, case)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_fate_at_each_point(one: OneSession, case: Case) -> None:
    check_served(one, case)
