# SPDX-License-Identifier: Apache-2.0
"""The state folder is its user's alone, and its owner id never changes."""

import concurrent.futures
import os
import stat
from pathlib import Path

import pytest

from livery.entrypoints.state_folder import (
    StateFolderUnusable,
    open_state_folder,
    state_path,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_owner_and_the_secret_are_made_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "livery"

    first = open_state_folder(path)
    again = open_state_folder(path)

    assert first == again
    assert first.owner.startswith("owner-")
    assert first.secret not in repr(first)
    assert mode(path) == 0o700
    assert {mode(path / name) for name in ("owner", "secret")} == {0o600}
    assert sorted(os.listdir(path)) == ["owner", "secret"]


def test_many_who_come_at_once_get_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "livery"

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(open_state_folder, [path] * 32))

    assert len(set(opened)) == 1


def test_an_open_folder_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "livery"
    open_state_folder(path)
    path.chmod(0o755)
    (path / "secret").chmod(0o644)

    open_state_folder(path)

    assert mode(path) == 0o700
    assert mode(path / "secret") == 0o600


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    damaged = tmp_path / "damaged"
    open_state_folder(damaged)

    with pytest.raises(StateFolderUnusable, match="File exists"):
        open_state_folder(taken)
    with pytest.raises(StateFolderUnusable, match="Not a directory"):
        open_state_folder(taken / "below")
    for content in (b"not/a name\n", b"", b"\xff\xfe\n"):
        (damaged / "owner").write_bytes(content)
        with pytest.raises(StateFolderUnusable, match="its file owner is damaged"):
            open_state_folder(damaged)
    with pytest.raises(StateFolderUnusable, match="no such home folder"):
        state_path("~nobody-of-that-name/livery")


@pytest.mark.peer("root")
def test_a_folder_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "livery"
    path.mkdir()
    os.chown(path, 12345, 12345)

    with pytest.raises(StateFolderUnusable, match="belongs to user 12345"):
        open_state_folder(path)


def test_the_place_is_chosen_in_this_order(tmp_path: Path) -> None:
    home = Path.home() / ".local" / "state" / "livery"

    assert state_path(tmp_path, {"XDG_STATE_HOME": "/x"}) == tmp_path
    assert state_path(None, {"XDG_STATE_HOME": "/x"}) == Path("/x/livery")
    assert state_path(None, {"XDG_STATE_HOME": "relative"}) == home
    assert state_path(None, {}) == home
    assert state_path("here", {}) == Path.cwd() / "here"
