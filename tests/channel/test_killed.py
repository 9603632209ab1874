# SPDX-License-Identifier: Apache-2.0
"""Who is killed: the keeper, the worker, or both, by a command or from outside."""

import os
import signal
from pathlib import Path

import anyio
import psutil
import pytest

from livery.ports.provided.worker_channel import ChannelEnded
from livery.ports.required.sandbox import Command, Exited, ExitUnknown, TimedOut, shell

from . import processes
from .worker_process import RunningWorker, worker_in

pytestmark = pytest.mark.anyio

BOUND_SECONDS = 60.0
INIT = (
    "/bin/sh",
    "-c",
    # The first process of a namespace is not sent the signal: it starts the worker,
    # and the namespace ends with it.
    'exec 3<&0; "$@" <&3 & wait $!',
    "init",
)
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def keepers_of(worker: RunningWorker) -> list[psutil.Process]:
    return psutil.Process(worker.hello.pid).children()


@pytest.mark.case("FC-047")
async def test_a_killed_keeper_is_noticed_and_its_tree_ended(
    worker: RunningWorker,
) -> None:
    word = processes.token()
    script = f"echo before; kill -9 $PPID; setsid env -i sleep {word} & sleep {word}"

    with anyio.fail_after(BOUND_SECONDS):
        ended = await worker.sh(script)

    assert isinstance(ended.how, ExitUnknown)
    assert "keeper" in ended.how.reason
    assert ended.stdout.kept == b"before\n"
    assert processes.with_word(word) == []
    assert (await worker.sh("echo on")).stdout.kept == b"on\n"


async def test_the_others_go_on_when_a_keeper_is_killed(
    worker: RunningWorker,
) -> None:
    found: list[bytes] = []

    async def other() -> None:
        ended = await worker.sh("sleep 1; echo other")
        found.append(ended.stdout.kept)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        ended = await worker.sh("kill -9 $PPID; sleep 100")

    assert isinstance(ended.how, ExitUnknown)
    assert found == [b"other\n"]


async def test_a_daemon_that_was_let_live_outlives_another_commands_keeper(
    worker: RunningWorker,
) -> None:
    word = processes.token()
    script = f"setsid sleep {word} >/dev/null 2>&1 & exit"
    await worker.exec(
        Command(
            argv=("/bin/sh", "-c", script), timeout_seconds=BOUND_SECONDS, detaches=True
        )
    )

    ended = await worker.sh("kill -9 $PPID; sleep 100")

    assert isinstance(ended.how, ExitUnknown)
    (daemon,) = await processes.until_there(word)
    daemon.kill()
    await processes.until_gone(word)


async def test_a_keeper_that_its_command_stops_keeps_the_deadline(
    worker: RunningWorker,
) -> None:
    word = processes.token()
    script = f"kill -STOP $PPID; sleep {word}"

    with anyio.fail_after(BOUND_SECONDS):
        ended = await worker.sh(script, timeout_seconds=0.5)

    assert isinstance(ended.how, TimedOut)
    assert processes.with_word(word) == []


@pytest.mark.case("FC-099")
async def test_everything_ends_when_the_worker_is_killed(
    tmp_path: Path, python: str
) -> None:
    word = processes.token()
    ends: list[type[BaseException]] = []

    async def one(worker: RunningWorker) -> None:
        try:
            await worker.sh(f"trap '' TERM; setsid sleep {word} & sleep {word}")
        except ChannelEnded as fault:
            ends.append(type(fault))

    async with (
        worker_in(str(tmp_path), python=python) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(one, worker)
        await processes.until_there(word, count=2)
        worker.process.kill()

    assert ends == [ChannelEnded]
    await processes.until_gone(word)


@pytest.mark.case("FC-099")
async def test_everything_ends_when_the_host_is_gone(
    tmp_path: Path, python: str
) -> None:
    word = processes.token()

    async def one(worker: RunningWorker) -> None:
        with pytest.raises(ChannelEnded):
            await worker.sh(f"setsid sleep {word} & sleep {word}")

    async with (
        worker_in(str(tmp_path), python=python) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(one, worker)
        await processes.until_there(word, count=2)
        await worker.channel.aclose()

    assert processes.with_word(word) == []
    with pytest.raises(ChannelEnded):
        await worker.sh("true")


async def test_a_launch_under_way_is_not_cut_off_when_the_host_is_gone(
    tmp_path: Path, python: str
) -> None:
    word, launching = processes.token(), processes.token()
    script = f"setsid sleep {word} >/dev/null 2>&1 & sh -c 'sleep 1; true' {launching}"

    async def one(worker: RunningWorker) -> None:
        with pytest.raises(ChannelEnded):
            await worker.exec(
                Command(
                    argv=("/bin/sh", "-c", script),
                    timeout_seconds=BOUND_SECONDS,
                    detaches=True,
                )
            )

    async with (
        worker_in(str(tmp_path), python=python) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(one, worker)
        await processes.until_there(word)
        await processes.until_there(launching)
        await worker.channel.aclose()

    (daemon,) = processes.with_word(word)
    daemon.kill()
    await processes.until_gone(word)


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1],
)
async def test_the_worker_and_its_keepers_ignore_what_they_can(
    worker: RunningWorker, number: signal.Signals
) -> None:
    async def one() -> None:
        ended = await worker.sh("sleep 0.5; echo on")
        assert ended.stdout.kept == b"on\n"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one)
        await anyio.sleep(0.1)
        os.kill(worker.hello.pid, number)
        for keeper in keepers_of(worker):
            keeper.send_signal(number)


@pytest.mark.peer("root")
async def test_a_command_of_another_user_cannot_kill_us_all() -> None:
    """In a PID namespace of its own, since the signal goes to every process."""
    word = processes.token()
    found: list[object] = []

    async with worker_in("/", before=NAMESPACE) as worker:

        async def other() -> None:
            asked = shell(f"sleep {word}", timeout_seconds=60.0)
            found.append((await worker.exec(asked, user="4321")).how)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await processes.until_there(word)
            asked = shell("kill -9 -1; echo alone", timeout_seconds=30.0)
            ended = await worker.exec(asked, user="4321")

        assert ended.how == Exited(0)
        assert ended.stdout.kept == b"alone\n"
        assert (await worker.sh("echo on")).stdout.kept == b"on\n"

    assert [type(how).__name__ for how in found] == ["Signalled"]


@pytest.mark.peer("root")
async def test_a_command_that_kills_all_of_its_own_user_ends_the_channel(
    tmp_path: Path,
) -> None:
    """As root in a PID namespace of its own: worker and keeper go, the stream ends."""

    async with worker_in(str(tmp_path), before=(*NAMESPACE, *INIT)) as worker:
        with pytest.raises(ChannelEnded), anyio.fail_after(BOUND_SECONDS):
            await worker.sh("kill -9 -1; sleep 1000")


async def test_trees_are_held_without_help_of_the_kernel(tmp_path: Path) -> None:
    word = processes.token()
    async with worker_in(str(tmp_path), "--without-subreaper") as worker:
        ended = await worker.sh(f"(setsid sleep {word} &); sleep {word} & echo word")
        after_exit = processes.with_word(word)
        timed_out = await worker.sh(
            f"(setsid setsid sleep {word} &); sleep {word}", timeout_seconds=0.5
        )
        after_deadline = processes.with_word(word)
        killed = await worker.sh(f"kill -9 $PPID; (setsid sleep {word} &) ; sleep 1000")
        after_kill = processes.with_word(word)

    assert not worker.hello.subreaper
    assert ended.how == Exited(0)
    assert ended.leftovers_ended == 2
    assert isinstance(timed_out.how, TimedOut)
    assert isinstance(killed.how, ExitUnknown)
    assert (after_exit, after_deadline, after_kill) == ([], [], [])


async def test_a_process_that_forks_all_the_time_is_ended(
    worker: RunningWorker,
) -> None:
    word = processes.token()
    script = f"chain() {{ sh -c ':' x {word}; ( chain & ) ; }}; chain; sleep {word}"

    ended = await worker.sh(script, timeout_seconds=0.5)

    assert isinstance(ended.how, TimedOut)
    assert processes.with_word(word) == []
