# SPDX-License-Identifier: Apache-2.0
"""Cases for claims: one sandbox a claim, found again, and seen gone.

The same create twice gives one sandbox; another spec or another owner under its
name is refused. A create that fails or is given up leaves nothing. Destroying
twice is a success, and only the owner's are listed.
"""

import math
import time

import anyio
import attrs

from ..required.sandbox import Sandbox, SandboxLost
from ..required.sandbox_provider import (
    Capability,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    Mount,
    Network,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)
from .cases import Case, check_cases
from .event_loop import check_loop_answers
from .provider_context import (
    ProviderContext,
    is_alive,
    listed,
    made,
    put_word,
    read_word,
    said,
)
from .sandbox_context import caught

CANCEL_SECONDS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
CREATE_AGAIN_TIMES = 3


async def create_gives_a_sandbox_that_works(context: ProviderContext) -> None:
    """Commands and files work when create returns; nothing is left at the end."""
    async with made(context) as (label, sandbox):
        await put_word(sandbox, "word", "given")
        assert await said(sandbox, "cat word") == "given"
        assert await context.observe.left(label)

    assert await context.observe.left(label) == ()
    assert await context.provider.find(label) is None


async def the_spec_counts(context: ProviderContext) -> None:
    """Variables of the spec are there, and those of a command go over them."""
    env = {"LV_A": "spec a", "LV_B": "spec b"}
    spec = attrs.evolve(context.spec, env={**context.spec.env, **env})

    async with made(context, spec=spec) as (_, sandbox):
        assert await said(sandbox, 'echo "$LV_A|$LV_B"') == "spec a|spec b\n"
        script = 'LV_B=own; echo "$LV_A|$LV_B"'
        assert await said(sandbox, script) == "spec a|own\n"


async def create_twice_gives_one(context: ProviderContext) -> None:
    """The same create again, here or after a restart, adopts the sandbox."""
    async with made(context) as (label, sandbox), context.open_again() as restarted:
        await put_word(sandbox, "word", "first")

        again = await context.provider.create(label, context.spec)
        later = await restarted.create(label, context.spec)

        for same in (again, later):
            assert same.sandbox_id == sandbox.sandbox_id
            assert same.workdir == sandbox.workdir
            assert same.scratch == sandbox.scratch
            assert await read_word(same, "word") == "first"
        assert len(await listed(context.provider, label.owner)) == 1


async def creates_at_once_give_one(context: ProviderContext) -> None:
    """Equal creates that meet give one sandbox."""
    label, ids = context.new_label(), list[str]()

    async def one() -> None:
        sandbox = await context.provider.create(label, context.spec)
        ids.append(sandbox.sandbox_id)

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(CREATE_AGAIN_TIMES):
                tasks.start_soon(one)
        assert len(set(ids)) == 1
        assert len(await listed(context.provider, label.owner)) == 1
    finally:
        await context.provider.destroy(label)
    assert await context.observe.left(label) == ()


async def another_spec_is_refused(context: ProviderContext) -> None:
    """A claim's name with another spec is taken; the first one stands."""
    other = attrs.evolve(context.spec, env={**context.spec.env, "LV_OTHER": "1"})

    async with made(context) as (label, sandbox):
        fault = await caught(context.provider.create(label, other))

        assert isinstance(fault, ClaimTaken), fault
        assert await is_alive(sandbox)


async def another_owner_is_refused(context: ProviderContext) -> None:
    """Another owner's sandbox is not adopted, found, listed or ended."""
    async with made(context) as (label, sandbox):
        other = ClaimLabel(claim=label.claim, owner=context.other_owner)

        for act in (
            context.provider.create(other, context.spec),
            context.provider.destroy(other),
        ):
            fault = await caught(act)
            assert isinstance(fault, ClaimTaken), fault
        assert await context.provider.find(other) is None
        assert await listed(context.provider, other.owner) == []
        assert await is_alive(sandbox)


async def find_tells_what_is_there(context: ProviderContext) -> None:
    """A live sandbox is found; one that was never made, or is gone, is None."""
    assert await context.provider.find(context.new_label()) is None
    async with made(context) as (label, sandbox):
        found = await context.provider.find(label)
        assert found is not None
        assert found.sandbox_id == sandbox.sandbox_id
        assert await is_alive(found)
    assert await context.provider.find(label) is None


async def a_cancelled_create_leaves_none(context: ProviderContext) -> None:
    """Whenever create is given up, nothing is there when it returns."""
    for seconds in CANCEL_SECONDS:
        label, sandbox = context.new_label(), None
        with anyio.move_on_after(seconds):
            sandbox = await context.provider.create(label, context.spec)
        if sandbox is not None:
            await context.provider.destroy(label)

        assert await context.observe.left(label) == (), f"after {seconds} s"
        assert await context.provider.find(label) is None


async def a_failed_create_leaves_none(context: ProviderContext) -> None:
    """A create that fails late undoes what it made, and says the step."""
    assert context.failing_spec is not None
    label = context.new_label()

    fault = await caught(context.provider.create(label, context.failing_spec))

    assert isinstance(fault, CreateFailed), fault
    assert fault.step
    assert fault.reason
    assert await context.observe.left(label) == ()


async def as_many_live_as_succeeded(context: ProviderContext) -> None:
    """Of many creates at once, some failing, just the successful ones live."""
    failing = context.failing_spec
    assert failing is not None
    labels = [context.new_label() for _ in range(context.creates_at_once)]
    succeeded: dict[ClaimLabel, Sandbox] = {}
    failed: list[CreateFailed] = []

    async def one(label: ClaimLabel, spec: SandboxSpec) -> None:
        try:
            succeeded[label] = await context.provider.create(label, spec)
        except CreateFailed as fault:
            failed.append(fault)

    try:
        async with anyio.create_task_group() as tasks:
            for number, label in enumerate(labels):
                spec = failing if number % 3 == 2 else context.spec
                tasks.start_soon(one, label, spec)
        owner = labels[0].owner
        live = {found.label for found in await listed(context.provider, owner)}
        there = {label for label in labels if await context.observe.left(label)}

        assert live == there == set(succeeded)
        assert len(failed) == len(labels) // 3
    finally:
        async with anyio.create_task_group() as tasks:
            for label in labels:
                tasks.start_soon(context.provider.destroy, label)


async def destroying_again_succeeds(context: ProviderContext) -> None:
    """What is gone already, or never was, is destroyed with success."""
    async with made(context) as (label, _):
        await context.provider.destroy(label)
        assert await context.observe.left(label) == ()
        await context.provider.destroy(label)
    await context.provider.destroy(context.new_label())


async def destroyed_is_lost(context: ProviderContext) -> None:
    """A handle of what was destroyed says that the sandbox is lost."""
    async with made(context) as (label, sandbox):
        await context.provider.destroy(label)

        fault = await caught(sandbox.stat("word"))

        assert isinstance(fault, SandboxLost), fault


async def only_the_owners_are_listed(context: ProviderContext) -> None:
    """The reaper is told of every sandbox of the owner, and of no other."""
    other = ClaimLabel(claim=context.new_label().claim, owner=context.other_owner)
    async with (
        made(context) as (first, sandbox),
        made(context) as (second, _),
        made(context, label=other),
    ):
        found = await listed(context.provider, first.owner)
        of_other = await listed(context.provider, other.owner)

        assert {one.label for one in found} == {first, second}
        assert [one.label for one in of_other] == [other]
        ids = {one.label: one.sandbox_id for one in found}
        assert ids[first] == sandbox.sandbox_id
        for one in found:
            assert one.expires_at is None or one.expires_at > time.time()


async def what_it_cannot_do_is_refused(context: ProviderContext) -> None:
    """A spec beyond the provider's abilities is refused by name; nothing is made."""
    plain, mount = context.spec, Mount(source="/etc", target="/mnt")
    asks = {
        Capability.IMAGES: attrs.evolve(plain, image="livery-no-such-image"),
        Capability.NETWORK_NONE: attrs.evolve(plain, network=Network.NONE),
        Capability.NETWORK_LISTED: attrs.evolve(
            plain, network=Network.LISTED, reachable=("model.test",)
        ),
        Capability.RESOURCE_LIMITS: attrs.evolve(plain, memory_mib=512),
        Capability.MOUNTS: attrs.evolve(plain, mounts=(mount,)),
        Capability.PORTS: attrs.evolve(plain, ports=(8080,)),
        Capability.ENTRYPOINT: attrs.evolve(plain, entrypoint=("sleep", "60")),
        Capability.USERS: attrs.evolve(plain, user="12345:12345"),
    }
    for capability, spec in asks.items():
        if capability in context.provider.capabilities:
            continue
        label = context.new_label()

        fault = await caught(context.provider.create(label, spec))

        assert isinstance(fault, Unsupported), (capability, fault)
        assert fault.provider == context.provider.name
        assert fault.capability == capability.value
        assert await context.observe.left(label) == ()


async def what_it_cannot_read_is_refused(context: ProviderContext) -> None:
    """Our own labels, odd numbers and unknown words are refused by field."""
    plain = context.spec
    specs = [
        ("metadata", attrs.evolve(plain, metadata={"livery.owner": "me"})),
        ("provider_options", attrs.evolve(plain, provider_options={"livery-odd": 1})),
        ("env", attrs.evolve(plain, env={"A=B": "x"})),
    ]
    for seconds in (0.0, -1.0, math.nan, math.inf):
        specs += [
            ("lifetime_seconds", attrs.evolve(plain, lifetime_seconds=seconds)),
            (
                "create_timeout_seconds",
                attrs.evolve(plain, create_timeout_seconds=seconds),
            ),
        ]
    for field, spec in specs:
        label = context.new_label()

        fault = await caught(context.provider.create(label, spec))

        assert isinstance(fault, SpecRefused), (field, fault)
        assert fault.field.startswith(field)
        assert await context.observe.left(label) == ()


async def the_loop_answers(context: ProviderContext) -> None:
    """Making and ending sandboxes never holds up the caller's event loop."""

    async def work() -> None:
        async with made(context) as (label, _), made(context):
            await context.provider.find(label)
            await listed(context.provider, label.owner)

    await check_loop_answers(work)


CASES: tuple[Case[ProviderContext], ...] = check_cases(
    (
        Case(
            name="create gives a sandbox that works",
            run=create_gives_a_sandbox_that_works,
            field_cases=("FC-094",),
        ),
        Case(name="the spec counts", run=the_spec_counts),
        Case(
            name="create twice gives one",
            run=create_twice_gives_one,
            field_cases=("FC-001",),
        ),
        Case(
            name="creates at once give one",
            run=creates_at_once_give_one,
            field_cases=("FC-001",),
        ),
        Case(
            name="another spec is refused",
            run=another_spec_is_refused,
            field_cases=("FC-001",),
        ),
        Case(
            name="another owner is refused",
            run=another_owner_is_refused,
            field_cases=("FC-124", "FC-150"),
        ),
        Case(name="find tells what is there", run=find_tells_what_is_there),
        Case(
            name="a cancelled create leaves none",
            run=a_cancelled_create_leaves_none,
            field_cases=("FC-002", "FC-159"),
        ),
        Case(
            name="a failed create leaves none",
            run=a_failed_create_leaves_none,
            hooks=frozenset({"failing_spec"}),
            field_cases=("FC-140",),
        ),
        Case(
            name="as many live as succeeded",
            run=as_many_live_as_succeeded,
            hooks=frozenset({"failing_spec"}),
            field_cases=("FC-022",),
        ),
        Case(
            name="destroying again succeeds",
            run=destroying_again_succeeds,
            field_cases=("FC-094",),
        ),
        Case(name="destroyed is lost", run=destroyed_is_lost),
        Case(
            name="only the owner's are listed",
            run=only_the_owners_are_listed,
            field_cases=("FC-150",),
        ),
        Case(
            name="what it cannot do is refused",
            run=what_it_cannot_do_is_refused,
            field_cases=("FC-166",),
        ),
        Case(
            name="what it cannot read is refused",
            run=what_it_cannot_read_is_refused,
            field_cases=("FC-080", "FC-258"),
        ),
        Case(
            name="the loop answers meanwhile",
            run=the_loop_answers,
            field_cases=("FC-134",),
        ),
    )
)
