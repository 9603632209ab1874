# SPDX-License-Identifier: Apache-2.0
"""Cases for what happens to a sandbox: lent, lost, expired, left alone.

A borrower uses a sandbox and never ends it. A sandbox that ends under a command
is told as lost, soon, and not as the command's own doing. It outlives the
provider object that made it, and not its lifetime.
"""

import json
import time
from collections.abc import Awaitable, Callable

import anyio
import attrs

from ...domain.claims import ClaimId
from ..required.sandbox import (
    Ended,
    Liveness,
    Lost,
    Sandbox,
    SandboxAccess,
    SandboxLost,
    shell,
)
from ..required.sandbox_provider import (
    Capability,
    ClaimLabel,
    SpecRefused,
    Unsupported,
)
from .cases import Case, check_cases
from .provider_context import (
    LOST_SECONDS_MAX,
    ProviderContext,
    ended_of,
    is_alive,
    made,
    put_word,
    said,
    until_on,
    was_heard,
)
from .sandbox_context import caught, comes_true

End = Callable[[ClaimLabel], Awaitable[None]]


async def it_outlives_its_provider(context: ProviderContext) -> None:
    """Closing a provider ends no sandbox; the next one finds it as it was."""
    label = context.new_label()
    try:
        async with context.open_again() as first:
            sandbox = await first.create(label, context.spec)
            await put_word(sandbox, "word", "kept")
            await sandbox.disconnect()

        async with context.open_again() as second:
            found = await second.find(label)
            assert found is not None
            assert found.sandbox_id == sandbox.sandbox_id
            assert await said(found, "cat word") == "kept"
    finally:
        await context.provider.destroy(label)


async def a_command_ends_with_the_sandbox(context: ProviderContext) -> None:
    """Destroying a sandbox in use is seen as its loss, not as an exit."""
    async with made(context) as (label, sandbox):
        fault = await _lost_under_a_command(sandbox, context.provider.destroy, label)
        assert isinstance(fault, SandboxLost), fault


async def ended_outside_is_lost(context: ProviderContext) -> None:
    """A sandbox that somebody ended is told as lost within seconds."""
    assert context.end_outside is not None
    async with made(context) as (label, sandbox):
        fault = await _lost_under_a_command(sandbox, context.end_outside, label)
        later = await sandbox.exec(shell("echo on", timeout_seconds=5.0))

        assert isinstance(fault, SandboxLost), fault
        assert isinstance(later.how, Lost), later
        assert later.stdout.size == later.stderr.size == 0
        assert (await sandbox.status()).liveness is Liveness.ENDED
        assert await context.provider.find(label) is None


async def it_ends_when_its_time_is_over(context: ProviderContext) -> None:
    """The lifetime is absolute, also under a command, and begins when ready."""
    lifetime = context.short_lifetime_seconds
    spec = attrs.evolve(context.spec, lifetime_seconds=lifetime)
    before = time.time()

    async with made(context, spec=spec) as (label, sandbox):
        ready, heard = time.time(), list[Ended]()
        assert sandbox.expires_at is not None
        assert before + lifetime <= sandbox.expires_at <= ready + lifetime + 1.0
        with anyio.fail_after(lifetime + LOST_SECONDS_MAX):
            await ended_of(sandbox, "sleep 300", heard)

        assert isinstance(heard[0].how, Lost), heard
        assert time.time() >= sandbox.expires_at - 1.0
        assert await context.provider.find(label) is None


async def it_ends_without_us(context: ProviderContext) -> None:
    """A sandbox whose maker is gone ends at its time by itself."""
    lifetime = context.short_lifetime_seconds
    spec = attrs.evolve(context.spec, lifetime_seconds=lifetime)
    label = context.new_label()
    try:
        async with context.open_again() as maker:
            sandbox = await maker.create(label, spec)
            access = sandbox.access()
        assert sandbox.expires_at is not None
        await anyio.sleep(max(0.0, sandbox.expires_at - time.time()))

        async def is_over() -> bool:
            return await context.provider.find(label) is None

        assert await comes_true(is_over, seconds=LOST_SECONDS_MAX)
        if Capability.LENDING in context.provider.capabilities:
            borrower = ClaimId("borrower")
            fault = await caught(context.provider.connect(access, borrower=borrower))
            assert isinstance(fault, SandboxLost), fault
    finally:
        await context.provider.destroy(label)
    assert await context.observe.left(label) == ()


async def a_borrower_uses_and_never_ends(context: ProviderContext) -> None:
    """A lent sandbox works for the borrower and lives on when he goes."""
    async with made(context) as (_, owners):
        await put_word(owners, "word", "lent")
        told = json.loads(json.dumps(attrs.asdict(owners.access())))
        access = SandboxAccess(**told)

        async with context.open_again() as elsewhere:
            identity = await elsewhere.identify(access)
            borrowed = await elsewhere.connect(access, borrower=ClaimId("borrower-1"))
            assert await elsewhere.identify(borrowed.access()) == identity
            assert await said(borrowed, "cat word; echo back > reply") == "lent"
            assert borrowed.workdir == owners.workdir
            assert borrowed.scratch != owners.scratch
            await put_word(borrowed, f"{borrowed.scratch}/own", "x")
            scratch = borrowed.scratch
            await borrowed.disconnect()
            # The second borrower goes without a word, as after a crash.
            second = await elsewhere.connect(access, borrower=ClaimId("borrower-2"))
            assert second.scratch not in (scratch, owners.scratch)
            assert await is_alive(second)

        assert await is_alive(owners)
        assert await said(owners, "cat reply") == "back\n"
        assert await said(owners, f"test -e '{scratch}/own' || echo gone") == "gone\n"


async def a_borrower_sees_the_end(context: ProviderContext) -> None:
    """The owner's end of a lent sandbox is the borrower's loss."""
    async with made(context) as (label, owners), context.open_again() as elsewhere:
        borrowed = await elsewhere.connect(
            owners.access(), borrower=ClaimId("borrower")
        )

        fault = await _lost_under_a_command(borrowed, context.provider.destroy, label)

        assert isinstance(fault, SandboxLost), fault


async def what_is_gone_is_not_lent(context: ProviderContext) -> None:
    """Connecting to what does not run is refused with its reason."""
    async with made(context) as (_, sandbox):
        access = sandbox.access()

    fault = await caught(context.provider.connect(access, borrower=ClaimId("borrower")))

    assert isinstance(fault, SandboxLost), fault
    assert fault.reason


async def an_odd_descriptor_is_refused(context: ProviderContext) -> None:
    """A descriptor that is not the provider's is refused before anything.

    A provider that cannot lend says so, whatever the descriptor.
    """
    can_lend = Capability.LENDING in context.provider.capabilities
    descriptors: tuple[dict[str, str], ...] = ({}, {"livery-no-such-word": "x"})
    for descriptor in descriptors:
        access = SandboxAccess(
            provider=context.provider.name, descriptor=descriptor, workdir="/"
        )
        for ask in (
            context.provider.identify(access),
            context.provider.connect(access, borrower=ClaimId("borrower")),
        ):
            fault = await caught(ask)
            assert isinstance(fault, SpecRefused if can_lend else Unsupported), fault


async def _lost_under_a_command(
    sandbox: Sandbox, end: End, label: ClaimLabel
) -> Exception:
    """End the sandbox under a command; demand `Lost`; return the next fault."""
    heard: list[Ended] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ended_of, sandbox, ": > on; sleep 300", heard)
        await until_on(sandbox)
        await end(label)
        assert await was_heard(heard)

    assert isinstance(heard[0].how, Lost), heard
    return await caught(sandbox.stat("on"))


CASES: tuple[Case[ProviderContext], ...] = check_cases(
    (
        Case(name="it outlives its provider", run=it_outlives_its_provider),
        Case(
            name="a command ends with the sandbox",
            run=a_command_ends_with_the_sandbox,
            field_cases=("FC-037",),
        ),
        Case(
            name="ended outside is lost",
            run=ended_outside_is_lost,
            hooks=frozenset({"end_outside"}),
            field_cases=("FC-037", "FC-054"),
        ),
        Case(
            name="it ends when its time is over",
            run=it_ends_when_its_time_is_over,
            field_cases=("FC-102",),
        ),
        Case(
            name="it ends without us",
            run=it_ends_without_us,
            needs=frozenset({Capability.EXPIRY}),
        ),
        Case(
            name="a borrower uses and never ends",
            run=a_borrower_uses_and_never_ends,
            needs=frozenset({Capability.LENDING}),
            field_cases=("FC-096",),
        ),
        Case(
            name="a borrower sees the end",
            run=a_borrower_sees_the_end,
            needs=frozenset({Capability.LENDING}),
        ),
        Case(
            name="what is gone is not lent",
            run=what_is_gone_is_not_lent,
            needs=frozenset({Capability.LENDING}),
            field_cases=("FC-104",),
        ),
        Case(name="an odd descriptor is refused", run=an_odd_descriptor_is_refused),
    )
)
