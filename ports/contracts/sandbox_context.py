# SPDX-License-Identifier: Apache-2.0
"""What the sandbox cases are given, and the few steps that they share.

Cases use `/bin/sh` and POSIX tools alone, so that they run in a sandbox that
has neither Python nor bash. Each works in a folder of its own, so that a suite
can run over one sandbox as well as over a fresh one per case.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import attrs

from ..required.sandbox import Command, Ended, Exited, FileMissing, Sandbox, shell
from ..required.sandbox_provider import Capabilities

MARGIN_SECONDS = 4.0
"""What a busy machine may add to any bound that a case looks at."""
PATIENCE_SECONDS = 60.0
"""The deadline of a command that should be done in an instant."""
POLL_SECONDS = 0.05
PIECE_BYTES = 64 * 1024


@attrs.frozen(kw_only=True)
class SandboxContext:
    """One sandbox that lives, and where the cases may look."""

    sandbox: Sandbox
    capabilities: Capabilities
    long_command_seconds: float = 6.0
    """Longer than any time-out of the transport, for the case that outlasts it."""
    execs_many: int = 500
    full_folder: str | None = None
    """A folder of the sandbox on a file system of its own with 2 MiB at most."""
    forbidden_folder: str | None = None
    """A folder of the sandbox that its user may not write to."""
    other_user: str | None = None
    """A user of the sandbox that commands may run as, given as `uid:gid`."""


async def run(context: SandboxContext, script: str, *, stdin: bytes = b"") -> bytes:
    """Have the shell run `script`, demand status 0, and return what it printed."""
    ended = await context.sandbox.exec(
        attrs.evolve(shell(script, timeout_seconds=PATIENCE_SECONDS), stdin=stdin)
    )
    assert ended.how == Exited(0), f"{script!r} ended with {ended}"
    assert ended.stdout.dropped == 0
    return ended.stdout.kept


async def run_in(context: SandboxContext, folder: str, script: str) -> Ended:
    """Have the shell run `script` in `folder`."""
    return await context.sandbox.exec(
        Command(
            argv=("/bin/sh", "-c", script), cwd=folder, timeout_seconds=PATIENCE_SECONDS
        )
    )


async def fresh_folder(context: SandboxContext) -> str:
    """Make a folder below `workdir` and return its relative path."""
    folder = f"case-{secrets.token_hex(6)}"
    await run(context, f"mkdir {folder}")
    return folder


def sleep_token() -> str:
    """Return a number of seconds that no other process sleeps for."""
    return str(secrets.randbelow(900_000_000) + 100_000_000)


async def processes_with(context: SandboxContext, token: str) -> int:
    """Count the sandbox's processes that have `token` in their arguments.

    The token goes in by standard input, so the search does not find itself.
    """
    found = await run(
        context,
        "grep -l -F -f - /proc/[0-9]*/cmdline 2>/dev/null; true",
        stdin=f"{token}\n".encode(),
    )
    return len(found.split())


async def until_gone(context: SandboxContext, token: str) -> None:
    """Wait, within `MARGIN_SECONDS`, until no process has `token`."""

    async def gone() -> bool:
        return not await processes_with(context, token)

    assert await comes_true(gone), f"a process with {token} is still there"


async def comes_true(
    look: Callable[[], Awaitable[bool]], *, seconds: float = MARGIN_SECONDS
) -> bool:
    """Look again and again; return whether it came true within `seconds`."""
    with anyio.move_on_after(seconds):
        while True:
            if await look():
                return True
            await anyio.sleep(POLL_SECONDS)
    return False


async def until_file(context: SandboxContext, path: str) -> None:
    """Wait, within `PATIENCE_SECONDS`, until there is something under `path`."""

    async def there() -> bool:
        try:
            await context.sandbox.stat(path)
        except FileMissing:
            return False
        return True

    assert await comes_true(there, seconds=PATIENCE_SECONDS), f"{path} never came"


async def pieces(content: bytes, *, piece: int = PIECE_BYTES) -> AsyncIterator[bytes]:
    """Give `content` in pieces."""
    for start in range(0, len(content), piece):
        yield content[start : start + piece]


async def put(context: SandboxContext, path: str, content: bytes) -> None:
    """Put `content` with its size told."""
    await context.sandbox.put(path, pieces(content), size=len(content))


async def get(context: SandboxContext, path: str) -> bytes:
    """Return the whole file."""
    async with context.sandbox.get(path) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def caught(act: Awaitable[object]) -> Exception:
    """Return what awaiting `act` raises, and demand that it raises."""
    try:
        await act
    except Exception as fault:  # The caller looks at which it was.
        return fault
    raise AssertionError("nothing was raised")
