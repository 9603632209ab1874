# SPDX-License-Identifier: Apache-2.0
"""What is kept of an output: its first half, its last half, its true size."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.worker_scripts.capture import Capture
from livery.adapters.worker_scripts.spool import Spool, join, kept_of

feeds = st.lists(st.binary(max_size=50), max_size=40)
bounds = st.integers(0, 60)


def expected(whole: bytes, bytes_max: int) -> tuple[bytes, bytes]:
    head_max, tail_max = (bytes_max + 1) // 2, bytes_max // 2
    rest = whole[head_max:]
    return whole[:head_max], rest[max(0, len(rest) - tail_max) :]


@given(feeds, bounds)
def test_memory_keeps_both_halves(fed: list[bytes], bytes_max: int) -> None:
    capture = Capture(bytes_max)

    for piece in fed:
        capture.feed(piece)

    whole = b"".join(fed)
    head, tail = (bytes(part) for part in capture.kept())
    assert (head, tail) == expected(whole, bytes_max)
    assert capture.size == len(whole)


@given(feeds, bounds)
def test_disk_keeps_both_halves(fed: list[bytes], bytes_max: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stdout")
        spool = Spool(path, bytes_max)

        for piece in fed:
            spool.feed(piece)
        on_disk = sum(entry.stat().st_size for entry in os.scandir(folder))
        spool.close()
        kept = join(path, bytes_max)

        whole = b"".join(fed)
        head, tail = expected(whole, bytes_max)
        assert Path(path).read_bytes() == head + tail
        assert kept == (len(head), len(tail))
        assert spool.size == len(whole)
        assert on_disk <= bytes_max * 3 // 2 + 1
        assert os.listdir(folder) == ["stdout"]
        assert join(path, bytes_max) == kept


def test_many_small_pieces_stay_within_twice_the_bound() -> None:
    capture = Capture(1000)

    for _ in range(100_000):
        capture.feed(b"x")

    held = sum(part.obj.__sizeof__() for part in capture.kept())  # type: ignore[union-attr]
    assert held < 4000


def test_what_was_cut_off_while_joining_is_joined_again(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    spool = Spool(str(path), 10)
    spool.feed(b"0123456789abcdefghij")
    spool.close()
    (tmp_path / "stdout.part").write_bytes(b"01")

    kept = join(str(path), 10)

    assert path.read_bytes() == b"01234fghij"
    assert kept == (5, 5)
    assert os.listdir(tmp_path) == ["stdout"]


def test_a_disk_that_is_full_is_noted_and_counting_goes_on(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "stdout"), 10_000)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), spool._file)

    spool.feed(b"lost")
    spool.feed(b"more")
    spool.close()

    assert spool.fault == os.strerror(28)
    assert spool.size == 8
    assert join(str(tmp_path / "stdout"), 10_000) == (0, 0)


def test_a_disk_without_room_for_both_keeps_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    spool = Spool(str(path), 10)
    spool.feed(b"0123456789abcdefghij")
    spool.close()
    (tmp_path / "stdout.part").symlink_to("/dev/full")

    kept = join(str(path), 10)

    assert kept == (5, 0)
    assert path.read_bytes() == b"01234"
    assert os.listdir(tmp_path) == ["stdout"]


@pytest.mark.parametrize("present", [True, False])
def test_joining_what_is_joined_or_never_was_changes_nothing(
    tmp_path: Path, present: bool
) -> None:
    path = tmp_path / "stdout"
    if present:
        path.write_bytes(b"01234")

    assert join(str(path), 100) == ((5, 0) if present else (0, 0))


@pytest.mark.parametrize("name", ["out", "out.head", "out.tail.000000004"])
@pytest.mark.parametrize(
    "plant",
    [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)],
    ids=["a pipe", "a folder", "a link"],
)
def test_what_the_command_put_in_the_place_of_a_part_is_told_and_not_opened(
    tmp_path: Path, name: str, plant: Callable[[Path], None]
) -> None:
    spool = Spool(str(tmp_path / "out"), 8)
    spool.feed(b"beginning and end")
    spool.close()
    (tmp_path / name).unlink(missing_ok=True)
    plant(tmp_path / name)

    kept, fault = kept_of(str(tmp_path / "out"), 8)

    assert kept == (0, 0)
    assert fault == "what stands where it was kept is no file"
