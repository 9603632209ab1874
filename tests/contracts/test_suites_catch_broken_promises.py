# SPDX-License-Identifier: Apache-2.0
"""The suites can fail: each broken promise is caught by the case that asks for it.

A liar is the local provider or its sandbox with one promise broken.
"""

import contextlib
import os
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
)
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import attrs
import pytest

from livery.adapters.local_host import (
    CAPABILITIES,
    LocalHostSandboxProvider,
)
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.contracts import sandbox as sandbox_suite
from livery.ports.contracts import sandbox_provider as provider_suite
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Exited,
    FileMissing,
    FileStat,
    Output,
    Sandbox,
    SandboxAccess,
    SandboxFailed,
    Signalled,
    TimedOut,
)
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    ListedSandbox,
    SandboxProvider,
    SandboxSpec,
)

from ..local_host import places

pytestmark = pytest.mark.anyio

ContextT = TypeVar("ContextT")


class Delegate:
    """A sandbox that does what the one below it does."""

    def __init__(self, below: Sandbox) -> None:
        self.below = below

    def __getattr__(self, name: str) -> object:
        return getattr(self.below, name)


class ShellWords(Delegate):
    async def exec(self, command: Command) -> Ended:
        line = " ".join(command.argv)
        return await self.below.exec(
            attrs.evolve(command, argv=("/bin/sh", "-c", line))
        )


class MixedOutputs(Delegate):
    async def exec(self, command: Command) -> Ended:
        ended = await self.below.exec(command)
        both = ended.stdout.kept + ended.stderr.kept
        return attrs.evolve(ended, stdout=Output(head=both, size=len(both)))


class TimeoutIsAnExit(Delegate):
    async def exec(self, command: Command) -> Ended:
        ended = await self.below.exec(command)
        is_late = isinstance(ended.how, TimedOut)
        return attrs.evolve(ended, how=Exited(124)) if is_late else ended


class SignalIsAnExit(Delegate):
    async def exec(self, command: Command) -> Ended:
        ended = await self.below.exec(command)
        if isinstance(ended.how, Signalled):
            return attrs.evolve(ended, how=Exited(128 + ended.how.number))
        return ended


class SilentCut(Delegate):
    async def exec(self, command: Command) -> Ended:
        ended = await self.below.exec(command)
        kept = ended.stdout.head + ended.stdout.tail
        return attrs.evolve(ended, stdout=Output(head=kept, size=len(kept)))


class HostSideTimeout(Delegate):
    async def exec(self, command: Command) -> Ended:
        detached = attrs.evolve(command, timeout_seconds=5.0)
        ended: list[Ended] = []
        with anyio.move_on_after(command.timeout_seconds, shield=True):
            ended.append(await self.below.exec(detached))
        return ended[0] if ended else Ended(how=Exited(0))


class SecretsInArguments(Delegate):
    async def exec(self, command: Command) -> Ended:
        words = [f"{name}={value}" for name, value in command.env.items()]
        script = '"$@"; status=$?; exit $status'
        argv = ("/bin/sh", "-c", script, "sh", "env", *words, *command.argv)
        return await self.below.exec(attrs.evolve(command, argv=argv, env={}))


class MissingIsAFailure(Delegate):
    async def stat(self, path: str) -> FileStat:
        try:
            return await self.below.stat(path)
        except FileMissing as missing:
            raise SandboxFailed("liar", "x", "stat", str(missing)) from missing


class ModeForgotten(Delegate):
    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        await self.below.put(path, chunks, size=size)


class NamesTrimmed(Delegate):
    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        await self.below.put(path.strip(), chunks, size=size, mode=mode)


class DotsResolved(Delegate):
    async def stat(self, path: str) -> FileStat:
        return await self.below.stat(os.path.normpath(path) if "in" in path else path)


class HalfAFile(Delegate):
    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        async def until_it_breaks() -> AsyncIterator[bytes]:
            with contextlib.suppress(Exception):
                async for chunk in chunks:
                    yield chunk

        await self.below.put(path, until_it_breaks(), mode=mode)


class Blocking(Delegate):
    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        time.sleep(1.5)  # noqa: ASYNC251  it is what the case has to notice
        await self.below.put(path, chunks, size=size, mode=mode)


class LeavesDescriptors(Delegate):
    def __init__(self, below: Sandbox) -> None:
        super().__init__(below)
        self.left: list[int] = []

    def __del__(self) -> None:
        for descriptor in self.left:
            os.close(descriptor)

    async def exec(self, command: Command) -> Ended:
        self.left.append(os.dup(0))
        return await self.below.exec(command)


SANDBOX_LIARS: list[tuple[Callable[[Sandbox], Delegate], str]] = [
    (ShellWords, "words arrive one by one"),
    (MixedOutputs, "outputs are apart"),
    (TimeoutIsAnExit, "a timeout ends the program"),
    (HostSideTimeout, "a timeout ends the program"),
    (SignalIsAnExit, "a signal death is one"),
    (SilentCut, "output is bounded"),
    (SecretsInArguments, "secrets are in no process list"),
    (MissingIsAFailure, "a missing file is one"),
    (ModeForgotten, "the mode is kept"),
    (NamesTrimmed, "names are used as they are"),
    (DotsResolved, "names that lead out are refused"),
    (HalfAFile, "a cut transfer leaves nothing"),
    (Blocking, "the loop answers"),
    (LeavesDescriptors, "many execs leak nothing"),
]


class ProviderDelegate:
    """A provider that does what the one below it does."""

    def __init__(self, below: SandboxProvider) -> None:
        self.below = below

    def __getattr__(self, name: str) -> object:
        return getattr(self.below, name)


class EverySpecIsFine(ProviderDelegate):
    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> Sandbox:
        return await self.below.create(label, SandboxSpec())


class EveryOwnerIsFine(ProviderDelegate):
    async def find(self, label: ClaimLabel) -> Sandbox | None:
        return await self.below.find(attrs.evolve(label, owner=places.OWNER))


class ForgetsToDestroy(ProviderDelegate):
    async def destroy(self, label: ClaimLabel) -> None:
        await anyio.lowlevel.checkpoint()


class ListsEverybody(ProviderDelegate):
    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        for each in (places.OWNER, places.OTHER_OWNER):
            async for found in self.below.list(each):
                yield found


class FinishesWhatWasCancelled(ProviderDelegate):
    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> Sandbox:
        with anyio.CancelScope(shield=True):
            await self.below.create(label, spec)
        return await self.below.create(label, spec)


class ForgetsToUndo(ProviderDelegate):
    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> Sandbox:
        try:
            return await self.below.create(label, spec)
        except Exception:
            await self.below.create(label, SandboxSpec())
            raise


class DestroyingBorrower(ProviderDelegate):
    async def connect(self, access: SandboxAccess, *, borrower: ClaimId) -> Sandbox:
        sandbox = await self.below.connect(access, borrower=borrower)
        for found in [each async for each in self.below.list(places.OWNER)]:
            await self.below.destroy(found.label)
        return sandbox


PROVIDER_LIARS: list[tuple[Callable[[SandboxProvider], ProviderDelegate], str]] = [
    (EverySpecIsFine, "another spec is refused"),
    (EverySpecIsFine, "what it cannot do is refused"),
    (EverySpecIsFine, "what it cannot read is refused"),
    (EverySpecIsFine, "the spec counts"),
    (EveryOwnerIsFine, "another owner is refused"),
    (ForgetsToDestroy, "create gives a sandbox that works"),
    (ForgetsToDestroy, "destroying again succeeds"),
    (ListsEverybody, "only the owner's are listed"),
    (FinishesWhatWasCancelled, "a cancelled create leaves none"),
    (ForgetsToUndo, "a failed create leaves none"),
    (ForgetsToUndo, "as many live as succeeded"),
    (DestroyingBorrower, "a borrower uses and never ends"),
]


@asynccontextmanager
async def emptied(root: Path) -> AsyncGenerator[LocalHostSandboxProvider]:
    """Open a provider, and in the end destroy all that was made with it."""
    async with places.provider_in(root) as provider:
        try:
            yield provider
        finally:
            for owner in (places.OWNER, places.OTHER_OWNER):
                for found in [each async for each in provider.list(owner)]:
                    await provider.destroy(found.label)


@pytest.mark.parametrize(
    ("liar", "name"), SANDBOX_LIARS, ids=lambda value: getattr(value, "__name__", value)
)
async def test_a_sandbox_that_lies(
    liar: Callable[[Sandbox], Sandbox], name: str, tmp_path: Path
) -> None:
    (case,) = (case for case in sandbox_suite.CASES if case.name == name)

    async with emptied(tmp_path / "root") as provider:
        made = await provider.create(places.new_label(), SandboxSpec())
        context = SandboxContext(sandbox=liar(made), capabilities=CAPABILITIES)
        assert await is_caught(case.run, context)


@pytest.mark.parametrize(
    ("liar", "name"),
    PROVIDER_LIARS,
    ids=lambda value: getattr(value, "__name__", value),
)
async def test_a_provider_that_lies(
    liar: Callable[[SandboxProvider], SandboxProvider], name: str, tmp_path: Path
) -> None:
    (case,) = (case for case in provider_suite.CASES if case.name == name)

    async with emptied(tmp_path / "root") as provider:
        honest = places.provider_context(provider, tmp_path / "root")

        @asynccontextmanager
        async def open_again() -> AsyncGenerator[SandboxProvider]:
            async with honest.open_again() as again:
                yield liar(again)

        context = attrs.evolve(honest, provider=liar(provider), open_again=open_again)
        assert await is_caught(case.run, context)


async def is_caught(
    case: Callable[[ContextT], Awaitable[None]], context: ContextT
) -> bool:
    """Return whether the case fails by one of its own assertions."""
    try:
        await case(context)
    except AssertionError:
        return True
    except ExceptionGroup as group:
        return group.subgroup(AssertionError) is not None
    return False
