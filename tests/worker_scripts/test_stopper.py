# SPDX-License-Identifier: Apache-2.0
"""What only counts the sandbox's time is left; whoever only looks like it is not."""

import pytest

from livery.adapters.worker_scripts.stopper import FIRST, is_pulse


def test_the_first_process_s_own_sleep_is_left() -> None:
    assert is_pulse(b"sleep", FIRST, FIRST)


@pytest.mark.parametrize(
    ("program", "parent", "session"),
    [
        (b"sleep", FIRST, 43),  # An agent's, whose parent has ended.
        (b"sleep", 43, FIRST),
        (b"evil", FIRST, FIRST),
    ],
    ids=["of another session", "of another parent", "another program"],
)
def test_every_other_process_is_ended(
    program: bytes, parent: int, session: int
) -> None:
    assert not is_pulse(program, parent, session)
