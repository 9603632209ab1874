# SPDX-License-Identifier: Apache-2.0
"""The cache: what somebody else could have put there is refused, never mended."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from livery.adapters.runtime_cache import (
    Digests,
    Entry,
    FileUntrusted,
    Leftover,
    Record,
    RuntimeCache,
    RuntimeCacheUnusable,
    cache_path,
    check_entry,
    open_packed,
)
from livery.ports.required.runtime_source import Packing

from .registry import GLIBC, NAME, VERSION, cache_in

pytestmark = pytest.mark.anyio
KEY = (NAME, VERSION, GLIBC)
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


async def fill(cache: RuntimeCache) -> Entry:
    """Make an entry with an empty program."""
    async with cache.locked(*KEY), cache.made(*KEY) as making:
        making.program("claude").touch(mode=0o555)
        making.packed("claude").touch(mode=0o600)
        making.record = Record(
            name=NAME,
            version=VERSION,
            platform=GLIBC,
            program="claude",
            size=0,
            sha256=EMPTY,
            packing=Packing.GZIP,
            packed_size=0,
            packed_sha256=EMPTY,
        )
    entry = cache.find(*KEY)
    assert entry is not None
    return entry


def test_its_place_is_the_users() -> None:
    assert cache_path({"XDG_CACHE_HOME": "/c"}) == Path("/c/livery/runtimes")
    for given in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_path(given) == Path.home() / ".cache" / "livery" / "runtimes"


async def test_an_entry_is_seen_when_it_is_whole(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)

    assert cache.find(*KEY) is None
    with anyio.CancelScope() as scope:
        async with cache.locked(*KEY), cache.made(*KEY) as making:
            making.program("claude").touch()
            assert cache.find(*KEY) is None
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert not list(cache.entries())

    entry = await fill(cache)

    assert list(cache.entries()) == [entry]
    await check_entry(entry, Digests())


def wider_root(cache: RuntimeCache, entry: Entry) -> None:
    cache.root.chmod(0o755)


def wider_home(cache: RuntimeCache, entry: Entry) -> None:
    cache.root.parent.chmod(0o750)


def wider_entry(cache: RuntimeCache, entry: Entry) -> None:
    entry.folder.chmod(0o711)


def linked_folder(cache: RuntimeCache, entry: Entry) -> None:
    entry.folder.rename(cache.root.parent.parent / "elsewhere")
    entry.folder.symlink_to(cache.root.parent.parent / "elsewhere")


def file_for_folder(cache: RuntimeCache, entry: Entry) -> None:
    entry.folder.rename(cache.root.parent.parent / "elsewhere")
    entry.folder.touch()


def wider_record(cache: RuntimeCache, entry: Entry) -> None:
    (entry.folder / "record.json").chmod(0o644)


def linked_record(cache: RuntimeCache, entry: Entry) -> None:
    record = entry.folder / "record.json"
    record.rename(cache.root / "record.json")
    record.symlink_to(cache.root / "record.json")


def pipe_for_record(cache: RuntimeCache, entry: Entry) -> None:
    (entry.folder / "record.json").unlink()
    os.mkfifo(entry.folder / "record.json", 0o600)


def another_record(cache: RuntimeCache, entry: Entry) -> None:
    change_record(entry, version="9.9.9")


def change_record(entry: Entry, **words: object) -> None:
    record = entry.folder / "record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), **words}))


ATTACKS = [
    wider_root,
    wider_home,
    wider_entry,
    linked_folder,
    file_for_folder,
    wider_record,
    linked_record,
    pipe_for_record,
    another_record,
]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_entry_that_another_could_have_made_is_refused(
    tmp_path: Path, attack: Callable[[RuntimeCache, Entry], None]
) -> None:
    cache = cache_in(tmp_path)
    entry = await fill(cache)

    attack(cache, entry)

    with pytest.raises(RuntimeCacheUnusable):
        cache.find(*KEY)


@pytest.mark.parametrize(
    "words",
    [
        {"layout": 2},
        {"size": "1"},
        {"sha256": None},
        {"program": "../../x"},
        {"program": ".x"},
        {"platform": "linux"},
        {"packing": "rar"},
    ],
)
async def test_a_record_that_says_something_else_is_damaged(
    tmp_path: Path, words: dict[str, object]
) -> None:
    cache = cache_in(tmp_path)
    entry = await fill(cache)

    change_record(entry, **words)

    with pytest.raises(RuntimeCacheUnusable, match="damaged"):
        cache.find(*KEY)
    (left,) = cache.entries()
    assert isinstance(left, Leftover)
    cache.remove(left)
    assert not list(cache.entries())


def linked(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to(path.with_name("other"))


def writable(path: Path) -> None:
    path.chmod(0o775)


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("attack", [linked, writable, gone])
@pytest.mark.parametrize("which", ["program", "packed"])
async def test_a_file_that_another_could_have_made_is_refused(
    tmp_path: Path, attack: Callable[[Path], None], which: str
) -> None:
    entry = await fill(cache_in(tmp_path))

    attack(entry.program if which == "program" else entry.packed)

    with pytest.raises(RuntimeCacheUnusable):
        await check_entry(entry, Digests())
    if which == "packed":
        with pytest.raises(RuntimeCacheUnusable):
            async with open_packed(entry):
                pass


@pytest.mark.peer("root")
@pytest.mark.parametrize("which", ["root", "folder", "program"])
async def test_what_belongs_to_another_is_refused(tmp_path: Path, which: str) -> None:
    cache = cache_in(tmp_path)
    entry = await fill(cache)
    path = {"root": cache.root, "folder": entry.folder, "program": entry.program}[which]

    os.chown(path, 12345, -1)

    async def use() -> None:
        found = cache.find(*KEY)
        assert found is not None
        await check_entry(found, Digests())

    with pytest.raises(RuntimeCacheUnusable, match="belongs to user 12345"):
        await use()


async def test_a_folder_of_locks_that_is_a_link_is_refused(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    await fill(cache)
    (cache.root / ".locks").rename(tmp_path / "locks")
    (cache.root / ".locks").symlink_to(tmp_path / "locks")

    with pytest.raises(RuntimeCacheUnusable, match="is a link"):
        async with cache.locked(*KEY):
            pass


async def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = RuntimeCache(tmp_path / "file" / "livery" / "runtimes")

    with pytest.raises(RuntimeCacheUnusable):
        async with cache.locked(*KEY):
            pass


async def test_one_at_a_time_makes_an_entry(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    inside: list[int] = []

    async def make() -> None:
        async with cache.locked(*KEY):
            inside.append(1)
            assert sum(inside) == 1
            await anyio.lowlevel.checkpoint()
            inside.append(-1)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(make)

    assert len(inside) == 10


HOLD = """
import sys, anyio
from pathlib import Path
from livery.adapters.runtime_cache import RuntimeCache
from livery.domain.runtimes import Platform
async def hold():
    cache = RuntimeCache(Path(sys.argv[1]))
    key = (sys.argv[2], sys.argv[3], Platform(system="linux", machine="x86_64", libc="glibc"))
    async with cache.locked(*key), cache.made(*key) as making:
        making.program("claude").touch()
        print("holds", flush=True)
        await anyio.sleep_forever()
anyio.run(hold)
"""


def started(words: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(words, stdout=subprocess.PIPE)


async def test_a_killed_process_lets_go_and_leaves_nothing_that_counts(
    tmp_path: Path,
) -> None:
    cache = cache_in(tmp_path)
    words = [sys.executable, "-c", HOLD, str(cache.root), NAME, VERSION]
    with started(words) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"holds\n"

        (making,) = cache.entries()
        with anyio.move_on_after(0.1) as waited:
            async with cache.locked(*KEY):
                pass
        other.send_signal(signal.SIGKILL)
        other.wait()
    (left,) = cache.entries()
    found = cache.find(*KEY)
    entry = await fill(cache)

    assert isinstance(making, Leftover)
    assert making.goes_on
    assert waited.cancelled_caught
    assert isinstance(left, Leftover)
    assert not left.goes_on
    assert found is None
    assert list(cache.entries()) == [entry]


async def test_what_a_cut_off_removal_left_is_a_leftover(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    await fill(cache)
    (cache.root / ".part-gone-12").mkdir(mode=0o700)

    left = [one for one in cache.entries() if isinstance(one, Leftover)]

    assert [one.reason for one in left] == ["its removal was cut off"]


async def test_a_removal_that_fails_is_told(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    entry = await fill(cache)
    cache.remove(entry)

    with pytest.raises(RuntimeCacheUnusable):
        cache.remove(entry)


async def test_digests_are_remembered_for_so_many_files(tmp_path: Path) -> None:
    digests = Digests(most=1)
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.write_bytes(b"x")

    for path in (first, first, second, second, first):
        await digests.of(path, own=True)

    assert digests.reads == 3


async def test_only_a_file_has_a_digest(tmp_path: Path) -> None:
    with pytest.raises(FileUntrusted, match="is not a file"):
        await Digests().of(tmp_path, own=False)
