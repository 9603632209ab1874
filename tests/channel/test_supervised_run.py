# SPDX-License-Identifier: Apache-2.0
"""Supervised runs over a real worker: started once, found again, ended."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.worker_scripts import program
from livery.ports.provided.run_receipts import (
    Absent,
    Cancelled,
    Finished,
    Forbidden,
    Launched,
    LaunchFailed,
    RunId,
    RunLost,
    Running,
    Vanished,
)
from livery.ports.provided.sandbox_programs import RuntimeMissing
from livery.ports.provided.supervised_run import SandboxSession
from livery.ports.required.sandbox import (
    Command,
    Exited,
    ExitUnknown,
    FileMissing,
    NotStarted,
    SandboxFailed,
    Signalled,
    TimedOut,
    shell,
)

from . import processes
from .worker_sandbox import WorkerSandbox, sandbox_in

pytestmark = pytest.mark.anyio

RUN = RunId("activation-1/Ä")
BOUND_SECONDS = 60.0


@pytest.fixture
async def sandbox(tmp_path: Path, python: str) -> AsyncIterator[WorkerSandbox]:
    async with sandbox_in(tmp_path, python) as opened:
        yield opened


@pytest.fixture
def session(sandbox: WorkerSandbox, python: str) -> SandboxSession:
    return new_session(sandbox, python)


def new_session(sandbox: WorkerSandbox, python: str) -> SandboxSession:
    return SandboxSession(sandbox, supervisor=program("supervisor"), python=python)


def command(script: str, *, timeout_seconds: float = BOUND_SECONDS) -> Command:
    return attrs.evolve(
        shell(script, timeout_seconds=timeout_seconds), grace_seconds=0.5
    )


async def output(session: SandboxSession, run: RunId = RUN) -> bytes:
    async with session.output(run, "stdout") as chunks:
        return b"".join([chunk async for chunk in chunks])


async def wait(session: SandboxSession, run: RunId = RUN) -> object:
    receipt = await session.wait(run, timeout_seconds=BOUND_SECONDS, grace_seconds=0.5)
    return receipt.how


def launches(sandbox: WorkerSandbox) -> int:
    return sum("launch" in command.argv for command in sandbox.sent)


async def test_a_run_is_waited_for_to_its_receipt(session: SandboxSession) -> None:
    receipt = await session.run_to_end(RUN, command("echo out; echo err! >&2; exit 3"))

    assert receipt.run == RUN
    assert receipt.how == Exited(3)
    assert receipt.seen_gone
    assert receipt.leftovers_ended == 0
    assert (receipt.stdout.size, receipt.stderr.size) == (4, 5)
    assert receipt.stdout.dropped == 0
    assert receipt.started_at is not None
    assert receipt.ended_at is not None
    assert 0 <= receipt.ended_at - receipt.started_at < BOUND_SECONDS
    assert await output(session) == b"out\n"


async def test_the_run_goes_on_after_the_command_that_launched_it(
    session: SandboxSession,
) -> None:
    word = processes.token()

    launched = await session.launch(RUN, command(f"sleep {word}"))
    await processes.until_there(word)
    state = await session.state(RUN)
    stopped = await session.stop(RUN, grace_seconds=0.5)

    assert launched is Launched.STARTED
    assert isinstance(state, Running)
    assert isinstance(stopped, Finished)
    assert isinstance(stopped.receipt.how, Cancelled)
    assert stopped.receipt.seen_gone
    assert processes.with_word(word) == []


@pytest.mark.case("FC-115")
async def test_a_run_outlives_its_connection_and_is_found_by_its_id(
    tmp_path: Path, python: str
) -> None:
    script = "echo start >> starts; sleep 1; echo done"
    async with sandbox_in(tmp_path, python) as sandbox:
        await new_session(sandbox, python).launch(RUN, command(script))

    async with sandbox_in(tmp_path, python) as sandbox:
        session = new_session(sandbox, python)
        launched = await session.launch(RUN, command(script))
        how = await wait(session)
        found = await output(session)

    assert launched is Launched.EARLIER
    assert how == Exited(0)
    assert found == b"done\n"
    assert (tmp_path / "workdir/starts").read_text() == "start\n"


@pytest.mark.case("FC-115")
async def test_a_launch_whose_reply_is_lost_is_not_sent_again(
    sandbox: WorkerSandbox, session: SandboxSession
) -> None:
    sandbox.cut_after.add("launch")

    launched = await session.launch(RUN, command("echo start >> starts"))

    assert launched is Launched.EXISTS
    assert await wait(session) == Exited(0)
    assert launches(sandbox) == 1
    assert Path(sandbox.workdir, "starts").read_text() == "start\n"


@pytest.mark.case("FC-115")
async def test_a_launch_that_did_not_arrive_never_starts_later(
    sandbox: WorkerSandbox, session: SandboxSession
) -> None:
    sandbox.cut_before.add("launch")

    with pytest.raises(LaunchFailed):
        await session.launch(RUN, command("echo start >> starts"))
    late = await session.launch(RUN, command("echo start >> starts"))
    state = await session.state(RUN)

    assert late is Launched.EARLIER
    assert isinstance(state, Forbidden)
    assert not Path(sandbox.workdir, "starts").exists()
    with pytest.raises(RunLost):
        await wait(session)


async def test_trouble_on_the_line_is_waited_out(
    sandbox: WorkerSandbox, session: SandboxSession
) -> None:
    await session.launch(RUN, command("sleep 0.5; exit 6"))
    sandbox.cut_before.add("status")
    sandbox.cut_after.add("status")

    assert await wait(session) == Exited(6)


async def test_trouble_that_does_not_end_is_passed_on(
    sandbox: WorkerSandbox,
) -> None:
    session = SandboxSession(sandbox, supervisor=program("supervisor"), failures_max=2)
    sandbox.cuts_all = True

    with pytest.raises(SandboxFailed, match="the line was cut"):
        await session.state(RUN)

    assert len(sandbox.sent) == 2


@pytest.mark.case("FC-024", "FC-061")
async def test_the_deadline_is_kept_inside(session: SandboxSession) -> None:
    word = processes.token()

    receipt = await session.run_to_end(
        RUN, command(f"echo before; setsid sleep {word}", timeout_seconds=0.5)
    )

    assert isinstance(receipt.how, TimedOut)
    assert receipt.seen_gone
    assert await output(session) == b"before\n"
    assert processes.with_word(word) == []


@pytest.mark.case("FC-099")
async def test_cancelling_the_wait_for_the_end_stops_the_run(
    session: SandboxSession,
) -> None:
    word = processes.token()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run_to_end, RUN, command(f"sleep {word}"))
        await processes.until_there(word)
        tasks.cancel_scope.cancel()

    state = await session.state(RUN)
    assert isinstance(state, Finished)
    assert isinstance(state.receipt.how, Cancelled)
    assert processes.with_word(word) == []


async def test_a_run_whose_supervisor_was_killed_is_unknown(
    session: SandboxSession,
) -> None:
    word = processes.token()

    receipt = await session.run_to_end(
        RUN,
        command(
            f"echo before; setsid sleep {word} & sleep 0.5; kill -9 $PPID; sleep {word}"
        ),
    )

    assert isinstance(receipt.how, ExitUnknown)
    assert not receipt.seen_gone
    assert receipt.stdout.fault
    assert isinstance(await session.state(RUN), Vanished)
    assert await output(session) == b"before\n"
    assert processes.with_word(word) == []


async def test_what_never_ran_and_what_was_killed_are_told_apart(
    session: SandboxSession,
) -> None:
    missing = Command(argv=("no-such-program",), timeout_seconds=5.0)

    first = await session.run_to_end(RunId("1"), missing)
    second = await session.run_to_end(RunId("2"), command("kill -9 $$"))

    assert isinstance(first.how, NotStarted)
    assert first.how.no_program
    assert second.how == Signalled(9)


async def test_words_folder_and_input_get_through(
    sandbox: WorkerSandbox, session: SandboxSession
) -> None:
    Path(sandbox.workdir, "sub").mkdir()
    Path(sandbox.scratch, "prompt").write_text("from a file")
    script = 'cat; printf " %s %s" "$1" "$A"; pwd'
    asked = Command(
        argv=("/bin/sh", "-c", script, "x", "--help"),
        timeout_seconds=BOUND_SECONDS,
        cwd=f"{sandbox.workdir}/sub",
        env={"A": "ä\n"},
        stdin=b"given",
    )

    await session.run_to_end(RunId("1"), asked)
    await session.run_to_end(
        RunId("2"),
        attrs.evolve(asked, stdin=b""),
        stdin_path=f"{sandbox.scratch}/prompt",
    )

    rest = f" --help ä\n{sandbox.workdir}/sub\n".encode()
    assert await output(session, RunId("1")) == b"given" + rest
    assert await output(session, RunId("2")) == b"from a file" + rest


async def test_output_can_be_read_while_it_grows(session: SandboxSession) -> None:
    word = processes.token()
    await session.launch(RUN, command(f"echo early; sleep {word}"))
    await processes.until_there(word)

    found = await output(session)
    await session.stop(RUN, grace_seconds=0.5)

    assert found == b"early\n"


async def test_a_run_that_nobody_launched_is_told(session: SandboxSession) -> None:
    assert isinstance(await session.state(RUN), Absent)
    with pytest.raises(RunLost):
        await wait(session)
    with pytest.raises(FileMissing):
        await output(session)


async def test_a_python_that_does_not_run_is_told(
    sandbox: WorkerSandbox, tmp_path: Path
) -> None:
    broken = tmp_path / "broken-python"
    broken.write_text("#!/bin/sh\necho no encodings >&2\nexit 1\n")
    broken.chmod(0o755)
    session = SandboxSession(sandbox, supervisor=b"", python=str(broken))

    with pytest.raises(RuntimeMissing, match="no encodings"):
        await session.launch(RUN, command("true"))


async def test_a_run_needs_no_python_on_disk_where_a_worker_runs(
    sandbox: WorkerSandbox,
) -> None:
    session = new_session(sandbox, "/no/python3")

    receipt = await session.run_to_end(RUN, command("exit 3"))

    assert receipt.how == Exited(3)


async def test_a_python_that_is_too_old_is_told(
    sandbox: WorkerSandbox, tmp_path: Path
) -> None:
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\necho 3 7\n")
    old.chmod(0o755)
    session = SandboxSession(sandbox, supervisor=b"", python=str(old))

    with pytest.raises(RuntimeMissing, match=r"3, 7"):
        await session.launch(RUN, command("true"))


async def test_the_supervisor_is_readable_by_its_user_alone(
    sandbox: WorkerSandbox, session: SandboxSession
) -> None:
    await session.run_to_end(RUN, command("true"))

    (script,) = Path(sandbox.scratch).glob("supervisor-*.py")
    assert script.stat().st_mode & 0o777 == 0o600
