# SPDX-License-Identifier: Apache-2.0
"""The folder of artifacts: whole or not at all, ours alone, and honest about damage."""

import json
import os
import random
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livery.adapters.artifacts import FolderArtifactStore
from livery.adapters.artifacts.shelf_folder import PART, STALE_SECONDS
from livery.ports.required.artifact_store import (
    ArtifactDamaged,
    ArtifactStoreUnusable,
    Reader,
    Shelf,
)

from ..journals.disks import small_disk
from ..journals.rights import obeyed
from .doomed_putter import NAMES, digest_of

pytestmark = pytest.mark.anyio

SHELF = Shelf("episode-1")
DOOMED = Path(__file__).with_name("doomed_putter.py")
ROUNDS = 4
LIFE_SECONDS_MAX = 0.4
PATIENCE_SECONDS = 60.0


async def chunks(*content: bytes) -> AsyncIterator[bytes]:
    for each in content:
        yield each


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65_536


async def content_of(store: FolderArtifactStore, name: str) -> bytes:
    async with store.get(SHELF, name, reader=Reader.OPERATOR) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_an_artifact_is_a_file_that_a_person_finds(tmp_path: Path) -> None:
    store = FolderArtifactStore(tmp_path / "artifacts")

    await store.put(SHELF, "grader.stdout", chunks(b"passed\n"))

    file = tmp_path / "artifacts" / "episode-1" / "grader.stdout"
    assert file.read_bytes() == b"passed\n"


async def test_artifacts_are_for_their_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await FolderArtifactStore(tmp_path / "root").put(SHELF, "it", chunks(b"x"))
    finally:
        os.umask(before)

    modes = {
        stat.S_IMODE(path.stat().st_mode): path.is_dir()
        for path in (tmp_path / "root").rglob("*")
    }
    assert modes == {0o700: True, 0o600: False}
    assert stat.S_IMODE((tmp_path / "root").stat().st_mode) == 0o700


@pytest.mark.case("FC-069")
async def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    store = FolderArtifactStore(tmp_path / "root")
    odd = ("..", ".", "../../up", "/abs", "..\\up", ".shelf.json", ".lock", "a/../../b")

    for name in odd:
        await store.put(Shelf(name), name, chunks(name.encode()))

    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    assert len(list((tmp_path / "root").iterdir())) == len(odd)
    for name in odd:
        (artifact,) = await store.list(Shelf(name))
        assert artifact.name == name


async def test_names_that_a_disk_may_take_for_one_get_two_files(
    tmp_path: Path,
) -> None:
    store = FolderArtifactStore(tmp_path)
    names = ("readme", "README", "ReadMe", "readmE")

    for _ in range(3):
        for name in names:
            await store.put(SHELF, name, chunks(name.encode()))

    files = [path.name for path in (tmp_path / SHELF).iterdir()]
    assert len({file.casefold() for file in files if file[0] != "."}) == len(names)
    for name in names:
        assert await content_of(store, name) == name.encode()


async def test_a_full_disk_is_told_and_leaves_what_was(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        store = FolderArtifactStore(disk / "artifacts")
        before = await store.put(SHELF, "old", chunks(b"old"))

        for name in ("old", "new"):
            with pytest.raises(ArtifactStoreUnusable, match="the disk is full"):
                await store.put(SHELF, name, endless())

        assert await store.list(SHELF) == (before,)
        assert await content_of(store, "old") == b"old"
        assert not list(disk.rglob(f"{PART}*"))
        await store.put(SHELF, "new", chunks(b"x" * 100_000))
        assert len(await store.list(SHELF)) == 2


async def test_a_disk_that_is_full_for_the_list_leaves_what_was(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        store = FolderArtifactStore(disk)
        before = await store.put(SHELF, "old", chunks(b"old"))
        pages = os.statvfs(disk).f_bavail
        (disk / "ballast").write_bytes(b"x" * 4096 * (pages - 1))

        # One page is left: for the content, and none for the list.
        with pytest.raises(ArtifactStoreUnusable, match="the disk is full"):
            await store.put(SHELF, "new", chunks(b"new"))

        assert await store.list(SHELF) == (before,)
        files = {path.name for path in (disk / SHELF).iterdir()}
        assert files == {".lock", ".shelf.json", "old"}


@pytest.mark.parametrize("place", ["root", "shelf"])
async def test_a_folder_that_is_not_ours_is_told(tmp_path: Path, place: str) -> None:
    store = FolderArtifactStore(tmp_path / "root")
    folder = tmp_path / "root" / (SHELF if place == "shelf" else "")
    shelf = SHELF if place == "shelf" else Shelf("another")

    with obeyed():  # By the threads too, which the first call starts.
        await store.put(SHELF, "it", chunks(b"x"))
        folder.chmod(0o500)
        with pytest.raises(ArtifactStoreUnusable, match="permission denied"):
            await store.put(shelf, "it", chunks(b"y"))

    folder.chmod(0o700)
    assert await content_of(store, "it") == b"x"


async def test_a_root_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("")

    with pytest.raises(ArtifactStoreUnusable, match=r"not a directory|exists"):
        await FolderArtifactStore(tmp_path / "root").put(SHELF, "it", chunks(b"x"))


@pytest.mark.parametrize("damage", ["other", "short", "long", "gone"])
async def test_damage_is_told_at_the_end(tmp_path: Path, damage: str) -> None:
    store = FolderArtifactStore(tmp_path)
    await store.put(SHELF, "it", chunks(b"x" * 3_000_000))
    file = tmp_path / SHELF / "it"
    match damage:
        case "other":
            with file.open("r+b") as opened:
                opened.seek(2_000_000)
                opened.write(b"y")
        case "short":
            os.truncate(file, 2_999_999)
        case "long":
            os.truncate(file, 3_000_001)
        case _:
            file.unlink()

    with pytest.raises(ArtifactDamaged) as told:
        await content_of(store, "it")

    assert told.value.wanted != told.value.found
    assert (await store.find(SHELF, "it")) is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "damaged"),
        ("3", "damaged"),
        ('{"format": 1, "shelf": "episode-1", "artifacts": {"it": 3}}', "damaged"),
        ("{}", "damaged"),
        ('{"format": 2, "horses": 3}', "newer Livery wrote its list, in format 2"),
        ('{"format": 1, "shelf": "other", "artifacts": {}}', "that of shelf other"),
        ('{"format": 1, "shelf": "episode-1", "artifacts": []}', "artifacts"),
        (
            '{"format": 1, "shelf": "episode-1", "artifacts": {}, "x": 1}',
            r"extra fields found \(x\)",
        ),
    ],
)
async def test_a_damaged_list_is_told(tmp_path: Path, text: str, told: str) -> None:
    store = FolderArtifactStore(tmp_path)
    await store.put(SHELF, "it", chunks(b"x"))
    (tmp_path / SHELF / ".shelf.json").write_text(text)

    for act in (store.list(SHELF), store.find(SHELF, "it"), content_of(store, "it")):
        with pytest.raises(ArtifactStoreUnusable, match=told):
            await act


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", "1"),
        ("size", True),
        ("readers", ["horse"]),
        ("readers", "agent"),
        ("file", "../../it"),
        ("file", None),
        ("surplus", 1),
    ],
)
async def test_a_damaged_entry_is_told(tmp_path: Path, key: str, value: object) -> None:
    store = FolderArtifactStore(tmp_path)
    await store.put(SHELF, "it", chunks(b"x"))
    path = tmp_path / SHELF / ".shelf.json"
    fact = json.loads(path.read_text())
    fact["artifacts"]["it"][key] = value
    path.write_text(json.dumps(fact))

    with pytest.raises(ArtifactStoreUnusable, match="damaged"):
        await store.list(SHELF)


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    store = FolderArtifactStore(tmp_path / "root")
    await store.put(SHELF, "it", chunks(b"x"))
    file = tmp_path / "root" / SHELF / "it"
    file.unlink()
    (tmp_path / "secret").write_text("secret")
    file.symlink_to(tmp_path / "secret")

    with pytest.raises(ArtifactStoreUnusable):
        await content_of(store, "it")


async def test_what_a_crash_left_goes_after_a_day(tmp_path: Path) -> None:
    store = FolderArtifactStore(tmp_path)
    await store.put(SHELF, "it", chunks(b"x"))
    old, young = (tmp_path / SHELF / f"{PART}{name}" for name in ("old", "young"))
    for part in (old, young):
        part.write_bytes(b"half")
    long_ago = time.time() - STALE_SECONDS - 60
    os.utime(old, (long_ago, long_ago))

    await store.put(SHELF, "it", chunks(b"y"))

    assert (old.exists(), young.exists()) == (False, True)


async def test_kills_at_any_moment_leave_whole_artifacts(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    root, says = tmp_path / "root", tmp_path / "says"
    store = FolderArtifactStore(root)
    for _ in range(ROUNDS):
        told = killed_putter(root, says, chance.uniform(0.0, LIFE_SECONDS_MAX))

        for artifact in await store.list(Shelf("shelf")):
            async with store.get(
                Shelf("shelf"), artifact.name, reader=Reader.OPERATOR
            ) as pieces:
                size = sum([len(piece) async for piece in pieces])
            assert size == artifact.size, f"seed {seed}"
            last = told[artifact.name]
            # It may have come to stand, and nobody was left to say so.
            assert artifact.sha256 in (digest_of(last), digest_of(last + 1)), (
                f"{artifact.name} after {last}, seed {seed}"
            )
        assert len(told) == NAMES


def killed_putter(root: Path, says: Path, seconds: float) -> dict[str, int]:
    """Have a process put artifacts, kill it, and return what it said last."""
    with says.open("wb") as file:
        putter = subprocess.Popen([sys.executable, DOOMED, root], stdout=file)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(_told(says)) < NAMES:
        assert putter.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline, "it put nothing"
        time.sleep(0.005)
    time.sleep(seconds)
    putter.kill()
    putter.wait()
    return _told(says)


def _told(says: Path) -> dict[str, int]:
    lines = map(str.split, says.read_text().splitlines())
    return {name: int(number) for name, number in lines}
