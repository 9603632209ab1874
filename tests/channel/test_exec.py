# SPDX-License-Identifier: Apache-2.0
"""Commands through the channel: what they are given, and how their end is told."""

import os
import sys
import time
from pathlib import Path

import anyio
import pytest

from livery.ports.provided.worker_frames import FRAME_BYTES_MAX
from livery.ports.required.sandbox import (
    Command,
    Exited,
    NotStarted,
    Signalled,
    TimedOut,
    shell,
)

from . import processes
from .worker_process import RunningWorker, spare_of, worker_in

pytestmark = pytest.mark.anyio

MARGIN_SECONDS = 30.0


def command(*argv: str, timeout_seconds: float = 30.0) -> Command:
    return Command(argv=argv, timeout_seconds=timeout_seconds)


async def test_both_outputs_come_apart_with_the_status(worker: RunningWorker) -> None:
    ended = await worker.sh("echo out; echo err >&2; exit 3")

    assert ended.how == Exited(3)
    assert (ended.stdout.kept, ended.stderr.kept) == (b"out\n", b"err\n")
    assert ended.leftovers_ended == 0


@pytest.mark.case("FC-041")
async def test_bytes_that_are_no_text_come_as_they_are(worker: RunningWorker) -> None:
    every = "".join(f"\\{byte:03o}" for byte in range(256))

    ended = await worker.sh(f"printf '{every}'")

    assert ended.stdout.kept == bytes(range(256))


@pytest.mark.case("FC-033")
async def test_input_is_at_its_end_when_none_was_given(worker: RunningWorker) -> None:
    ended = await worker.exec(command("cat", timeout_seconds=10.0))

    assert ended.how == Exited(0)
    assert ended.stdout.size == 0


async def test_input_comes_whole_and_ends(worker: RunningWorker) -> None:
    given = os.urandom(3 * 1024 * 1024 + 17)
    asked = Command(
        argv=("cat",), timeout_seconds=30.0, stdin=given, output_bytes_max=len(given)
    )

    ended = await worker.exec(asked)

    assert ended.stdout.kept == given


async def test_a_command_may_leave_its_input_unread(worker: RunningWorker) -> None:
    asked = Command(argv=("true",), timeout_seconds=30.0, stdin=bytes(4 * 1024 * 1024))

    ended = await worker.exec(asked)

    assert ended.how == Exited(0)


async def test_a_command_may_close_its_input_and_go_on(worker: RunningWorker) -> None:
    asked = Command(
        argv=("/bin/sh", "-c", "exec <&-; sleep 0.2; echo done"),
        timeout_seconds=30.0,
        stdin=bytes(4 * 1024 * 1024),
    )

    ended = await worker.exec(asked)

    assert ended.stdout.kept == b"done\n"


async def test_folder_and_environment_are_as_asked(
    worker: RunningWorker, tmp_path: Path
) -> None:
    (tmp_path / "a b").mkdir()
    asked = Command(
        argv=("/bin/sh", "-c", 'pwd; printf "%s|%s" "$A" "$B"'),
        timeout_seconds=10.0,
        cwd=str(tmp_path / "a b"),
        env={"B": "from the\ncommand"},
    )

    ended = await worker.exec(asked, env={"A": "ä", "B": "from the provider"})

    assert ended.stdout.kept == f"{tmp_path}/a b\nä|from the\ncommand".encode()


async def test_words_that_are_no_text_get_through(worker: RunningWorker) -> None:
    word = os.fsdecode(b"\xff\xfe - $x")

    ended = await worker.exec(command("printf", "%s", word))

    assert ended.stdout.kept == b"\xff\xfe - $x"


async def test_signals_are_at_their_defaults_in_a_command(
    worker: RunningWorker,
) -> None:
    ended = await worker.sh("grep -E 'Sig(Ign|Blk)' /proc/self/status")

    # 32 and 33 are the C library's own: GNU make, say, leaves them ignored in what
    # it starts, and nobody can set them back.
    masks = [int(mask, 16) for mask in ended.stdout.kept.split()[1::2]]
    assert {mask & ~(0b11 << 31) for mask in masks} == {0}


async def test_only_three_descriptors_are_open_in_a_command(
    worker: RunningWorker,
) -> None:
    ended = await worker.exec(command("ls", "/proc/self/fd"))

    assert ended.stdout.kept.split() == [b"0", b"1", b"2", b"3"]  # and the folder


@pytest.mark.case("FC-027")
async def test_a_command_that_kills_itself_was_signalled(
    worker: RunningWorker,
) -> None:
    ended = await worker.sh("kill -KILL $$", timeout_seconds=60.0)

    assert ended.how == Signalled(9)


@pytest.mark.case("FC-058")
async def test_a_status_that_others_use_for_timeouts_is_a_status(
    worker: RunningWorker,
) -> None:
    ended = await worker.sh("if false; then :; fi; exit 124")

    assert ended.how == Exited(124)


@pytest.mark.case("FC-056")
@pytest.mark.parametrize(
    ("argv", "cwd", "user"),
    [
        (("no-such-program",), None, None),
        (("/etc/passwd",), None, None),
        (("true",), "/no/such/folder", None),
        (("true",), "/etc/passwd", None),
        (("true",), None, "no-such-user"),
        (("true",), None, "0:no-such-group"),
        (("tr\0ue",), None, None),
        ((), None, None),
        (("true", "x" * 300_000), None, None),
        (("true", "x" * FRAME_BYTES_MAX), None, None),
    ],
)
async def test_what_never_ran_is_told_beside_the_output(
    worker: RunningWorker, argv: tuple[str, ...], cwd: str | None, user: str | None
) -> None:
    asked = Command(argv=argv, timeout_seconds=10.0, cwd=cwd)

    ended = await worker.exec(asked, user=user)

    assert isinstance(ended.how, NotStarted)
    assert ended.how.reason
    assert (ended.stdout.size, ended.stderr.size) == (0, 0)


@pytest.mark.case("FC-056")
async def test_our_own_words_printed_by_a_command_mean_nothing(
    worker: RunningWorker,
) -> None:
    words = "program x: No such file or directory"

    ended = await worker.sh(f"echo '{words}' >&2; exit 127")

    assert ended.how == Exited(127)
    assert ended.stderr.kept == f"{words}\n".encode()


@pytest.mark.case("FC-024", "FC-029", "FC-061")
async def test_the_deadline_ends_the_command_and_keeps_what_it_printed(
    worker: RunningWorker,
) -> None:
    word = processes.token()
    begun = time.monotonic()

    ended = await worker.sh(f"echo before; sleep {word}", timeout_seconds=0.5)

    assert isinstance(ended.how, TimedOut)
    assert 0.5 <= ended.how.after_seconds < 0.5 + MARGIN_SECONDS
    assert time.monotonic() - begun < 0.5 + MARGIN_SECONDS
    assert ended.stdout.kept == b"before\n"
    assert processes.with_word(word) == []


@pytest.mark.case("FC-025", "FC-050")
@pytest.mark.parametrize(
    "script",
    [
        "sleep {word} & wait",
        "setsid sleep {word} & wait",
        "(setsid setsid sleep {word} &) ; sleep {word}",
        "trap '' TERM; sleep {word} & while :; do sleep 1; done",
        "sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' x {word} & wait",
        "setsid env -i sleep {word} & exec sleep {word}",
        "kill -STOP $$; sleep {word}",
    ],
)
async def test_the_whole_tree_is_gone_when_the_deadline_is_told(
    worker: RunningWorker, script: str
) -> None:
    word = processes.token()
    asked = Command(
        argv=("/bin/sh", "-c", script.format(word=word)),
        timeout_seconds=0.5,
        grace_seconds=0.3,
    )

    ended = await worker.exec(asked)

    assert isinstance(ended.how, TimedOut)
    assert processes.with_word(word) == []


async def test_the_tree_has_its_grace_to_end_well(worker: RunningWorker) -> None:
    script = "trap 'echo tidied; exit 0' TERM; while :; do sleep 0.05; done"

    ended = await worker.sh(script, timeout_seconds=0.5)

    assert isinstance(ended.how, TimedOut)
    assert ended.stdout.kept == b"tidied\n"


@pytest.mark.case("FC-032")
async def test_who_holds_the_pipes_after_the_end_is_ended_and_counted(
    worker: RunningWorker,
) -> None:
    word = processes.token()
    begun = time.monotonic()

    ended = await worker.sh(f"sleep {word} & sleep {word} & echo word")

    assert ended.how == Exited(0)
    assert ended.stdout.kept == b"word\n"
    assert ended.leftovers_ended == 2
    assert time.monotonic() - begun < MARGIN_SECONDS
    assert processes.with_word(word) == []


@pytest.mark.case("FC-206")
async def test_busy_leftovers_without_our_pipes_are_ended_too(
    worker: RunningWorker,
) -> None:
    word = processes.token()
    busy = f"setsid sh -c 'while :; do :; done' x {word} >/dev/null 2>&1 </dev/null &"

    ended = await worker.sh(busy * 2)

    assert ended.how == Exited(0)
    assert ended.leftovers_ended == 2
    assert processes.with_word(word) == []


async def test_a_last_word_of_a_leftover_is_waited_for(worker: RunningWorker) -> None:
    ended = await worker.sh("(sleep 0.1; echo late) & echo early")

    assert ended.stdout.kept == b"early\nlate\n"
    assert ended.leftovers_ended == 0


@pytest.mark.case("FC-042")
async def test_endless_output_is_bounded_at_the_deadline(
    worker: RunningWorker,
) -> None:
    asked = Command(argv=("yes",), timeout_seconds=0.5, output_bytes_max=1001)

    ended = await worker.exec(asked)

    assert isinstance(ended.how, TimedOut)
    assert (len(ended.stdout.head), len(ended.stdout.tail)) == (501, 500)
    assert ended.stdout.dropped == ended.stdout.size - 1001 > 0


async def test_first_and_last_half_are_kept_byte_for_byte(
    worker: RunningWorker,
) -> None:
    asked = Command(
        argv=("seq", "1", "400000"), timeout_seconds=30.0, output_bytes_max=300_000
    )
    whole = "".join(f"{number}\n" for number in range(1, 400_001)).encode()

    ended = await worker.exec(asked)

    assert ended.stdout.head == whole[:150_000]
    assert ended.stdout.tail == whole[-150_000:]
    assert ended.stdout.size == len(whole)


async def test_a_command_that_detaches_leaves_its_daemon(
    worker: RunningWorker,
) -> None:
    word = processes.token()
    asked = Command(
        argv=("/bin/sh", "-c", f"setsid sleep {word} >/dev/null 2>&1 & echo up"),
        timeout_seconds=10.0,
        detaches=True,
    )

    ended = await worker.exec(asked)
    await worker.sh("true")

    assert ended.stdout.kept == b"up\n"
    (daemon,) = await processes.until_there(word)
    daemon.kill()
    await processes.until_gone(word)


@pytest.mark.case("FC-059")
async def test_a_hundred_ends_leave_nothing_defunct(worker: RunningWorker) -> None:
    for _ in range(100):
        ended = await worker.sh("sleep 100 & kill -9 $!; kill -9 $$")
        assert ended.how == Signalled(9)

    await spare_of(worker)  # It is all that is left.


async def test_five_hundred_commands_leak_no_descriptor(tmp_path: Path) -> None:
    async with worker_in(str(tmp_path), python=sys.executable) as worker:
        folder = f"/proc/{worker.hello.pid}/fd"
        await spare_of(worker)
        before = len(os.listdir(folder))

        for _ in range(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(25):
                    tasks.start_soon(worker.exec, command("true"))

        await spare_of(worker)
        assert len(os.listdir(folder)) == before


async def test_many_run_at_once(worker: RunningWorker) -> None:
    found: list[bytes] = []

    async def one(number: int) -> None:
        ended = await worker.sh(f"sleep 0.5; echo {number}")
        found.append(ended.stdout.kept)

    begun = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(one, number)

    assert sorted(found) == sorted(f"{number}\n".encode() for number in range(40))
    assert time.monotonic() - begun < 40 * 0.5


async def test_cancelling_the_call_ends_the_tree_first(worker: RunningWorker) -> None:
    word = processes.token()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.sh, f"setsid sleep {word} & sleep {word}")
        await processes.until_there(word, count=2)
        tasks.cancel_scope.cancel()

    assert processes.with_word(word) == []
    assert (await worker.sh("echo on")).stdout.kept == b"on\n"


@pytest.mark.peer("root")
async def test_a_command_drops_to_its_user(worker: RunningWorker) -> None:
    os.chmod(worker.folder, 0o755)
    script = 'id -u; id -g; echo "$HOME"; grep Groups /proc/self/status'
    asked = Command(argv=("/bin/sh", "-c", script), timeout_seconds=10.0, cwd="/")

    named = await worker.exec(asked, user="nobody")
    numbered = await worker.exec(asked, user="4321:8765")

    lines = named.stdout.kept.decode().splitlines()
    assert lines[:3] == ["65534", "65534", "/nonexistent"]
    assert numbered.stdout.kept.decode().splitlines()[:3] == ["4321", "8765", "/"]
    assert numbered.stdout.kept.decode().split("Groups:")[1].split() == []


@pytest.mark.case("FC-030")
async def test_no_bound_of_ours_ends_a_command_before_its_own(
    worker: RunningWorker,
) -> None:
    ended = await worker.exec(shell("sleep 2; echo done", timeout_seconds=1e9))

    assert ended.how == Exited(0)
    assert ended.stdout.kept == b"done\n"
