# SPDX-License-Identifier: Apache-2.0
"""What NeMo Gym gets from a provider of ours when things go well, and when not."""

import asyncio
import logging
from pathlib import Path

import anyio
import pytest

from livery.adapters.nemo_gym import GymProvider, Probe, SpecDefaults
from livery.domain.claims import DECIDER
from livery.ports.provided.carry_out import read_state
from livery.ports.required.journal import claim_stream
from livery.ports.required.sandbox import (
    Ended,
    Exited,
    ExitUnknown,
    Liveness,
    Lost,
    NotStarted,
    Output,
    SandboxFailed,
    Signalled,
    Status,
    TimedOut,
    TransferCut,
)
from livery.ports.required.sandbox_provider import CapacityExhausted, CreateFailed

from .workshops import World

pytestmark = [pytest.mark.anyio, pytest.mark.peer("nemo_gym")]

pytest.importorskip("nemo_gym", reason="NeMo Gym is not here")

from nemo_gym.sandbox import (  # noqa: E402
    AsyncSandbox,
    ConnectableProvider,
    Sandbox,
    SandboxCreateError,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxEndpoint,
)
from nemo_gym.sandbox.providers.base import (  # noqa: E402
    SandboxCreateVerificationError,
    SupportsSandboxBackgroundServices,
)

SECONDS_MAX = 30.0


def out(text: bytes) -> Output:
    return Output(head=text, size=len(text))


async def phase_of(world: World, provider: GymProvider, claim: str) -> str:
    state = await read_state(world.journal, claim_stream(claim), DECIDER)  # type: ignore[arg-type]
    return str(state.state.phase)


async def test_it_is_what_nemo_gym_looks_for() -> None:
    provider = World().provider()

    assert provider.name == "livery_fake"
    assert isinstance(provider, ConnectableProvider)
    assert isinstance(provider, SupportsSandboxEndpoint)
    assert isinstance(provider, SupportsSandboxBackgroundServices)


async def test_a_spec_becomes_ours() -> None:
    world = World()
    defaults = SpecDefaults(metadata={"managed-by": "nemo-gym"}, takes_volumes=True)
    spec = SandboxSpec(
        image="docker://python:3",
        ttl_s=60,
        ready_timeout_s=5,
        workdir="/w",
        env={"A": "1"},
        metadata={"managed-by": "me", "number": 7},  # type: ignore[dict-item]
        resources={"cpu": 2, "memory_mib": 512},
        entrypoint=["/run", "it"],
        ports=[80],
        provider_options={"volumes": ["/a:/b", "/c:/d:ro"], "read_only": True},
    )

    async with AsyncSandbox(world.provider(defaults=defaults), spec) as sandbox:
        await sandbox.start()

    (found,) = world.specs
    assert (found.image, found.workdir, found.env) == ("python:3", "/w", {"A": "1"})
    assert (found.cpus, found.memory_mib, found.ports) == (2.0, 512, (80,))
    assert (found.lifetime_seconds, found.create_timeout_seconds) == (60.0, 5.0)
    assert found.entrypoint == ("/run", "it")
    assert found.metadata == {"managed-by": "nemo-gym", "number": "7"}
    assert [(one.source, one.read_only) for one in found.mounts] == [
        ("/a", False),
        ("/c", True),
    ]
    assert found.provider_options == {"read_only": True}


@pytest.mark.case("FC-260")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SandboxSpec(ttl_s=0), "ttl_s is 0, and must be above 0"),
        (SandboxSpec(ready_timeout_s=-1), "ready_timeout_s is -1"),
        (SandboxSpec(ttl_s="1h"), "must be a number"),  # type: ignore[arg-type]
        (SandboxSpec(entrypoint="sleep 9"), "entrypoint is the text"),  # type: ignore[arg-type]
        (SandboxSpec(resources={"gpu": 1}), "resources.gpu is asked for"),
        (SandboxSpec(env={"A B": ""}), "'A B' is no name of an environment variable"),
        (SandboxSpec(provider_options={"volumes": "nowhere"}), "'nowhere'"),
        (SandboxSpec(provider_options={"volumes": [3]}), "SOURCE:TARGET"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_honoured_is_a_create_error_and_makes_nothing(
    spec: SandboxSpec, words: str
) -> None:
    world = World()
    provider = world.provider(defaults=SpecDefaults(takes_volumes=True))

    with pytest.raises(SandboxCreateError, match=words):
        await provider.create(spec)

    assert world.specs == []


async def test_what_a_spec_calls_null_is_left_out() -> None:
    world = World()
    spec = SandboxSpec(
        image="some",
        env=None,  # type: ignore[arg-type]
        metadata=None,  # type: ignore[arg-type]
        provider_options=None,  # type: ignore[arg-type]
    )

    async with AsyncSandbox(world.provider(), spec) as sandbox:
        await sandbox.start()

    (found,) = world.specs
    assert (found.env, found.metadata, found.provider_options) == ({}, {}, {})


async def test_hardware_that_is_ignored_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    provider = world.provider(defaults=SpecDefaults(ignores_hardware=True))
    for _ in range(2):
        handle = await provider.create(SandboxSpec(resources={"gpu": 1}))
        await provider.close(handle)
    await provider.aclose()

    assert [one.getMessage() for one in caplog.records].count(
        "resources.gpu is ignored: the pool decides on it"
    ) == 1


@pytest.mark.parametrize(
    ("how", "code", "error_type"),
    [
        (Exited(0), 0, None),
        (Exited(125), 125, None),
        (Signalled(9), 137, None),
        (TimedOut(1.0), 125, "timeout"),
        (NotStarted("no such folder"), 125, None),
        (ExitUnknown("cut off"), 125, "sandbox"),
        (Lost("it is gone"), 125, "sandbox"),
    ],
    ids=str,
)
@pytest.mark.case("FC-041")
async def test_how_a_command_ended_is_told_and_never_raised(
    how: object, code: int, error_type: str | None
) -> None:
    world = World()
    async with AsyncSandbox(world.provider(), SandboxSpec()) as sandbox:
        await sandbox.start()
        world.answers.append(
            Ended(how=how, stdout=out(b"until \xff then"), stderr=out(b"e"))  # type: ignore[arg-type]
        )

        result = await sandbox.exec("anything")

    assert (result.return_code, result.error_type) == (code, error_type)
    assert result.stdout == "until \ufffd then"
    assert (result.stderr or "").startswith("e")


async def test_a_fault_of_the_sandbox_is_a_result_too() -> None:
    world = World()
    async with AsyncSandbox(world.provider(), SandboxSpec()) as sandbox:
        await sandbox.start()
        world.exec_fault = SandboxFailed("fake", "b", "exec", "no answer")

        result = await sandbox.exec("true")

    assert (result.return_code, result.error_type) == (125, "sandbox")
    assert "no answer" in (result.stderr or "")


async def test_a_command_is_read_by_the_shell_that_was_asked_for() -> None:
    world = World()
    async with AsyncSandbox(world.provider(), SandboxSpec(workdir="/w")) as sandbox:
        await sandbox.start()
        await sandbox.exec("a b", env={"X": "1"}, user=0, timeout_s=None)
        await sandbox.exec("c", cwd="/d", preserve_background_services=True)
    async with AsyncSandbox(
        world.provider(exec_shell="/bin/ash"), SandboxSpec()
    ) as one:
        await one.start()
        await one.exec("x")

    first, second, third = world.commands
    assert first.argv[-1] == "a b"
    assert "bash" in first.argv[2]
    assert (first.cwd, first.env, first.user) == ("/w", {"X": "1"}, "0")
    assert (first.timeout_seconds, first.detaches) == (180.0, False)
    assert (second.cwd, second.detaches) == ("/d", True)
    assert third.argv == ("/bin/ash", "-c", "x")


async def test_a_variable_that_no_shell_can_have_is_the_callers_mistake() -> None:
    async with AsyncSandbox(World().provider(), SandboxSpec()) as sandbox:
        await sandbox.start()

        with pytest.raises(ValueError, match="no name of an environment variable"):
            await sandbox.exec("x", env={"1": ""})


async def test_files_go_in_pieces_with_their_mode_and_come_back_whole(
    tmp_path: Path,
) -> None:
    world = World()
    source, target = tmp_path / "s", tmp_path / "new" / "t"
    source.write_bytes(b"x" * 3_000_000)
    source.chmod(0o750)
    async with AsyncSandbox(
        world.provider(), SandboxSpec(files={"/f": "text"})
    ) as sandbox:
        await sandbox.start()
        await sandbox.upload(source, "/up")
        await sandbox.download("/up", target)

        assert world.files["/f"] == b"text"
        assert world.modes["/up"] == 0o750
        assert target.read_bytes() == source.read_bytes()
        with pytest.raises(RuntimeError, match="There is no /none in the sandbox"):
            await sandbox.download("/none", tmp_path / "none")
        world.cut = TransferCut("/up", 1, 2)
        with pytest.raises(RuntimeError, match="ended after 1 bytes"):
            await sandbox.download("/up", target)

    assert target.read_bytes() == source.read_bytes()
    assert sorted(one.name for one in target.parent.iterdir()) == ["t"]


async def test_a_transfer_has_a_deadline(tmp_path: Path) -> None:
    world = World(hangs=True)
    (tmp_path / "s").write_text("x")
    provider = world.provider(transfer_timeout_s=0.05, close_timeout_s=SECONDS_MAX)
    handle = await provider.create(SandboxSpec())

    with pytest.raises(RuntimeError, match=r"no answer in 0\.05 s"):
        await provider.upload_file(handle, tmp_path / "s", "/t")
    world.hangs = False
    await provider.close(handle)
    await provider.aclose()


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (Status(liveness=Liveness.RUNNING), SandboxStatus.RUNNING),
        (Status(liveness=Liveness.FROZEN), SandboxStatus.PAUSED),
        (Status(liveness=Liveness.ENDED), SandboxStatus.STOPPED),
        (Status(liveness=Liveness.ENDED, out_of_memory=True), SandboxStatus.ERROR),
        (Status(liveness=Liveness.UNKNOWN), SandboxStatus.UNKNOWN),
    ],
    ids=str,
)
async def test_the_status_is_in_nemo_gyms_words(
    status: Status, told: SandboxStatus
) -> None:
    world = World(status=status)
    async with AsyncSandbox(world.provider(), SandboxSpec()) as sandbox:
        await sandbox.start()

        assert await sandbox.status() is told

        world.status_fault = SandboxFailed("fake", "b", "status", "no answer")
        assert await sandbox.status() is SandboxStatus.UNKNOWN


async def test_an_endpoint_is_where_the_port_is_reached() -> None:
    world = World()
    spec = SandboxSpec(ports=[1, 2, 80])
    async with AsyncSandbox(world.provider(), spec) as sandbox:
        await sandbox.start()

        found = await sandbox.endpoint(80)

        assert (found.endpoint, found.headers) == (
            "http://127.0.0.1:80",
            {"X-Way": "here"},
        )
        with pytest.raises(NotImplementedError, match="port 1 was not asked for"):
            await sandbox.endpoint(1)
        with pytest.raises(RuntimeError, match="no answer"):
            await sandbox.endpoint(2)


@pytest.mark.case("FC-243")
@pytest.mark.parametrize(
    "fault",
    [
        CreateFailed("fake", "c", "ready", "it never answered"),
        CapacityExhausted("fake", "pods of team-a"),
    ],
    ids=["failed", "full"],
)
async def test_a_create_that_fails_says_why_and_leaves_no_claim(
    fault: CreateFailed | CapacityExhausted,
) -> None:
    world = World(create_fault=fault)
    provider = world.provider()

    with pytest.raises(SandboxCreateError) as raised:
        await provider.create(SandboxSpec())
    await provider.aclose()

    assert str(fault) in str(raised.value)
    assert world.live == {}
    assert await world.journal.open_streams("claims") == ()


@pytest.mark.case("FC-002")
async def test_a_create_that_is_cancelled_leaves_nothing() -> None:
    world = World(may_create=anyio.Event())
    provider = world.provider()

    task = asyncio.create_task(provider.create(SandboxSpec()))
    await world.creating.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    await provider.aclose()

    assert world.live == {}
    assert await world.journal.open_streams("claims") == ()


async def test_the_probe_must_pass_as_often_in_a_row_as_it_is_told() -> None:
    world = World()
    probe = Probe(
        command="ready?", expected_stdout="ok", stable_count=2, stable_delay_s=0.001
    )
    bad = Ended(how=Exited(0), stdout=out(b"no"))
    good = Ended(how=Exited(0), stdout=out(b"ok"))
    world.answers += [good, bad, good, good]

    async with AsyncSandbox(
        world.provider(probe=probe), SandboxSpec(workdir="/w", env={"A": "1"})
    ) as sandbox:
        await sandbox.start()

    assert [one.argv[-1] for one in world.commands] == ["ready?"] * 4
    assert {one.cwd for one in world.commands} == {"/"}
    assert all(not one.env for one in world.commands)


@pytest.mark.case("FC-140")
async def test_a_probe_that_never_passes_is_a_verification_error_and_leaves_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    probe = Probe(
        command="ready?", expected_stdout="yes", deadline_s=0.05, stable_delay_s=0.001
    )
    provider = world.provider(probe=probe)

    with pytest.raises(SandboxCreateVerificationError, match="did not pass its probe"):
        await provider.create(SandboxSpec())
    assert world.live == {}
    world.undestroyable = True
    with pytest.raises(SandboxCreateVerificationError):
        await provider.create(SandboxSpec())
    await provider.aclose()

    assert "is still there" in caplog.text


@pytest.mark.case("FC-084")
async def test_a_close_that_fails_can_be_repeated_and_one_too_many_is_a_success() -> (
    None
):
    world = World(undestroyable=True)
    provider = world.provider()
    handle = await provider.create(SandboxSpec())

    with pytest.raises(RuntimeError, match="it resists"):
        await provider.close(handle)
    assert len(provider.claims) == 1
    world.undestroyable = False
    await provider.close(handle)
    await provider.close(handle)
    await provider.aclose()

    assert world.live == {}
    assert provider.claims == ()


async def test_a_close_has_a_deadline_and_says_what_to_do() -> None:
    world = World()
    provider = world.provider(close_timeout_s=0.05)
    handle = await provider.create(SandboxSpec())
    world.hangs = True

    with pytest.raises(RuntimeError, match="livery claims reap"):
        await provider.close(handle)
    world.hangs = False
    await provider.close(handle)
    await provider.aclose()

    assert world.live == {}


@pytest.mark.case("FC-086")
async def test_a_close_whose_caller_is_cancelled_is_carried_out_to_its_end() -> None:
    world = World()
    provider = world.provider()
    handle = await provider.create(SandboxSpec())

    task = asyncio.create_task(provider.close(handle))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await provider.aclose()

    assert world.live == {}


async def test_a_sandbox_that_will_not_be_let_go_of_is_released_all_the_same() -> None:
    fault = SandboxFailed("fake", "b", "disconnect", "no answer")
    world = World(disconnect_fault=fault)

    async with AsyncSandbox(world.provider(), SandboxSpec()) as sandbox:
        await sandbox.start()

    assert world.live == {}


@pytest.mark.case("FC-096")
async def test_who_connects_uses_the_sandbox_and_never_ends_it() -> None:
    world = World()
    async with AsyncSandbox(world.provider(), SandboxSpec(ports=[80])) as owner:
        await owner.start()
        descriptor = await owner.serialize()
        assert descriptor["workdir"] == "/workspace"

        borrowed = await AsyncSandbox.connect(descriptor, provider=world.provider())
        assert (await borrowed.exec("true")).return_code == 0
        await borrowed.disconnect()
        again = await AsyncSandbox.connect(descriptor, provider=world.provider())
        await again.stop()

        assert len(world.live) == 1
        assert await owner.status() is SandboxStatus.RUNNING
    assert world.live == {}
    provider = world.provider()
    with pytest.raises(SandboxCreateError, match="there is none"):
        await AsyncSandbox.connect(descriptor, provider=provider)
    await provider.aclose()


async def test_what_was_closed_opens_again_and_finds_its_sandboxes_again() -> None:
    world = World()
    provider = world.provider()
    owned = await provider.create(SandboxSpec())
    descriptor = await provider.serialize_handle(owned)
    borrowed = await provider.connect(descriptor)
    first = world.opened

    await provider.aclose()
    results = [await provider.exec(one, "true") for one in (owned, borrowed)]
    await provider.aclose()
    world.live.clear()

    assert [one.return_code for one in results] == [0, 0]
    assert (first, world.opened) == (1, 2)
    assert await provider.status(owned) is SandboxStatus.STOPPED
    gone = await provider.exec(owned, "true")
    assert (gone.return_code, gone.error_type) == (125, "sandbox")
    await provider.close(owned)
    await provider.close(borrowed)
    await provider.aclose()


@pytest.mark.parametrize("releases", [False, True], ids=["left", "released"])
async def test_what_is_not_closed_is_named_or_released(
    releases: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    provider = world.provider(releases_at_end=releases)
    for _ in range(3):
        await provider.create(SandboxSpec())

    await provider.aclose()

    assert len(world.live) == (0 if releases else 3)
    assert ("3 sandbox(es) of provider livery_fake go on" in caplog.text) != releases


async def test_what_cannot_be_released_at_the_end_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(undestroyable=True)
    provider = world.provider(releases_at_end=True)
    await provider.create(SandboxSpec())

    await provider.aclose()

    assert "is still open" in caplog.text
    assert "1 sandbox(es)" in caplog.text


def test_a_loop_that_ends_without_a_close_gives_back_what_it_should() -> None:
    world = World()
    provider = world.provider(releases_at_end=True)

    async def forgets() -> SandboxHandle:
        return await provider.create(SandboxSpec())  # type: ignore[return-value]

    asyncio.run(forgets())
    assert world.live == {}
    asyncio.run(forgets())

    assert (world.live, world.opened) == ({}, 2)


def test_a_loop_that_ends_without_a_close_is_no_fault_that_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def closes_its_sandbox(provider: GymProvider) -> None:
        await provider.close(await provider.create(SandboxSpec()))

    asyncio.run(closes_its_sandbox(World().provider()))

    assert caplog.text == ""


def test_the_blocking_twin_works_in_its_own_loop() -> None:
    world = World()

    with Sandbox(world.provider(), SandboxSpec()) as sandbox:
        sandbox.start()
        result = sandbox.exec("true")

    assert (result.stdout, world.live) == ("ok", {})


async def test_two_loops_at_once_are_told_to_have_one_each() -> None:
    world = World()
    provider = world.provider()
    handle = await provider.create(SandboxSpec())

    def elsewhere() -> str:
        with pytest.raises(RuntimeError, match="another event loop") as raised:
            asyncio.run(provider.create(SandboxSpec()))
        asyncio.run(provider.aclose())
        return str(raised.value)

    await anyio.to_thread.run_sync(elsewhere)
    # The other loop's close was none of ours.
    await provider.close(handle)
    await provider.aclose()

    assert world.live == {}


async def test_a_workshop_that_cannot_be_opened_is_tried_again_at_the_next_call() -> (
    None
):
    world = World(open_fault=SandboxFailed("fake", "b", "open", "no folder"))
    provider = world.provider()

    with pytest.raises(SandboxCreateError, match="no folder"):
        await provider.create(SandboxSpec())
    world.open_fault = None
    await provider.close(await provider.create(SandboxSpec()))
    await provider.aclose()

    assert world.opened == 1


async def test_many_at_once_open_one_workshop() -> None:
    world = World()
    provider = world.provider()

    handles = await asyncio.gather(*(provider.create(SandboxSpec()) for _ in range(50)))
    await asyncio.gather(*(provider.close(one) for one in handles))
    await provider.aclose()

    assert (world.opened, world.live) == (1, {})
    assert len({one.sandbox_id for one in handles}) == 50


@pytest.fixture(autouse=True)
def _told_at_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


async def test_one_who_leaves_while_it_opens_does_not_keep_the_others_from_it() -> None:
    world = World(may_open=anyio.Event())
    provider = world.provider()

    first = asyncio.create_task(provider.create(SandboxSpec()))
    await world.opening.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    world.may_open.set()
    handle = await provider.create(SandboxSpec())
    await provider.close(handle)
    await provider.aclose()

    assert (world.opened, world.live) == (1, {})


async def test_a_workshop_that_breaks_as_it_closes_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(close_fault=SandboxFailed("fake", "b", "close", "it broke"))
    provider = world.provider()
    await provider.close(await provider.create(SandboxSpec()))

    await provider.aclose()

    assert "A sandbox provider ended" in caplog.text
    assert "it broke" in caplog.text
