# SPDX-License-Identifier: Apache-2.0
"""Files through the channel: whole or not at all, and each failure by its name."""

import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil
import pytest

from livery.ports.provided.worker_channel import ChannelEnded, WorkerFailed
from livery.ports.required.sandbox import (
    DiskFull,
    Exited,
    FileForbidden,
    FileKind,
    FileMissing,
    FileStat,
    NotAFile,
    PathRefused,
    TransferCut,
)

from .worker_process import RunningWorker, worker_in

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


async def put(
    worker: RunningWorker,
    path: Path | str,
    content: bytes,
    *,
    size: int | None = None,
    mode: int = 0o644,
    user: str | None = None,
) -> None:
    await worker.channel.put(
        str(path), pieces(content), size=size, mode=mode, user=user
    )


async def get(
    worker: RunningWorker, path: Path | str, *, user: str | None = None
) -> bytes:
    async with worker.channel.get(str(path), user=user) as chunks:
        return b"".join([chunk async for chunk in chunks])


@pytest.mark.case("FC-062")
@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 5 * MIB + 3])
async def test_a_file_goes_in_and_out_byte_for_byte(
    worker: RunningWorker, tmp_path: Path, size: int
) -> None:
    content = os.urandom(size)

    await put(worker, tmp_path / "a/b/file", content, size=size, mode=0o751)

    assert (tmp_path / "a/b/file").read_bytes() == content
    assert stat.S_IMODE((tmp_path / "a/b/file").stat().st_mode) == 0o751
    assert await get(worker, tmp_path / "a/b/file") == content


async def test_pieces_of_every_size_come_in(
    worker: RunningWorker, tmp_path: Path
) -> None:
    parts = (b"", b"a", bytes(MIB + 1), b"", b"z" * 3)
    path = tmp_path / "file"

    await worker.channel.put(
        str(path), pieces(*parts), size=None, mode=0o644, user=None
    )

    assert path.read_bytes() == b"".join(parts)


async def test_what_was_there_is_replaced(
    worker: RunningWorker, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    (tmp_path / "file").symlink_to(elsewhere)

    await put(worker, tmp_path / "file", b"new")

    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert elsewhere.read_text() == "untouched"


@pytest.mark.case("FC-069")
async def test_different_names_are_different_files(
    worker: RunningWorker, tmp_path: Path
) -> None:
    names = [
        "plain",
        "trailing ",
        " leading",
        "-dash",
        "quote'\"",
        "new\nline",
        "文件",
        "ä",
        "a\N{COMBINING DIAERESIS}",
        "$HOME",
        os.fsdecode(b"\xff"),
        "back\\slash",
        "x" * 255,
    ]

    for name in names:
        await put(worker, f"{tmp_path}/{name}", os.fsencode(name))

    assert sorted(os.listdir(tmp_path)) == sorted(names)
    for name in names:
        assert await get(worker, f"{tmp_path}/{name}") == os.fsencode(name)


@pytest.mark.case("FC-069")
@pytest.mark.parametrize("path", ["relative", "/tmp/../etc/x", "/tmp/..", "/a\0b", ""])
async def test_paths_that_break_the_rule_are_refused(
    worker: RunningWorker, path: str
) -> None:
    with pytest.raises(PathRefused):
        await put(worker, path, b"")
    with pytest.raises(PathRefused):
        await get(worker, path)
    with pytest.raises(PathRefused):
        await worker.channel.stat(path, user=None)


async def test_a_name_that_is_too_long_is_refused(
    worker: RunningWorker, tmp_path: Path
) -> None:
    with pytest.raises(PathRefused):
        await put(worker, tmp_path / ("x" * 256), b"")

    assert os.listdir(tmp_path) == []


@pytest.mark.case("FC-072")
async def test_a_missing_file_is_missing(worker: RunningWorker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for path in (tmp_path / "none", tmp_path / "no/ne", tmp_path / "file/none"):
        with pytest.raises(FileMissing):
            await get(worker, path)
        with pytest.raises(FileMissing):
            await worker.channel.stat(str(path), user=None)


@pytest.mark.case("FC-071")
async def test_what_was_put_is_there_for_the_next_command(
    worker: RunningWorker, tmp_path: Path
) -> None:
    for number in range(50):
        await put(worker, tmp_path / "file", str(number).encode())
        ended = await worker.sh("cat file")
        assert ended.stdout.kept == str(number).encode()


async def test_a_folder_in_the_way_is_told(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")

    with pytest.raises(NotAFile, match="folder"):
        await put(worker, tmp_path / "folder", b"x")
    with pytest.raises(FileForbidden, match="no folder"):
        await put(worker, tmp_path / "file/below", b"x")
    with pytest.raises(NotAFile, match="folder"):
        await get(worker, tmp_path / "folder")

    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


async def test_only_files_are_read_and_nothing_is_waited_for(
    worker: RunningWorker, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))

    for name in ("pipe", "device", "socket"):
        with pytest.raises(NotAFile, match=name), anyio.fail_after(60):
            await get(worker, tmp_path / name)


async def test_links_are_followed_by_get_and_not_by_stat(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to("file")

    assert await get(worker, tmp_path / "link") == b"content"
    seen = await worker.channel.stat(str(tmp_path / "link"), user=None)
    assert seen.kind is FileKind.LINK


async def test_stat_tells_kind_size_and_mode(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "file").chmod(0o640)
    os.mkfifo(tmp_path / "pipe")

    seen = await worker.channel.stat(str(tmp_path / "file"), user=None)
    folder = await worker.channel.stat(str(tmp_path), user=None)
    pipe = await worker.channel.stat(str(tmp_path / "pipe"), user=None)

    assert seen == FileStat(kind=FileKind.FILE, size=5, mode=0o640)
    assert folder.kind is FileKind.FOLDER
    assert pipe.kind is FileKind.OTHER


async def test_a_file_without_a_size_is_read_to_its_end(
    worker: RunningWorker,
) -> None:
    assert (await get(worker, "/proc/version")).startswith(b"Linux")


@pytest.mark.parametrize(("size", "given"), [(10, 9), (10, 11), (0, MIB), (3 * MIB, 1)])
async def test_another_size_than_announced_leaves_nothing(
    worker: RunningWorker, tmp_path: Path, size: int, given: int
) -> None:
    (tmp_path / "file").write_text("before")

    with pytest.raises(TransferCut) as raised:
        await put(worker, tmp_path / "file", bytes(given), size=size)

    assert raised.value.announced == size
    assert (tmp_path / "file").read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


async def test_a_source_that_breaks_leaves_nothing(
    worker: RunningWorker, tmp_path: Path
) -> None:
    class SourceBroken(Exception):
        pass

    async def broken() -> AsyncIterator[bytes]:
        yield bytes(2 * MIB)
        raise SourceBroken

    with pytest.raises(SourceBroken):
        await worker.channel.put(
            str(tmp_path / "file"), broken(), size=None, mode=0o644, user=None
        )

    assert os.listdir(tmp_path) == []


async def test_a_cancelled_put_leaves_nothing(
    worker: RunningWorker, tmp_path: Path
) -> None:
    half_way = anyio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(2 * MIB)
        half_way.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: worker.channel.put(
                str(tmp_path / "file"), endless(), size=None, mode=0o644, user=None
            )
        )
        await half_way.wait()
        tasks.cancel_scope.cancel()

    assert os.listdir(tmp_path) == []


async def test_the_host_gone_in_the_middle_leaves_nothing(
    tmp_path: Path, python: str
) -> None:
    workdir = tmp_path / "workdir"
    workdir.mkdir()

    async def until_gone(worker: RunningWorker) -> AsyncIterator[bytes]:
        yield bytes(2 * MIB)
        assert os.listdir(workdir) != []
        await worker.channel.aclose()
        yield b""

    async with worker_in(str(workdir), python=python) as worker:
        with pytest.raises(ChannelEnded):
            await worker.channel.put(
                str(workdir / "file"),
                until_gone(worker),
                size=None,
                mode=0o644,
                user=None,
            )

    assert os.listdir(workdir) == []


async def test_a_get_that_is_left_early_is_ended_over_there(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(bytes(8 * MIB))
    before = len(os.listdir(f"/proc/{worker.hello.pid}/fd"))

    async with worker.channel.get(str(tmp_path / "file"), user=None) as chunks:
        async for chunk in chunks:
            assert chunk
            break

    assert len(os.listdir(f"/proc/{worker.hello.pid}/fd")) == before
    assert len(await get(worker, tmp_path / "file")) == 8 * MIB


async def test_a_file_that_shrinks_is_told(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(bytes(8 * MIB))

    async def read() -> None:
        async with worker.channel.get(str(tmp_path / "file"), user=None) as chunks:
            async for _ in chunks:
                os.truncate(tmp_path / "file", 10)

    with pytest.raises(TransferCut) as raised:
        await read()

    assert raised.value.announced == 8 * MIB
    assert raised.value.got < 8 * MIB


async def test_a_file_that_grows_is_read_to_its_first_size(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(bytes(4 * MIB))
    got = 0

    async with worker.channel.get(str(tmp_path / "file"), user=None) as chunks:
        async for chunk in chunks:
            got += len(chunk)
            with (tmp_path / "file").open("ab") as file:
                file.write(bytes(MIB))

    assert got == 4 * MIB


async def test_transfers_share_the_channel(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(bytes(64 * MIB))
    done: list[str] = []

    async def read_big() -> None:
        await get(worker, tmp_path / "big")
        done.append("big")

    async def small_ones() -> None:
        for number in range(20):
            await put(worker, tmp_path / f"small-{number}", b"x")
        done.append("small")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_big)
        tasks.start_soon(small_ones)

    assert done == ["small", "big"]


async def test_a_reader_that_waits_holds_nobody_up(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(bytes(32 * MIB))
    process = psutil.Process(worker.hello.pid)
    before = process.memory_info().rss

    async with worker.channel.get(str(tmp_path / "big"), user=None) as chunks:
        for _ in range(20):
            assert (await worker.sh("true")).how == Exited(0)
        grown = process.memory_info().rss - before
        got = sum([len(chunk) async for chunk in chunks])

    assert got == 32 * MIB
    assert grown < 8 * MIB


async def test_more_than_1024_files_may_be_open(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(bytes(2 * MIB))
    count = 1100
    opened = 0
    all_open, go_on = anyio.Event(), anyio.Event()

    async def hold() -> None:
        nonlocal opened
        async with worker.channel.get(str(tmp_path / "file"), user=None):
            opened += 1
            if opened == count:
                all_open.set()
            await go_on.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(hold)
        await all_open.wait()
        assert len(os.listdir(f"/proc/{worker.hello.pid}/fd")) > 1024
        ended = await worker.sh("echo on; ulimit -n")
        go_on.set()

    assert ended.stdout.kept.startswith(b"on\n")


@pytest.mark.peer("root")
async def test_a_full_disk_is_told_and_leaves_nothing(
    worker: RunningWorker, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = await worker.sh(f"mount -t tmpfs -o size=1m none {disk}")
    assert mounted.how == Exited(0), mounted
    try:
        with pytest.raises(DiskFull):
            await put(worker, disk / "file", bytes(4 * MIB))
        left = os.listdir(disk)
    finally:
        await worker.sh(f"umount {disk}")

    assert left == []


@pytest.mark.peer("root")
@pytest.mark.case("FC-067")
async def test_files_belong_to_the_user_they_are_put_for(
    worker: RunningWorker, public_path: Path
) -> None:
    await put(worker, public_path / "new/file", b"x", user="4321:8765")

    seen = (public_path / "new/file").stat()
    assert (seen.st_uid, seen.st_gid) == (4321, 8765)
    assert (public_path / "new").stat().st_uid == 4321


@pytest.mark.peer("root")
async def test_a_planted_link_opens_nothing_to_its_planter(
    worker: RunningWorker, public_path: Path
) -> None:
    (public_path / "roots").mkdir(mode=0o755)
    (public_path / "roots/secret").write_text("root's alone")
    (public_path / "roots/secret").chmod(0o600)
    (public_path / "link").symlink_to("roots")

    with pytest.raises(FileForbidden):
        await put(worker, public_path / "link/planted", b"x", user="4321")
    with pytest.raises(FileForbidden):
        await get(worker, public_path / "link/secret", user="4321")
    with pytest.raises(FileForbidden, match="no user"):
        await get(worker, public_path / "link/secret", user="nobody-at-all")

    assert os.listdir(public_path / "roots") == ["secret"]
    assert (await worker.sh("id -u")).stdout.kept == b"0\n"


async def test_a_whole_file_gets_its_name_at_once(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "aside").write_bytes(b"new")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    rename = worker.channel.rename

    with pytest.raises(NotAFile):
        await rename(f"{tmp_path}/aside", f"{tmp_path}/folder", user=None)
    with pytest.raises(FileForbidden):
        await rename(f"{tmp_path}/aside", f"{tmp_path}/aside/below", user=None)
    with pytest.raises(PathRefused):
        await rename(f"{tmp_path}/aside", f"{tmp_path}/../x", user=None)
    await rename(f"{tmp_path}/aside", f"{tmp_path}/a/b", user=None)
    (tmp_path / "aside").write_bytes(b"newer")
    await rename(f"{tmp_path}/aside", f"{tmp_path}/link", user=None)

    assert (tmp_path / "a/b").read_bytes() == b"new"
    assert (tmp_path / "link").read_bytes() == b"newer"
    assert not (tmp_path / "link").is_symlink()
    assert list((tmp_path / "folder").iterdir()) == []


async def test_a_file_that_is_not_there_gets_no_name(
    worker: RunningWorker, tmp_path: Path
) -> None:
    with pytest.raises(WorkerFailed):
        await worker.channel.rename(f"{tmp_path}/none", f"{tmp_path}/b", user=None)

    assert list(tmp_path.iterdir()) == []
