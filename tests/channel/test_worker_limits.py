# SPDX-License-Identifier: Apache-2.0
"""A worker that is short of something, or is told nonsense, and goes on."""

import subprocess
from pathlib import Path

import anyio
import pytest

from livery.adapters.worker_scripts import bootstrap
from livery.ports.provided.worker_channel import WorkerFailed
from livery.ports.provided.worker_frames import (
    FRAME_BYTES_MAX,
    HEADER,
    Frame,
    FrameKind,
    FrameReader,
    from_payload,
)
from livery.ports.required.sandbox import Command, Exited, NotStarted

from .worker_process import ProcessStream, RunningWorker, worker_in

pytestmark = pytest.mark.anyio

BOUND_SECONDS = 60.0


async def test_without_descriptors_each_call_is_told_and_later_ones_work(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(bytes(2_000_000))
    few = ("sh", "-c", 'ulimit -n 16; exec "$@"', "few")
    async with worker_in(str(tmp_path), before=few) as worker:
        async with anyio.create_task_group() as tasks:
            held = anyio.Event()
            refused: list[BaseException] = []

            async def hold() -> None:
                try:
                    async with worker.channel.get(str(tmp_path / "file"), user=None):
                        await held.wait()
                except WorkerFailed as fault:
                    refused.append(fault)

            for _ in range(20):
                tasks.start_soon(hold)
            with anyio.fail_after(BOUND_SECONDS):
                while not refused:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            short = await worker.sh("true")
            held.set()
        after = await worker.sh("true")

    assert "Too many open files" in str(refused[0])
    assert isinstance(short.how, NotStarted)
    assert "Too many open files" in short.how.reason
    assert after.how == Exited(0)


@pytest.mark.peer("root")
async def test_without_processes_a_command_is_not_started() -> None:
    drop = ("setpriv", "--reuid=4329", "--regid=4329", "--clear-groups")
    none = (*drop, "prlimit", "--nproc=1")
    async with worker_in("/", python="/usr/bin/python3", before=none) as worker:
        ended = await worker.sh("true")

    assert isinstance(ended.how, NotStarted)
    assert "Resource temporarily unavailable" in ended.how.reason


@pytest.mark.parametrize(
    "kind", [FrameKind.EXEC, FrameKind.PUT, FrameKind.GET, FrameKind.STAT]
)
async def test_a_request_without_sense_fails_alone(
    tmp_path: Path, python: str, kind: FrameKind
) -> None:
    argv, first = bootstrap(python)
    process = await anyio.open_process(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    )
    async with process:
        stream = ProcessStream(process)
        await stream.send(first)
        await stream.send(Frame(FrameKind.CHUNK, 5, b"for nobody").to_bytes())
        await stream.send(Frame(FrameKind.KILL, 6).to_bytes())
        for payload in (b"{}", b"[]", b"no json"):
            await stream.send(Frame(kind, 7, payload).to_bytes())

        reader, heard = FrameReader(), list[Frame]()
        with anyio.fail_after(BOUND_SECONDS):
            while len(heard) < 4:
                heard += reader.feed(await stream.receive())
        await stream.aclose()
        status = await process.wait()

    assert [frame.kind for frame in heard] == [FrameKind.HELLO, *[FrameKind.FAILED] * 3]
    assert all(from_payload(f.payload)["kind"] == "failed" for f in heard[1:])
    assert status == 0


async def test_a_host_that_breaks_the_frames_is_no_host(
    tmp_path: Path, python: str
) -> None:
    argv, first = bootstrap(python)
    process = await anyio.open_process(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    )
    async with process:
        stream = ProcessStream(process)
        await stream.send(first)
        await stream.send(HEADER.pack(FrameKind.EXEC, 1, FRAME_BYTES_MAX + 1))
        with anyio.fail_after(BOUND_SECONDS):
            status = await process.wait()

    assert status == 0


def test_a_host_that_reads_no_more_ends_the_worker(tmp_path: Path, python: str) -> None:
    argv, first = bootstrap(python)
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(first)
        process.stdin.flush()
        process.stdout.close()
        payload = b'{"path": "/", "user": null}'
        process.stdin.write(Frame(FrameKind.STAT, 1, payload).to_bytes())
        process.stdin.flush()

        status = process.wait(timeout=BOUND_SECONDS)

    assert status == 0


@pytest.mark.peer("root")
async def test_groups_of_a_user_are_those_asked_for(worker: RunningWorker) -> None:
    asked = Command(argv=("id", "-G"), timeout_seconds=9.0, cwd="/")

    by_name = await worker.exec(asked, user="nobody:daemon")
    by_number = await worker.exec(asked, user="65534")
    own = await worker.exec(asked, user="root")
    unknown = await worker.exec(asked, user="4321")

    assert by_name.stdout.kept.split()[0] == b"1"
    assert by_number.stdout.kept == b"65534\n"
    assert own.how == Exited(0)
    assert unknown.stdout.kept == b"0\n"


@pytest.mark.peer("root")
async def test_who_is_not_root_becomes_nobody_else(tmp_path: Path) -> None:
    drop = ("setpriv", "--reuid=4321", "--regid=4321", "--clear-groups")
    async with worker_in("/", python="/usr/bin/python3", before=drop) as worker:
        own = await worker.exec(
            Command(argv=("id", "-u"), timeout_seconds=9.0), user="4321:4321"
        )
        other = await worker.exec(
            Command(argv=("id", "-u"), timeout_seconds=9.0), user="0"
        )

    assert own.stdout.kept == b"4321\n"
    assert isinstance(other.how, NotStarted)
    assert "cannot become" in other.how.reason
