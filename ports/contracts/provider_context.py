# SPDX-License-Identifier: Apache-2.0
"""What the provider cases are given, and the few steps that they share.

The suite looks at a provider from both sides: through the port, and through
`Observe`, which the adapter's author writes over the thing at the other end, so
that a provider cannot vouch for itself.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio
import attrs

from ...domain.claims import OwnerId
from ..required.sandbox import Ended, Exited, Sandbox, shell
from ..required.sandbox_provider import (
    ClaimLabel,
    ListedSandbox,
    SandboxProvider,
    SandboxSpec,
)
from .sandbox_context import PATIENCE_SECONDS, comes_true, pieces

CLEANUP_SECONDS = 60.0
LOST_SECONDS_MAX = 15.0


class Observe(Protocol):
    """A look at the thing at the other end, past the provider."""

    async def left(self, label: ClaimLabel) -> tuple[str, ...]:
        """Name all that is there for a claim: machines, networks, folders, processes."""
        ...


@attrs.frozen(kw_only=True)
class ProviderContext:
    """A provider with nothing made, and where the cases may look."""

    provider: SandboxProvider
    open_again: Callable[[], AbstractAsyncContextManager[SandboxProvider]]
    """Open a second provider object over the same place, as after a restart."""
    spec: SandboxSpec
    """What the provider makes quickly."""
    new_label: Callable[[], ClaimLabel]
    """Give the label of a fresh claim, always of the same owner."""
    other_owner: OwnerId
    observe: Observe
    creates_at_once: int = 20
    short_lifetime_seconds: float = 3.0
    end_outside: Callable[[ClaimLabel], Awaitable[None]] | None = None
    """End the sandbox without the provider, as its crash or an operator would."""
    failing_spec: SandboxSpec | None = None
    """A spec that fails late in `create`, when something was made already."""
    host_address: str | None = None
    """Where a sandbox with a network reaches a listener of this host."""
    other_user: str | None = None
    """A user, as `uid:gid`, that `spec` can ask for."""


@asynccontextmanager
async def made(
    context: ProviderContext,
    *,
    label: ClaimLabel | None = None,
    spec: SandboxSpec | None = None,
) -> AsyncGenerator[tuple[ClaimLabel, Sandbox]]:
    """Make a sandbox, and see it destroyed in the end."""
    label = label or context.new_label()
    sandbox = await context.provider.create(label, spec or context.spec)
    try:
        yield label, sandbox
    finally:
        with anyio.move_on_after(CLEANUP_SECONDS, shield=True):
            await context.provider.destroy(label)


async def said(sandbox: Sandbox, script: str) -> str:
    """Have the shell run `script`, demand status 0, and return what it printed."""
    ended = await sandbox.exec(shell(script, timeout_seconds=PATIENCE_SECONDS))
    assert ended.how == Exited(0), ended
    return ended.stdout.kept.decode()


async def is_alive(sandbox: Sandbox) -> bool:
    """Return whether the sandbox runs a command."""
    ended = await sandbox.exec(shell("echo alive", timeout_seconds=PATIENCE_SECONDS))
    return ended.how == Exited(0) and ended.stdout.kept == b"alive\n"


async def put_word(sandbox: Sandbox, path: str, word: str) -> None:
    """Write a short file."""
    await sandbox.put(path, pieces(word.encode()), size=len(word))


async def read_word(sandbox: Sandbox, path: str) -> str:
    """Read a short file."""
    async with sandbox.get(path) as chunks:
        return b"".join([chunk async for chunk in chunks]).decode()


async def listed(provider: SandboxProvider, owner: OwnerId) -> list[ListedSandbox]:
    """Return all that the provider lists of an owner."""
    return [found async for found in provider.list(owner)]


async def ended_of(sandbox: Sandbox, script: str, into: list[Ended]) -> None:
    """Run `script` with much time and keep how it ended; for a task group."""
    into.append(await sandbox.exec(shell(script, timeout_seconds=PATIENCE_SECONDS)))


async def until_on(sandbox: Sandbox) -> None:
    """Wait until the command that makes the file `on` has begun."""
    script = "until test -e on; do sleep 1; done"
    ended = await sandbox.exec(shell(script, timeout_seconds=PATIENCE_SECONDS))
    assert ended.succeeded, ended


async def was_heard(heard: list[Ended]) -> bool:
    """Wait, within `LOST_SECONDS_MAX`, until the command's end was told."""

    async def some() -> bool:
        return bool(heard)

    return await comes_true(some, seconds=LOST_SECONDS_MAX)
