# SPDX-License-Identifier: Apache-2.0
"""The keeper that is forked before its command comes, and what becomes of it."""

import os
import signal

import anyio
import psutil
import pytest

from livery.adapters.worker_scripts.accounts import Account
from livery.adapters.worker_scripts.keeper import Order
from livery.adapters.worker_scripts.launching import Program
from livery.adapters.worker_scripts.spares import ORDER_BYTES_MAX, packed, unpacked
from livery.ports.required.sandbox import Command, Exited, NotStarted

from . import processes
from .worker_process import RunningWorker, spare_of, worker_in

pytestmark = pytest.mark.anyio

BOUND_SECONDS = 60.0
LOOK_SECONDS = 0.01


async def children(worker: RunningWorker, count: int) -> list[psutil.Process]:
    """Wait until the worker has so many children, and return them."""
    with anyio.fail_after(BOUND_SECONDS):
        while True:
            found = psutil.Process(worker.hello.pid).children()
            if len(found) == count:
                return found
            await anyio.sleep(LOOK_SECONDS)


def is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def keeper_of_a_command(worker: RunningWorker) -> int:
    ended = await worker.sh("echo $PPID")
    assert ended.how == Exited(0)
    return int(ended.stdout.kept)


async def test_the_next_command_is_the_spare_s(worker: RunningWorker) -> None:
    spare = await spare_of(worker)

    keeper = await keeper_of_a_command(worker)
    after = await spare_of(worker)

    assert keeper == spare.pid
    assert after.pid != spare.pid


async def test_a_worker_that_was_asked_nothing_has_none(worker: RunningWorker) -> None:
    await worker.channel.stat("/", user=None)

    assert psutil.Process(worker.hello.pid).children() == []


async def test_none_is_made_beside_a_command(worker: RunningWorker) -> None:
    word = processes.token()
    await spare_of(worker)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.sh, f"sleep {word} & wait")
        await processes.until_there(word)
        await worker.sh("true")
        await worker.channel.stat("/", user=None)
        (keeper,) = await children(worker, 1)
        keeper.kill()

    assert processes.with_word(word) == []


async def test_a_spare_that_was_killed_is_not_missed(worker: RunningWorker) -> None:
    spare = await spare_of(worker)
    spare.kill()
    await children(worker, 0)

    keeper = await keeper_of_a_command(worker)

    assert keeper != spare.pid


async def test_a_spare_that_was_stopped_goes_on(worker: RunningWorker) -> None:
    spare = await spare_of(worker)
    spare.send_signal(signal.SIGSTOP)

    with anyio.fail_after(BOUND_SECONDS):
        keeper = await keeper_of_a_command(worker)

    assert keeper == spare.pid


async def test_a_long_order_is_a_fork_s(worker: RunningWorker) -> None:
    spare = await spare_of(worker)
    long = "x" * (ORDER_BYTES_MAX + 1)

    ended = await worker.exec(
        Command(
            argv=("/bin/sh", "-c", "echo $PPID ${#0}", long),
            timeout_seconds=BOUND_SECONDS,
        )
    )

    keeper, length = map(int, ended.stdout.kept.split())
    assert keeper != spare.pid
    assert length == len(long)
    await spare_of(worker)


async def test_what_cannot_start_is_told_by_the_spare(worker: RunningWorker) -> None:
    await spare_of(worker)
    missing = Command(argv=("no-such-program",), timeout_seconds=BOUND_SECONDS)

    ended = await worker.exec(missing)
    elsewhere = await worker.exec(
        Command(argv=("true",), timeout_seconds=BOUND_SECONDS, cwd="/no/such")
    )

    assert isinstance(ended.how, NotStarted)
    assert ended.how.reason == "program no-such-program: No such file or directory"
    assert isinstance(elsewhere.how, NotStarted)
    assert elsewhere.how.reason == "folder /no/such: No such file or directory"


@pytest.mark.peer("root")
async def test_the_spare_becomes_another_user(worker: RunningWorker) -> None:
    await spare_of(worker)
    asked = Command(argv=("id", "-u"), timeout_seconds=BOUND_SECONDS, cwd="/")

    ended = await worker.exec(asked, user="65534")

    assert ended.stdout.kept == b"65534\n"


async def test_a_spare_ends_with_its_worker(tmp_path: os.PathLike[str]) -> None:
    async with worker_in(os.fspath(tmp_path)) as worker:
        spare = await spare_of(worker)

    with anyio.fail_after(BOUND_SECONDS):
        while not is_over(spare):  # noqa: ASYNC110
            await anyio.sleep(LOOK_SECONDS)


@pytest.mark.parametrize("account", [None, Account(1, 2, [3, 4], "/home")])
async def test_an_order_is_the_same_at_the_other_end(account: Account | None) -> None:
    order = Order(
        program=Program([b"a", b"\xff"], b"/", {b"NAME": b"value"}, account),
        mark=b"mark",
        timeout_seconds=1.5,
        grace_seconds=0.0,
        detaches=False,
        open_files=(16, 32),
        subreaper=True,
    )

    assert unpacked(packed(order)) == order
