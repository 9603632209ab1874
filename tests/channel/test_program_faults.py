# SPDX-License-Identifier: Apache-2.0
"""Programs in a sandbox that answers with every end that a command can have."""

import json
from collections.abc import AsyncIterable

import anyio
import anyio.lowlevel
import pytest

from livery.ports.provided.run_receipts import (
    Cancelled,
    Finished,
    Launched,
    LaunchFailed,
    RunId,
    Running,
    RunStuck,
    state_from,
)
from livery.ports.provided.sandbox_programs import (
    WORKERS_PYTHON,
    RuntimeMissing,
    Unreadable,
)
from livery.ports.provided.supervised_run import ASK_SECONDS, SandboxSession
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Exited,
    ExitUnknown,
    FileKind,
    FileMissing,
    FileStat,
    How,
    Liveness,
    Lost,
    NotStarted,
    Output,
    Sandbox,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
    Signalled,
    Status,
    TimedOut,
    shell,
)

pytestmark = pytest.mark.anyio

RUN = RunId("run")
COMMAND = shell("true", timeout_seconds=0.1)


def told(how: How, words: object = None) -> Ended:
    printed = b"" if words is None else json.dumps(words).encode()
    return Ended(how=how, stdout=Output(head=printed, size=len(printed)))


PYTHON = b"3 11\n/usr/bin/python3.11\n"
VERSION = Ended(how=Exited(0), stdout=Output(head=PYTHON, size=len(PYTHON)))


class AnsweringSandbox:
    """Runs nothing: `answer` gives the end of each command."""

    sandbox_id = SandboxId("answering")
    workdir = "/work"
    scratch = "/scratch"
    expires_at = None

    def __init__(self, answers: dict[str, Ended]) -> None:
        self.questions: list[str] = []
        self.answers = answers
        self.file: FileStat | FileMissing = FileMissing("/usr/bin/python3.11")
        self.liveness = Liveness.RUNNING
        self.programs: set[str] = set()
        self.puts = 0

    async def stat(self, path: str) -> FileStat:
        if path in self.programs:
            return STANDS
        if path != "/usr/bin/python3.11":
            raise FileMissing(path)
        if isinstance(self.file, FileMissing):
            raise self.file
        return self.file

    async def status(self) -> Status:
        return Status(liveness=self.liveness)

    async def exec(self, command: Command) -> Ended:
        if command.argv[0] == WORKERS_PYTHON:
            return self.answers.get(WORKERS_PYTHON, told(Exited(2)))
        question = "python" if "-c" in command.argv else command.argv[4]
        self.questions.append(question)
        await anyio.lowlevel.checkpoint()
        return self.answers[question]

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        assert size == sum([len(chunk) async for chunk in chunks])
        self.programs.add(path)
        self.puts += 1

    def access(self) -> SandboxAccess:
        return SandboxAccess(provider="answering", descriptor={}, workdir="/work")


def session_with(
    **answers: Ended,
) -> tuple[SandboxSession, AnsweringSandbox]:
    sandbox = AnsweringSandbox({"python": VERSION, **answers})
    # It has what is used of the port; the rest would be dead weight here.
    port: Sandbox = sandbox  # type: ignore[assignment]
    session = SandboxSession(port, supervisor=b"text", failures_max=2)
    return session, sandbox


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        (NotStarted("no such program"), RuntimeMissing),
        (Exited(127), RuntimeMissing),
        (Lost("it is gone"), SandboxLost),
        (Signalled(9), SandboxFailed),
        (TimedOut(60.0), SandboxFailed),
        (ExitUnknown("who knows"), SandboxFailed),
    ],
)
async def test_the_look_for_python_tells_what_it_found(
    how: How, fault: type[Exception]
) -> None:
    session, _ = session_with(python=told(how))

    with pytest.raises(fault):
        await session.launch(RUN, COMMAND)


async def test_a_sandbox_that_is_lost_is_not_asked_again() -> None:
    session, sandbox = session_with(status=told(Lost("it is gone")))

    with pytest.raises(SandboxLost, match="it is gone"):
        await session.state(RUN)

    assert sandbox.questions == ["python", "status"]


@pytest.mark.parametrize(
    "ended",
    [
        told(Exited(0)),
        told(Exited(0), ["no", "object"]),
        told(Exited(0), {"state": "dancing"}),
        told(Exited(0), {"state": "finished", "receipt": {"how": "danced"}}),
        told(Signalled(9), {"state": "running"}),
        told(ExitUnknown("who knows")),
    ],
)
async def test_what_cannot_be_read_is_asked_again_and_then_passed_on(
    ended: Ended,
) -> None:
    session, sandbox = session_with(status=ended)

    with pytest.raises(SandboxFailed):
        await session.state(RUN)

    assert sandbox.questions == ["python", "status", "status", "python"]


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_program_that_was_removed_is_put_there_again(is_removed: bool) -> None:
    session, sandbox = session_with(status=told(Exited(0), {"state": "running"}))
    await session.state(RUN)
    sandbox.answers["status"] = told(Exited(2))
    if is_removed:
        sandbox.programs.clear()

    with pytest.raises(SandboxFailed):
        await session.state(RUN)

    assert sandbox.puts == 1 + is_removed


BROKEN = told(Exited(1))
UNSTARTED = told(NotStarted("no such program"))
REMOVED = FileMissing("/usr/bin/python3.11")
STANDS = FileStat(kind=FileKind.FILE, size=1, mode=0o755)
LOCKED = FileStat(kind=FileKind.FILE, size=1, mode=0o644)


@pytest.mark.case("FC-171")
@pytest.mark.parametrize(
    ("now", "file", "from_inside"),
    [
        (VERSION, STANDS, False),
        (BROKEN, STANDS, True),
        (UNSTARTED, REMOVED, True),
        (UNSTARTED, LOCKED, True),
        (UNSTARTED, STANDS, False),  # No process can be made at all, say.
        (told(ExitUnknown("who knows")), STANDS, False),
    ],
)
async def test_a_python_that_was_removed_or_broken_is_told_as_such(
    now: Ended, file: FileStat | FileMissing, from_inside: bool
) -> None:
    session, sandbox = session_with(status=UNSTARTED)
    sandbox.file = file
    await session.make_ready()
    sandbox.answers["python"] = now

    with pytest.raises(SandboxFailed) as raised:
        await session.state(RUN)

    assert raised.value.from_inside is from_inside


async def test_a_program_runs_on_the_workers_python_when_its_own_was_removed() -> None:
    session, sandbox = session_with(status=UNSTARTED)
    sandbox.answers[WORKERS_PYTHON] = told(Exited(0), {"state": "running"})

    assert await session.state(RUN) == Running()


@pytest.mark.case("FC-115")
@pytest.mark.parametrize(
    "ended",
    [
        told(TimedOut(60.0)),
        told(ExitUnknown("who knows")),
        told(Exited(0), {"state": "failed", "reason": "no space"}),
        told(Exited(2), {"state": "misused", "reason": "argv is empty"}),
    ],
)
async def test_a_launch_in_doubt_is_settled_and_never_sent_again(
    ended: Ended,
) -> None:
    forbidden, running = {"state": "forbidden"}, {"state": "running"}
    refusing, first = session_with(launch=ended, forbid=told(Exited(0), forbidden))
    finding, second = session_with(launch=ended, forbid=told(Exited(0), running))

    with pytest.raises(LaunchFailed):
        await refusing.launch(RUN, COMMAND)
    found = await finding.launch(RUN, COMMAND)

    assert found is Launched.EXISTS
    assert first.questions == second.questions == ["python", "launch", "forbid"]


async def test_a_run_that_does_not_stop_is_stuck() -> None:
    running = told(Exited(0), {"state": "running"})
    session, sandbox = session_with(status=running, stop=running)

    with pytest.raises(RunStuck), anyio.fail_after(10):
        await session.wait(RUN, timeout_seconds=-29.9, grace_seconds=0.0)

    assert sandbox.questions[-1] == "stop"


async def test_a_sandbox_that_is_frozen_beyond_the_deadline_is_not_waited_for() -> None:
    running = told(Exited(0), {"state": "running"})
    session, sandbox = session_with(status=running)
    sandbox.liveness = Liveness.FROZEN

    with pytest.raises(SandboxFailed, match="frozen"), anyio.fail_after(10):
        await session.wait(RUN, timeout_seconds=-4.9, grace_seconds=0.0)


async def test_a_failure_that_took_long_is_not_tried_again() -> None:
    session, sandbox = session_with(status=told(ExitUnknown("no answer came")))
    await session.make_ready()

    with pytest.raises(SandboxFailed, match="no answer came"):
        await session.state(RUN, wait_seconds=-ASK_SECONDS)

    assert sandbox.questions == ["python", "status"]


async def test_a_run_that_is_stopped_late_has_its_receipt() -> None:
    receipt = {"how": "cancelled", "reason": "it was stopped", "gone": True}
    finished = told(Exited(0), {"state": "finished", "receipt": receipt})
    running = told(Exited(0), {"state": "running"})
    session, _ = session_with(status=running, stop=finished)

    found = await session.wait(RUN, timeout_seconds=-29.9, grace_seconds=0.0)

    assert found.how == Cancelled("it was stopped")


async def test_a_stop_that_fails_does_not_hide_the_cancellation() -> None:
    session, sandbox = session_with(
        launch=told(Exited(0), {"state": "started"}),
        status=told(Exited(0), {"state": "running"}),
        forbid=told(Lost("it is gone")),
    )

    with anyio.move_on_after(0.2) as scope:
        while True:
            await session.run_to_end(RUN, shell("true", timeout_seconds=1e6))

    assert scope.cancelled_caught
    assert sandbox.questions[-1] == "forbid"


def test_what_could_not_be_ended_makes_the_end_unknown() -> None:
    receipt = {"how": "exited", "number": 0, "gone": False, "alive": [7, 8]}

    state = state_from(RUN, {"state": "finished", "receipt": receipt})

    assert isinstance(state, Finished)
    assert state.receipt.how == ExitUnknown("processes [7, 8] could not be ended")
    assert not state.receipt.seen_gone


@pytest.mark.parametrize(
    "number",
    [float("inf"), float("nan"), 10**400, "3", None],
    ids=["infinite", "no number", "huge", "text", "none"],
)
def test_a_time_that_is_no_number_is_as_good_as_none(number: object) -> None:
    receipt = {"how": "exited", "number": 0, "gone": True, "seconds": number}
    receipt |= {"started_at": number, "ended_at": number}

    state = state_from(RunId("r"), {"state": "finished", "receipt": receipt})

    assert isinstance(state, Finished)
    assert state.receipt.duration_seconds == 0.0
    assert (state.receipt.started_at, state.receipt.ended_at) == (None, None)


def test_a_state_that_nobody_knows_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="dancing"):
        state_from(RUN, {"state": "dancing"})
