# SPDX-License-Identifier: Apache-2.0
"""Holders live exactly as long as their processes."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from livery.adapters.holders.locked_files import open_locked_file_holders
from livery.domain.claims import Holder
from livery.ports.required.journal import JournalUnusable

pytestmark = pytest.mark.anyio

HOLD = """
import sys, pathlib
from livery.adapters.holders.locked_files import open_locked_file_holders
with open_locked_file_holders(pathlib.Path(sys.argv[1])) as holders:
    print(holders.own, flush=True)
    sys.stdin.read()
"""


async def test_this_process_lives_and_a_stranger_does_not(tmp_path: Path) -> None:
    with open_locked_file_holders(tmp_path / "holders") as holders:
        assert await holders.alive(holders.own)
        assert not await holders.alive(Holder("1-0123456789abcdef"))


async def test_whether_it_lives_cannot_be_told_without_a_descriptor(
    tmp_path: Path,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_locked_file_holders(tmp_path) as holders:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            with pytest.raises(JournalUnusable, match="Too many open files"):
                await holders.alive(Holder("1-0123456789abcdef"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with open_locked_file_holders(tmp_path) as holders:
        assert [path.name for path in tmp_path.iterdir()] == [holders.own]

    assert list(tmp_path.iterdir()) == []


@pytest.mark.case("FC-142")
async def test_a_killed_process_is_dead_at_once(tmp_path: Path) -> None:
    other = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdin is not None
    holder = Holder(other.stdout.readline().strip())
    with open_locked_file_holders(tmp_path) as holders:
        alive_before = await holders.alive(holder)
        other.kill()
        other.wait()
        alive_after = await holders.alive(holder)
    other.stdin.close()
    other.stdout.close()

    assert (alive_before, alive_after) == (True, False)
    assert list(tmp_path.iterdir()) == []
