# SPDX-License-Identifier: Apache-2.0
"""Cases for a sandbox under load, and for what it tells of itself.

Many calls run at once, the caller's event loop answers all the while, and
hundreds of commands leave neither descriptors here nor processes there.
"""

import gc
import json
import os
import time

import anyio

from ..required.sandbox import (
    Command,
    Exited,
    FileKind,
    Liveness,
    shell,
)
from ..required.sandbox_provider import Capability, Unsupported
from .cases import Case, check_cases
from .event_loop import check_loop_answers
from .sandbox_context import (
    PATIENCE_SECONDS,
    SandboxContext,
    caught,
    comes_true,
    fresh_folder,
    pieces,
    put,
    run,
)

AT_ONCE = 32
LEAK_AT_ONCE = 10
POOLED_DESCRIPTORS_MAX = 10
"""What a pool of connections may still open; a leak has one for each command."""
VISIBLE_TIMES = 200
UNASKED_PORT = 65_123


async def many_execs_at_once(context: SandboxContext) -> None:
    """Thirty-two commands meet each other and each gets its own output."""
    folder = await fresh_folder(context)
    script = (
        f': > "{folder}/$1"; until test "$(ls {folder} | wc -l)" -ge {AT_ONCE};'
        ' do sleep 1; done; echo "out $1"; exit "$1"'
    )
    failed: list[object] = []

    async def one(number: int) -> None:
        ended = await context.sandbox.exec(
            Command(
                argv=("/bin/sh", "-c", script, "name", str(number)),
                timeout_seconds=PATIENCE_SECONDS,
            )
        )
        if (ended.how, ended.stdout.kept) != (
            Exited(number),
            f"out {number}\n".encode(),
        ):
            failed.append(ended)

    async with anyio.create_task_group() as tasks:
        for number in range(AT_ONCE):
            tasks.start_soon(one, number)

    assert not failed


async def many_execs_leak_nothing(context: SandboxContext) -> None:
    """Hundreds of commands leave the descriptors here as they were."""
    await _execs(context, 2 * LEAK_AT_ONCE)
    before = _descriptors()

    await _execs(context, context.execs_many)

    gc.collect()
    assert _descriptors() <= before + POOLED_DESCRIPTORS_MAX
    assert await run(context, "echo on") == b"on\n"


async def many_execs_leave_no_process(context: SandboxContext) -> None:
    """Hundreds of commands leave no process inside, a defunct one included."""
    await _execs(context, 2 * LEAK_AT_ONCE)
    before = await _processes(context)

    await _execs(context, context.execs_many)

    async def settled() -> bool:
        return await _processes(context) <= before

    assert await comes_true(settled), f"more than the {before} processes of before"


async def the_loop_answers(context: SandboxContext) -> None:
    """Nothing that a sandbox does holds up the caller's event loop."""
    folder = await fresh_folder(context)
    content = os.urandom(5_000_000)

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_execs, context, AT_ONCE)
            tasks.start_soon(put, context, f"{folder}/big", content)
            tasks.start_soon(context.sandbox.status)
        await run(context, "sleep 1")

    await check_loop_answers(work)


async def a_file_is_there_for_the_next_command(context: SandboxContext) -> None:
    """What was put is seen by the command after it, every time."""
    folder = await fresh_folder(context)
    path = f"{folder}/seen"

    for number in range(VISIBLE_TIMES):
        word = f"round {number}".encode()
        await context.sandbox.put(path, pieces(word), size=len(word))
        assert await run(context, f"cat {path}") == word


async def it_tells_that_it_runs(context: SandboxContext) -> None:
    """A sandbox in use is running, has an id, and expires in the future."""
    sandbox = context.sandbox

    assert (await sandbox.status()).liveness is Liveness.RUNNING
    assert sandbox.sandbox_id
    assert sandbox.expires_at is None or sandbox.expires_at > time.time()


async def its_folders_are_there(context: SandboxContext) -> None:
    """Working folder and scratch exist; scratch is apart and ours alone."""
    sandbox = context.sandbox
    work, scratch = (
        await sandbox.stat(sandbox.workdir),
        await sandbox.stat(sandbox.scratch),
    )

    assert sandbox.workdir.startswith("/")
    assert sandbox.scratch.startswith("/")
    assert not f"{sandbox.scratch}/".startswith(f"{sandbox.workdir}/")
    assert work.kind is scratch.kind is FileKind.FOLDER
    assert scratch.mode == 0o700
    await put(context, f"{sandbox.scratch}/probe", b"1")
    assert await run(context, f"cat '{sandbox.scratch}/probe'") == b"1"


async def its_access_is_plain(context: SandboxContext) -> None:
    """What a borrower gets can be written as JSON and names the folder."""
    access = context.sandbox.access()

    assert access.provider
    assert access.workdir == context.sandbox.workdir
    assert json.loads(json.dumps(dict(access.descriptor))) == dict(access.descriptor)


async def a_port_not_asked_for(context: SandboxContext) -> None:
    """The way to a port that was not asked for is refused by name."""
    fault = await caught(context.sandbox.endpoint(UNASKED_PORT))

    assert isinstance(fault, Unsupported), fault


async def _execs(context: SandboxContext, count: int) -> None:
    """Run `count` commands, `LEAK_AT_ONCE` at a time; some print, some time out."""
    limit = anyio.CapacityLimiter(LEAK_AT_ONCE)

    async def one(number: int) -> None:
        script = f"cat >/dev/null; echo {number}; exit 7"
        async with limit:
            ended = await context.sandbox.exec(
                shell(script, timeout_seconds=PATIENCE_SECONDS)
            )
        assert ended.how == Exited(7), ended

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(one, number)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _processes(context: SandboxContext) -> int:
    listed = await run(context, "for p in /proc/[0-9]*; do echo $p; done")
    return len(listed.split())


CASES: tuple[Case[SandboxContext], ...] = check_cases(
    (
        Case(name="many execs at once", run=many_execs_at_once),
        Case(name="many execs leak nothing", run=many_execs_leak_nothing),
        Case(
            name="many execs leave no process",
            run=many_execs_leave_no_process,
            # Elsewhere the process list is the host's, with its own comings and goings.
            needs=frozenset({Capability.ISOLATION}),
        ),
        Case(name="the loop answers", run=the_loop_answers, field_cases=("FC-134",)),
        Case(
            name="a file is there for the next command",
            run=a_file_is_there_for_the_next_command,
            field_cases=("FC-071",),
        ),
        Case(name="it tells that it runs", run=it_tells_that_it_runs),
        Case(name="its folders are there", run=its_folders_are_there),
        Case(name="its access is plain", run=its_access_is_plain),
        Case(name="a port not asked for", run=a_port_not_asked_for),
    )
)
