# SPDX-License-Identifier: Apache-2.0
"""Commands in an image without a Python: one engine exec for each.

The shell's wrapper (`plain_scripts`) keeps the deadline inside, ends the whole
tree and tells how the command ended. Where the wrapper itself was ended, or the
call is given up, a second exec as root ends what is left of the tree.

What a shell cannot see stays unseen: a death by INT or PIPE is told as the
exit status 130 or 141 that the shell makes of it.
"""

import math
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import attrs

from ...ports.required.sandbox import (
    DRAIN_SECONDS,
    Command,
    Ended,
    Exited,
    ExitUnknown,
    How,
    NotStarted,
    Signalled,
    TimedOut,
)
from ...ports.required.sandbox_provider import ProviderForbidden, ProviderUnreachable
from .bounded_output import BoundedOutput
from .container_config import ROOT
from .engine import Engine
from .engine_faults import EngineRefused
from .plain_dialogue import Dialogue, InputClosed, ScriptEnded, Told
from .plain_scripts import RUN, SWEEP

START_SECONDS = 60.0
END_SECONDS = 20.0
"""What the end of a tree may take beyond deadline and grace."""
LAST_OUTPUT_SECONDS = 1.0
WATCH_SECONDS = 3.0
LIMIT_SECONDS_MAX = 10 * 365 * 86_400
EXIT_LOOKS_MAX = 40
EXIT_LOOK_SECONDS = 0.05
TAG_BITS = 40
STDIN_BYTES = 256 * 1024


@attrs.define
class _Heard:
    """What is known of a command so far."""

    stdout: BoundedOutput
    stderr: BoundedOutput
    begun: anyio.Event = attrs.field(factory=anyio.Event)
    has_gone: bool = False
    """Whether the wrapper may have been told to run the command."""
    last: Told | None = None


class PlainExec:
    """Runs commands in one container."""

    def __init__(self, engine: Engine, container: str) -> None:
        """Run them in `container`."""
        self._engine = engine
        self._container = container

    async def exec(
        self, command: Command, *, cwd: str, env: Mapping[str, str], user: str | None
    ) -> Ended:
        """Run a command to its end, as `WorkerChannel.exec` does.

        Raises:
            EngineRefused: The container takes no exec.
        """
        if not command.argv:
            return Ended(how=NotStarted("no program was named"))
        tag = str(2**TAG_BITS + secrets.randbelow(2**TAG_BITS))
        heard = _Heard(
            BoundedOutput(bytes_max=command.output_bytes_max),
            BoundedOutput(bytes_max=command.output_bytes_max),
        )
        start = time.monotonic()
        words = _words(command, tag=tag, cwd=cwd)
        variables = {**env, **command.env}
        try:
            async with self.dialogue(RUN, words, user=user, env=variables) as (
                dialogue,
                exec_id,
            ):
                try:
                    await self._converse(dialogue, exec_id, command, heard)
                except BaseException:
                    await self._give_up(heard, tag, command.grace_seconds)
                    raise
                how = await self._how(exec_id, command, heard, tag)
        except EngineRefused as refused:
            if refused.status not in {400, 500}:
                raise
            how = NotStarted(refused.text)
        seconds = time.monotonic() - start
        return Ended(
            how=attrs.evolve(how, after_seconds=seconds)
            if isinstance(how, TimedOut)
            else how,
            stdout=heard.stdout.told(),
            stderr=heard.stderr.told(),
            duration_seconds=seconds,
            leftovers_ended=_leftovers(heard.last),
        )

    @asynccontextmanager
    async def dialogue(
        self,
        script: str,
        words: Iterable[str],
        *,
        user: str | None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[tuple[Dialogue, str]]:
        """Start a script, which waits for its word; the exec's id comes with it."""
        # Given up while it starts, it would run without anybody to end it. Until
        # it has its word it does nothing, and it ends when its input does.
        attached = None
        with anyio.move_on_after(START_SECONDS, shield=True):
            attached = await self._engine.exec_attached(
                self._container,
                ("/bin/sh", "-c", script, "sandbox", *words),
                user=user or ROOT,
                env=env,
            )
        if attached is None:
            raise ScriptEnded(f"it was not started within {START_SECONDS:g} s")
        dialogue = Dialogue(attached)
        try:
            await anyio.lowlevel.checkpoint()
            yield dialogue, attached.exec_id
        finally:
            dialogue.close()

    async def _converse(
        self, dialogue: Dialogue, exec_id: str, command: Command, heard: _Heard
    ) -> None:
        """Give the command its input and take its output, until it is over."""
        patience = (
            min(command.timeout_seconds, LIMIT_SECONDS_MAX)
            + command.grace_seconds
            + END_SECONDS
        )
        with anyio.move_on_after(patience):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_feed, dialogue, heard, command.stdin)
                tasks.start_soon(self._watch, exec_id, tasks.cancel_scope)
                await _listen(dialogue, heard)
                tasks.cancel_scope.cancel()

    async def _watch(self, exec_id: str, talk: anyio.CancelScope) -> None:
        """End the talk with a wrapper that was ended while its command lives on.

        The command holds the streams open, and nobody is left to tell of it.
        """
        while True:
            await anyio.sleep(WATCH_SECONDS)
            try:
                if await self._engine.exec_exit_code(exec_id) is None:
                    continue
            except (EngineRefused, ProviderUnreachable, ProviderForbidden):
                continue  # What is wrong is found when the stream ends.
            await anyio.sleep(LAST_OUTPUT_SECONDS)
            talk.cancel()

    async def _give_up(self, heard: _Heard, tag: str, grace_seconds: float) -> None:
        """End what the command started, however far it has come."""
        if not heard.has_gone:
            return  # Without its second line the wrapper ends as its input does.
        with anyio.move_on_after(grace_seconds + END_SECONDS, shield=True):
            await self._sweep(tag, grace_seconds)

    async def _sweep(self, tag: str, grace_seconds: float) -> int | None:
        """End all that has the mark; return how many live on, None if unknown."""
        grace = str(math.ceil(grace_seconds * 1000))
        try:
            async with self.dialogue(SWEEP, (grace,), user=ROOT) as (dialogue, _):
                await dialogue.begin()
                await dialogue.send(f"{tag}\n".encode())
                async for part in dialogue.heard():
                    if isinstance(part, Told) and part.word == "left":
                        return part.numbers[0]
        except (EngineRefused, InputClosed):
            return None  # The container is gone, and all that ran in it.
        return None

    async def _how(
        self, exec_id: str, command: Command, heard: _Heard, tag: str
    ) -> How:
        last = heard.last
        if last is not None and last.word == "absent":
            return NotStarted(last.rest)
        if last is not None and last.word == "ended":
            code, signalled, timed, _, left = last.numbers
            if left and await self._sweep(tag, command.grace_seconds):
                return ExitUnknown(f"{left} of its processes could not be ended")
            if timed:
                return TimedOut(command.timeout_seconds)
            return Signalled(code - 128) if signalled else Exited(code)
        status = await self._exit_code(exec_id)
        if not heard.begun.is_set() and status:
            # What is heard is the engine's word on why its exec did not start.
            reason = _one_line(heard.stdout) or _one_line(heard.stderr)
            return NotStarted(reason or "it could not be started")
        alive = await self._sweep(tag, command.grace_seconds)
        if not heard.has_gone:
            return NotStarted("its wrapper did not begin in time")
        if alive == 0 and status is None:
            return TimedOut(command.timeout_seconds)
        return ExitUnknown("its wrapper was ended before it could tell")

    async def _exit_code(self, exec_id: str) -> int | None:
        """Return how the wrapper ended; known a moment after its stream's end."""
        for _ in range(EXIT_LOOKS_MAX):
            if (code := await self._engine.exec_exit_code(exec_id)) is not None:
                return code
            await anyio.sleep(EXIT_LOOK_SECONDS)
        return None


async def _feed(dialogue: Dialogue, heard: _Heard, stdin: bytes) -> None:
    try:
        await dialogue.begin()
        await heard.begun.wait()
        heard.has_gone = True
        await dialogue.send(b"go\n")
        for start in range(0, len(stdin), STDIN_BYTES):
            await dialogue.send(stdin[start : start + STDIN_BYTES])
        dialogue.send_end()
    except InputClosed:
        return  # A command need not read what it is given.


async def _listen(dialogue: Dialogue, heard: _Heard) -> None:
    with anyio.CancelScope() as scope:
        async for part in dialogue.heard():
            if not isinstance(part, Told):
                output = heard.stderr if part.is_stderr else heard.stdout
                output.add(part.piece)
            elif part.word == "begin":
                heard.begun.set()
            else:
                heard.last = part
                # Whoever still holds the pipes does not hold up the answer.
                scope.deadline = anyio.current_time() + LAST_OUTPUT_SECONDS


def _words(command: Command, *, tag: str, cwd: str) -> list[str]:
    limit = min(command.timeout_seconds, LIMIT_SECONDS_MAX)
    whole = math.ceil(limit)
    return [
        tag,
        str(whole) if limit == whole else f"{limit:.3f}",
        str(whole),
        str(math.ceil(command.grace_seconds * 1000)),
        str(math.ceil(DRAIN_SECONDS * 1000)),
        "1" if command.detaches else "0",
        cwd,
        *command.argv,
    ]


def _leftovers(last: Told | None) -> int:
    return last.numbers[3] if last is not None and last.word == "ended" else 0


def _one_line(output: BoundedOutput) -> str:
    return " ".join(output.told().kept.decode(errors="replace").split())[:500]
