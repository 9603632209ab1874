# SPDX-License-Identifier: Apache-2.0
"""Cases for `Sandbox.exec`: that a command's whole tree ends, in time.

Nothing that a command started is left when the call returns, whether it ended
by itself, at its deadline or because the caller gave up: not in another
session, not deaf to TERM, not holding the pipes. What it had printed is kept.
"""

import os
import secrets
import subprocess
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import attrs

from ..required.sandbox import (
    DRAIN_SECONDS,
    GRACE_SECONDS,
    Command,
    Ended,
    Exited,
    ExitUnknown,
    Signalled,
    TimedOut,
    shell,
)
from ..required.sandbox_provider import Capability
from .cases import Case, check_cases
from .sandbox_context import (
    MARGIN_SECONDS,
    PATIENCE_SECONDS,
    SandboxContext,
    fresh_folder,
    processes_with,
    put,
    run,
    sleep_token,
    until_file,
    until_gone,
)

BUDGET_SECONDS = 1.0
LONG_BUDGET_SECONDS = 900.0
STILL_SECONDS = 0.4
"""How long a file must not grow to be taken for one that nobody writes."""


async def a_timeout_ends_the_program(context: SandboxContext) -> None:
    """At the deadline the program is gone inside, not here alone."""
    token = sleep_token()

    ended, taken = await _timed(
        context, Command(argv=("sleep", token), timeout_seconds=BUDGET_SECONDS)
    )

    assert isinstance(ended.how, TimedOut), ended
    assert ended.how.after_seconds >= BUDGET_SECONDS - 0.1
    assert taken <= BUDGET_SECONDS + GRACE_SECONDS + MARGIN_SECONDS
    assert await processes_with(context, token) == 0


async def a_timeout_ends_the_tree(context: SandboxContext) -> None:
    """Children end with it: in the background, in a session of their own."""
    token, folder = sleep_token(), await fresh_folder(context)
    script = f"""
        sleep {token} & sh -c 'sleep {token} & sleep {token}' &
        (sleep {token} & sleep {token} &) &
        if command -v setsid >/dev/null; then
            setsid sleep {token} & setsid sh -c 'sleep {token} & sleep {token}' &
        fi
        (while :; do echo beat >> {folder}/beats; done) &
        wait
    """

    ended, _ = await _timed(context, shell(script, timeout_seconds=BUDGET_SECONDS))
    before = await context.sandbox.stat(f"{folder}/beats")
    await anyio.sleep(STILL_SECONDS)
    after = await context.sandbox.stat(f"{folder}/beats")

    assert isinstance(ended.how, TimedOut), ended
    assert await processes_with(context, token) == 0
    assert before.size == after.size > 0


async def a_timeout_ends_the_deaf(context: SandboxContext) -> None:
    """A tree that ignores TERM ends by budget plus grace all the same."""
    token = sleep_token()
    script = f"trap '' TERM INT HUP; sleep {token} & sleep {token}; sleep {token}"
    command = attrs.evolve(
        shell(script, timeout_seconds=BUDGET_SECONDS), grace_seconds=1.0
    )

    ended, taken = await _timed(context, command)

    assert isinstance(ended.how, TimedOut), ended
    assert BUDGET_SECONDS + 0.9 <= taken <= BUDGET_SECONDS + 1.0 + MARGIN_SECONDS
    assert await processes_with(context, token) == 0


async def grace_lets_a_program_end(context: SandboxContext) -> None:
    """TERM comes first, and what is printed in the grace time is kept."""
    script = "trap 'echo bye; exit 0' TERM; echo on; while :; do sleep 1; done"
    command = attrs.evolve(
        shell(script, timeout_seconds=BUDGET_SECONDS), grace_seconds=5.0
    )

    ended, taken = await _timed(context, command)

    assert isinstance(ended.how, TimedOut), ended
    assert ended.stdout.kept == b"on\nbye\n"
    assert taken <= BUDGET_SECONDS + 2.0 + MARGIN_SECONDS


async def a_timeout_keeps_what_was_printed(context: SandboxContext) -> None:
    """Output until the deadline comes with the news of it."""
    ended, _ = await _timed(
        context,
        shell("echo out; echo err >&2; exec sleep 60", timeout_seconds=BUDGET_SECONDS),
    )

    assert isinstance(ended.how, TimedOut), ended
    assert ended.stdout.kept == b"out\n"
    assert ended.stderr.kept == b"err\n"


async def endless_output_is_bounded(context: SandboxContext) -> None:
    """A flood until the deadline is cut to its bound and its size told."""
    bound = 64 * 1024
    command = attrs.evolve(
        shell("while :; do echo 0123456789abcde; done", timeout_seconds=BUDGET_SECONDS),
        output_bytes_max=bound,
    )

    ended, _ = await _timed(context, command)

    assert isinstance(ended.how, TimedOut), ended
    assert len(ended.stdout.head) + len(ended.stdout.tail) <= bound
    assert ended.stdout.dropped > 0
    assert ended.stdout.head.startswith(b"0123456789abcde\n0123")
    assert b"bytes dropped" in ended.stdout.kept


async def a_leftover_does_not_hold_the_answer(context: SandboxContext) -> None:
    """A child that keeps the pipes open is ended soon after its parent's end."""
    for redirect in ("", ">/dev/null 2>&1 </dev/null"):
        token = sleep_token()
        script = f"sleep {token} {redirect} & echo word"

        ended, taken = await _timed(
            context, shell(script, timeout_seconds=PATIENCE_SECONDS)
        )

        assert ended.how == Exited(0), ended
        assert ended.stdout.kept == b"word\n"
        assert ended.leftovers_ended >= 1
        assert taken <= DRAIN_SECONDS + GRACE_SECONDS + MARGIN_SECONDS
        assert await processes_with(context, token) == 0


async def a_late_word_is_heard(context: SandboxContext) -> None:
    """What a child prints right after its parent's end still counts."""
    ended = await context.sandbox.exec(
        shell("(sleep 0; echo late) & exit 3", timeout_seconds=PATIENCE_SECONDS)
    )

    assert ended.how == Exited(3), ended
    assert ended.stdout.kept == b"late\n"


async def a_long_command_runs_to_its_end(context: SandboxContext) -> None:
    """The command's own budget counts, whatever the transport is used to."""
    seconds = context.long_command_seconds
    command = shell(
        f"sleep {seconds:.0f}; echo done", timeout_seconds=LONG_BUDGET_SECONDS
    )

    ended, taken = await _timed(context, command)

    assert ended.how == Exited(0), ended
    assert ended.stdout.kept == b"done\n"
    assert taken >= seconds - 0.5


async def cancelling_ends_the_tree(context: SandboxContext) -> None:
    """A call that is given up takes what it started with it."""
    token, folder = sleep_token(), await fresh_folder(context)
    script = f"trap '' TERM; sleep {token} & : > {folder}/on; sleep {token}"
    command = attrs.evolve(
        shell(script, timeout_seconds=PATIENCE_SECONDS), grace_seconds=0.5
    )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(context.sandbox.exec, command)
        await until_file(context, f"{folder}/on")
        tasks.cancel_scope.cancel()

    await until_gone(context, token)
    assert await run(context, "echo on") == b"on\n"


async def cancelling_at_any_moment(context: SandboxContext) -> None:
    """However early a call is given up, nothing of it stays."""
    token = sleep_token()
    command = Command(argv=("sleep", token), timeout_seconds=PATIENCE_SECONDS)

    for milliseconds in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144):
        with anyio.move_on_after(milliseconds / 1000):
            await context.sandbox.exec(command)

    await until_gone(context, token)


async def secrets_are_in_no_process_list(context: SandboxContext) -> None:
    """Values of variables and input are in no argument, inside or here."""
    folder = await fresh_folder(context)
    words = {"LV_SECRET": f"canary-{secrets.token_hex(8)}"}
    given = f"canary-{secrets.token_hex(8)}"
    script = f": > {folder}/on; until test -e {folder}/go; do sleep 1; done; cat"
    command = Command(
        argv=("/bin/sh", "-c", script),
        env=words,
        stdin=given.encode(),
        timeout_seconds=PATIENCE_SECONDS,
    )
    heard: list[Ended] = []

    async def keep() -> None:
        heard.append(await context.sandbox.exec(command))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep)
        await until_file(context, f"{folder}/on")
        for secret in (*words.values(), given):
            assert await processes_with(context, secret) == 0
            assert secret.encode() not in _command_lines_here()
        await put(context, f"{folder}/go", b"")

    assert heard[0].stdout.kept == given.encode()


async def killing_all_stays_inside(context: SandboxContext) -> None:
    """A command that kills whatever it can reach ends nothing outside."""
    token = sleep_token()
    async with AsyncExitStack() as stack:
        canary = await stack.enter_async_context(
            await anyio.open_process(
                ["sleep", token],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        stack.callback(canary.kill)
        # Without this look the next command would end the machine's processes,
        # were the sandbox none.
        assert await processes_with(context, token) == 0

        ended = await context.sandbox.exec(
            shell("kill -KILL -1; sleep 60", timeout_seconds=20.0)
        )

        assert isinstance(ended.how, Exited | Signalled | ExitUnknown | TimedOut), ended
        assert canary.returncode is None
        assert await run(context, "echo on") == b"on\n"


async def _timed(context: SandboxContext, command: Command) -> tuple[Ended, float]:
    start = time.monotonic()
    ended = await context.sandbox.exec(command)
    return ended, time.monotonic() - start


def _command_lines_here() -> bytes:
    """Return the arguments of every process that this host shows."""
    lines: list[bytes] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            lines.append(Path(f"/proc/{name}/cmdline").read_bytes())
        except OSError:
            continue  # It ended meanwhile.
    return b"\n".join(lines)


CASES: tuple[Case[SandboxContext], ...] = check_cases(
    (
        Case(
            name="a timeout ends the program",
            run=a_timeout_ends_the_program,
            field_cases=("FC-024", "FC-029"),
        ),
        Case(
            name="a timeout ends the tree",
            run=a_timeout_ends_the_tree,
            field_cases=("FC-025",),
        ),
        Case(
            name="a timeout ends the deaf",
            run=a_timeout_ends_the_deaf,
            field_cases=("FC-029", "FC-050"),
        ),
        Case(name="grace lets a program end", run=grace_lets_a_program_end),
        Case(
            name="a timeout keeps what was printed",
            run=a_timeout_keeps_what_was_printed,
            field_cases=("FC-061",),
        ),
        Case(
            name="endless output is bounded",
            run=endless_output_is_bounded,
            field_cases=("FC-042",),
        ),
        Case(
            name="a leftover does not hold the answer",
            run=a_leftover_does_not_hold_the_answer,
            field_cases=("FC-032",),
        ),
        Case(name="a late word is heard", run=a_late_word_is_heard),
        Case(
            name="a long command runs to its end",
            run=a_long_command_runs_to_its_end,
            field_cases=("FC-030",),
        ),
        Case(
            name="cancelling ends the tree",
            run=cancelling_ends_the_tree,
            field_cases=("FC-025",),
        ),
        Case(name="cancelling at any moment", run=cancelling_at_any_moment),
        Case(
            name="secrets are in no process list",
            run=secrets_are_in_no_process_list,
            field_cases=("FC-176",),
        ),
        Case(
            name="killing all stays inside",
            run=killing_all_stays_inside,
            needs=frozenset({Capability.ISOLATION}),
            field_cases=("FC-171",),
        ),
    )
)
