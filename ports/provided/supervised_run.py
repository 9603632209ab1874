# SPDX-License-Identifier: Apache-2.0
"""Supervised runs: a command that goes on in the sandbox without us.

A run is started detached, under a supervisor in the sandbox that enforces the
deadline, ends every descendant and writes a receipt. It is known by its id
alone, so it is found again after a lost connection or a restart. Its command is
sent once: when the reply to a launch is lost, the sandbox is asked what became
of it, and what has not started by then is forbidden for good.
"""

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal, assert_never

import anyio
import attrs

from ...domain.names import to_name
from ..required.harness import Watch
from ..required.sandbox import (
    Command,
    FileMissing,
    Liveness,
    Sandbox,
    SandboxFailed,
    SandboxLost,
)
from .run_receipts import (
    Absent,
    Finished,
    Forbidden,
    Launched,
    LaunchFailed,
    Receipt,
    RunId,
    RunLost,
    Running,
    RunState,
    RunStuck,
    Vanished,
    state_from,
)
from .sandbox_programs import (
    RuntimeMissing,
    SandboxProgram,
    Unreadable,
    Words,
    words_from,
)

__all__ = [
    "LaunchFailed",
    "Launched",
    "Receipt",
    "RunId",
    "RunLost",
    "RunStuck",
    "RuntimeMissing",
    "SandboxSession",
]

ASK_SECONDS = 60.0
"""How long one question to the supervisor may take, beside what it waits for."""
POLL_SECONDS = 45.0
"""A poll waits in the sandbox, so that an end is told at once however long it may wait;
but not the minute of silence after which many proxies cut a connection."""
FAILURES_MAX = 8
"""Failed questions in a row before the fault is passed on."""
RETRY_SECONDS_FIRST = 0.2
RETRY_SECONDS_MAX = 5.0
LATE_SECONDS = 5.0
"""How long after its deadline and grace a run that is not over is looked into."""
END_MARGIN_SECONDS = 30.0
"""What a run may take beyond its deadline and grace, to be seen gone and told."""
STOP_MARGIN_SECONDS = 15.0

Stream = Literal["stdout", "stderr"]


class SandboxSession:
    """The supervised runs of one sandbox."""

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        supervisor: bytes,
        python: str = "python3",
        failures_max: int = FAILURES_MAX,
    ) -> None:
        """Supervise in `sandbox`, by the worker script `supervisor`."""
        self._sandbox = sandbox
        self._failures_max = failures_max
        self._program = SandboxProgram(
            sandbox=sandbox, name="supervisor", text=supervisor, python=python
        )

    async def make_ready(self) -> None:
        """Put the supervisor down, if that was not done.

        Raises:
            RuntimeMissing: There is no Python that can supervise.
            SandboxLost, SandboxFailed: As they say.
        """
        await self._program.installed()

    async def launch(
        self,
        run: RunId,
        command: Command,
        *,
        stdin_path: str | None = None,
        watch: Watch | None = None,
    ) -> Launched:
        """Start `command` under the id `run`, unless that id was used already.

        What it reads is `command.stdin`, or the sandbox's file `stdin_path`. What
        `watch` says ends it before its deadline.

        Raises:
            LaunchFailed: It did not start and never will under this id.
            RuntimeMissing: There is no Python that can supervise.
            SandboxLost, SandboxFailed: What became of it is unknown yet; ask
                `forbid` before anything else.
        """
        words = {**self._request(command, stdin_path), **_watch_words(watch)}
        request = json.dumps(words).encode()
        await self.make_ready()
        told: Words = {}
        try:
            # Cut off, it would take what it has started with it, and the run would
            # seem to have ended by itself.
            with anyio.CancelScope(shield=True):
                told = await self._program.ask(
                    "launch",
                    self._folder(run),
                    timeout_seconds=ASK_SECONDS,
                    stdin=request,
                    detaches=True,
                )
        except (SandboxFailed, Unreadable):
            # It may have started, or start any moment. It is not sent again.
            return await self._settle(run, "the launch was cut off before it started")
        match told.get("state"):
            case "started":
                return Launched.STARTED
            case "exists":
                return Launched.EARLIER
            case _:
                reason = str(told.get("reason", "no reason was given"))
                return await self._settle(run, reason)

    async def state(self, run: RunId, *, wait_seconds: float = 0.0) -> RunState:
        """Tell how the run stands, at once or when it ends within `wait_seconds`."""
        return await self._ask(run, "status", wait_seconds=wait_seconds)

    async def stop(self, run: RunId, *, grace_seconds: float) -> RunState:
        """End the run, and tell how it stands then."""
        wait_seconds = grace_seconds + STOP_MARGIN_SECONDS
        return await self._ask(run, "stop", wait_seconds=wait_seconds)

    async def forbid(self, run: RunId) -> RunState:
        """Make certain that the run never starts when it has not; tell how it stands."""
        return await self._ask(run, "forbid")

    async def wait(
        self, run: RunId, *, timeout_seconds: float, grace_seconds: float
    ) -> Receipt:
        """Wait for the end of a run that was given this deadline and this grace.

        Raises:
            RunLost: There is no such run.
            RunStuck: It goes on beyond its deadline and cannot be stopped.
            SandboxFailed: Nobody can tell; for one, it is frozen beyond the deadline.
        """
        begun = anyio.current_time()
        longest = timeout_seconds + grace_seconds
        for seconds in (longest + LATE_SECONDS, longest + END_MARGIN_SECONDS):
            with anyio.move_on_after(begun + seconds - anyio.current_time()):
                while True:
                    state = await self._ask(run, "status", wait_seconds=POLL_SECONDS)
                    if (receipt := _receipt_of(run, state)) is not None:
                        return receipt
            if (await self._sandbox.status()).liveness is Liveness.FROZEN:
                raise self._program.failed("wait for a run", "it is frozen")
        with anyio.move_on_after(grace_seconds + STOP_MARGIN_SECONDS + ASK_SECONDS):
            state = await self.stop(run, grace_seconds=grace_seconds)
            if (receipt := _receipt_of(run, state)) is not None:
                return receipt
        raise RunStuck(run, anyio.current_time() - begun)

    async def run_to_end(
        self, run: RunId, command: Command, *, stdin_path: str | None = None
    ) -> Receipt:
        """Launch, or find again, and wait; cancelling the call stops the run."""
        try:
            await self.launch(run, command, stdin_path=stdin_path)
            return await self.wait(
                run,
                timeout_seconds=command.timeout_seconds,
                grace_seconds=command.grace_seconds,
            )
        except anyio.get_cancelled_exc_class():
            seconds = command.grace_seconds + STOP_MARGIN_SECONDS + ASK_SECONDS
            with anyio.move_on_after(seconds, shield=True):
                await self._stop_for_good(run, command.grace_seconds)
            raise

    async def _stop_for_good(self, run: RunId, grace_seconds: float) -> None:
        try:
            if isinstance(await self.forbid(run), Running):
                await self.stop(run, grace_seconds=grace_seconds)
        except (SandboxLost, SandboxFailed):
            return  # The deadline inside ends it; the caller is told of its own end.

    @asynccontextmanager
    async def output(
        self, run: RunId, stream: Stream
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open what was captured; while the run goes on, its beginning.

        Raises:
            FileMissing: Nothing was captured.
        """
        path = f"{self._folder(run)}/{stream}"
        async with AsyncExitStack() as stack:
            try:
                opened = self._sandbox.get(path)
                chunks = await stack.enter_async_context(opened)
            except FileMissing:
                opened = self._sandbox.get(f"{path}.head")
                chunks = await stack.enter_async_context(opened)
            yield chunks

    def _folder(self, run: RunId) -> str:
        return f"{self._sandbox.scratch}/runs/{to_name('run', run)}"

    def _request(self, command: Command, stdin_path: str | None) -> dict[str, object]:
        return {
            "argv": command.argv,
            "cwd": command.cwd or self._sandbox.workdir,
            "env": dict(command.env),
            "user": command.user,
            "timeout_seconds": command.timeout_seconds,
            "grace_seconds": command.grace_seconds,
            "output_bytes_max": command.output_bytes_max,
            "stdin_path": stdin_path,
            "stdin_base64": base64.b64encode(command.stdin).decode("ascii"),
        }

    async def _settle(self, run: RunId, reason: str) -> Launched:
        """Find out what became of a launch, and see that nothing more does."""
        state = await self.forbid(run)
        if isinstance(state, Forbidden):
            raise LaunchFailed(run, reason)
        return Launched.EXISTS

    async def _ask(
        self, run: RunId, question: str, *, wait_seconds: float = 0.0
    ) -> RunState:
        """Ask until there is an answer; a question changes nothing when repeated.

        Failures that come at once are waited out; one that took long is the last.
        """
        words = ("--wait", str(wait_seconds)) if wait_seconds else ()
        timeout_seconds = ASK_SECONDS + wait_seconds
        pause = RETRY_SECONDS_FIRST
        until = anyio.current_time() + timeout_seconds
        for failures in range(1, self._failures_max + 1):
            try:
                # No call of `ask`: each call that waits here does so for all the run.
                ended = await self._program.run(
                    question, self._folder(run), *words, timeout_seconds=timeout_seconds
                )
                return state_from(run, words_from(ended))
            except (SandboxFailed, Unreadable) as fault:
                is_late = anyio.current_time() >= until
                if failures == self._failures_max or is_late:
                    raise await self._told(
                        question, fault, looks=not is_late
                    ) from fault
                if isinstance(fault, Unreadable):
                    await self._program.restore()
            await anyio.sleep(pause)
            pause = min(pause * 2, RETRY_SECONDS_MAX)
        raise AssertionError("the loop returns or raises")

    async def _told(
        self, question: str, fault: SandboxFailed | Unreadable, *, looks: bool
    ) -> SandboxFailed:
        """Tell the last failure of a question as the sandbox's."""
        if isinstance(fault, SandboxFailed):
            return fault
        operation = f"{question} a supervised run"
        if not looks:
            return self._program.failed(operation, str(fault))
        return await self._program.unanswered(operation, str(fault))


def _watch_words(watch: Watch | None) -> dict[str, object]:
    words: dict[str, object] = {}
    if watch is not None and watch.last_line is not None:
        words["last_line"] = attrs.asdict(watch.last_line)
    if watch is not None and watch.silence is not None:
        words["silence"] = attrs.asdict(watch.silence)
    return words


def _receipt_of(run: RunId, state: RunState) -> Receipt | None:
    match state:
        case Finished(receipt) | Vanished(receipt):
            return receipt
        case Running():
            return None
        case Absent() | Forbidden():
            raise RunLost(run)
        case _:
            assert_never(state)
