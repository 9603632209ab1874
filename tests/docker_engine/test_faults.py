# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with an engine is told apart, in time, and leaves nothing."""

import logging
import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest
import urllib3

from livery.adapters.docker_engine import (
    DockerEngineConfig,
    DockerSandboxProvider,
    Pull,
    open_docker_engine,
)
from livery.adapters.docker_engine.ending import remove
from livery.adapters.docker_engine.engine import PULLS_MAX, Engine
from livery.adapters.docker_engine.engine_address import to_address
from livery.adapters.docker_engine.engine_faults import EnginePlace
from livery.adapters.docker_engine.making import Progress
from livery.domain.claims import ClaimId, OwnerId
from livery.domain.names import to_name
from livery.ports.required.faults import Fault
from livery.ports.required.sandbox import (
    Liveness,
    SandboxAccess,
    SandboxFailed,
    SandboxLost,
)
from livery.ports.required.sandbox_provider import (
    Capability,
    CapacityExhausted,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    DestroyFailed,
    ImageMissing,
    ProviderForbidden,
    ProviderUnreachable,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)

from .fake_engine import HANGS, IMAGE, LOSES_REPLY, FakeEngine, Late, Says, fake_engine

pytestmark = pytest.mark.anyio

LABEL = ClaimLabel(claim=ClaimId("claim-1"), owner=OwnerId("owner-1"))
NAME = to_name("livery", LABEL.claim)
SPEC = SandboxSpec(image=IMAGE)
SOON_SECONDS = 25.0
"""Less than what hangs here would take."""
NOBODY = 65534


@asynccontextmanager
async def faked(
    folder: Path, *, pull: Pull = Pull.NEVER
) -> AsyncGenerator[tuple[FakeEngine, DockerSandboxProvider]]:
    """Open a fake and a provider over it, within the test's own task."""
    async with fake_engine(folder) as fake:
        config = DockerEngineConfig(address=fake.address, pull=pull)
        async with open_docker_engine(config) as provider:
            yield fake, provider


async def test_a_create_works_on_the_fake(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        sandbox = await provider.create(LABEL, SPEC)

        assert sandbox.sandbox_id == NAME
        assert sandbox.plain_because == "it is a fake"
        assert (await sandbox.status()).liveness is Liveness.RUNNING
        assert [found.label async for found in provider.list(LABEL.owner)] == [LABEL]
        await provider.destroy(LABEL)
        assert not fake.containers


@pytest.mark.case("FC-001")
async def test_a_lost_reply_adopts_what_was_made(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.will("create", LOSES_REPLY)

        sandbox = await provider.create(LABEL, SPEC)

        assert sandbox.sandbox_id == NAME
        assert list(fake.containers) == [NAME]
        assert fake.asked.count("create") == 1


@pytest.mark.case("FC-001", "FC-120")
async def test_a_lost_reply_without_a_container_is_told(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.will("create", LOSES_REPLY)
        fake.will("inspect", *[Says(404, f"No such container: {NAME}")] * 9)

        with pytest.raises(ProviderUnreachable):
            await provider.create(LABEL, SPEC)


@pytest.mark.case("FC-001")
async def test_a_failure_after_a_lost_reply_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.will("create", LOSES_REPLY)
        fake.will("start", Says(500, "something broke"))

        with pytest.raises(CreateFailed):
            await provider.create(LABEL, SPEC)

        assert not fake.containers


@pytest.mark.case("FC-002", "FC-159")
async def test_a_create_given_up_on_the_wire_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        answer = anyio.Event()
        fake.will("create", Late(answer))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.create, LABEL, SPEC)
            await fake.in_request.wait()
            tasks.cancel_scope.cancel()
            assert list(fake.containers) == [NAME]
            answer.set()

        assert not fake.containers
        assert "start" not in fake.asked


@pytest.mark.parametrize("operation", ["version", "image", "create", "start", "exec"])
async def test_an_engine_that_hangs_is_not_waited_for(
    tmp_path: Path,
    operation: str,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.will(operation, *[HANGS] * 4)
        spec = attrs.evolve(SPEC, create_timeout_seconds=0.4, ready_timeout_seconds=0.4)
        begun = time.monotonic()

        with pytest.raises(CreateFailed) as told:
            await provider.create(LABEL, spec)

        assert time.monotonic() - begun < SOON_SECONDS
        assert told.value.step
        assert "0.4" in told.value.reason
        assert not fake.containers


@pytest.mark.case("FC-134")
async def test_the_loop_answers_while_the_engine_hangs(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.will("create", HANGS)
        spec = attrs.evolve(SPEC, create_timeout_seconds=2.0)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await anyio.sleep(0.01)
                ticks += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            with pytest.raises(CreateFailed):
                await provider.create(LABEL, spec)
            tasks.cancel_scope.cancel()

        # A loop that waits for the engine turns once or twice in that time.
        assert ticks > 10


@pytest.mark.case("FC-008", "FC-140", "FC-159")
@pytest.mark.parametrize(
    ("operation", "opening"),
    [
        ("start", b""),
        ("exec", b""),
        ("", b"fault scratch no room\n"),
        ("", b""),
        ("", b"OCI runtime exec failed"),
    ],
)
async def test_a_step_that_fails_undoes_the_steps_before(
    tmp_path: Path,
    operation: str,
    opening: bytes,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.opening = opening
        if operation:
            fake.will(operation, Says(500, "the step broke"))

        with pytest.raises(CreateFailed) as told:
            await provider.create(LABEL, SPEC)

        assert told.value.step in {"start", "ready"}
        assert not fake.containers


async def test_what_cannot_be_undone_is_told(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.will("start", Says(500, "the start broke"))
        fake.will("remove", Says(403, "plugin says no"))

        with pytest.raises(CreateFailed) as told:
            await provider.create(LABEL, SPEC)

        assert any("left behind" in note for note in told.value.__notes__)
        assert LABEL.claim in caplog.text
        assert "left behind" in caplog.text


@pytest.mark.case("FC-120", "FC-243")
@pytest.mark.parametrize(
    ("operation", "status", "message", "fault", "word"),
    [
        ("image", 404, "No such image: fake/image:1", ImageMissing, "switched off"),
        ("image", 400, "invalid reference format", SpecRefused, "image"),
        ("create", 400, "invalid mount config", SpecRefused, "mount"),
        (
            "create",
            400,
            'invalid mount config for type "bind": bind source path does not exist: /x',
            SpecRefused,
            "/x",
        ),
        (
            "create",
            403,
            "authorization denied by plugin x",
            ProviderForbidden,
            "plugin",
        ),
        ("create", 500, "no space left on device", CapacityExhausted, "space"),
        ("start", 500, "write: disk quota exceeded", CapacityExhausted, "quota"),
        ("start", 404, "network nowhere not found", CreateFailed, "nowhere"),
        (
            "start",
            500,
            "could not find an available, non-overlapping IPv4 address pool",
            CapacityExhausted,
            "address pool",
        ),
        (
            "start",
            400,
            'OCI runtime create failed: exec: "/bin/sh": no such file or directory',
            SpecRefused,
            "/bin/sh",
        ),
        ("start", 400, "unable to find user nobody-here", SpecRefused, "user"),
    ],
)
async def test_refusals_of_the_engine_are_told_apart(
    tmp_path: Path,
    operation: str,
    status: int,
    message: str,
    fault: type[Fault],
    word: str,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.will(operation, Says(status, message))
        begun = time.monotonic()

        with pytest.raises(fault) as told:
            await provider.create(LABEL, SPEC)

        assert type(told.value) is fault
        assert word in str(told.value)
        assert time.monotonic() - begun < SOON_SECONDS
        assert not fake.containers


async def test_a_missing_socket_is_unreachable(tmp_path: Path) -> None:
    config = DockerEngineConfig(address=f"unix://{tmp_path}/none.sock")

    async with open_docker_engine(config) as provider:
        with pytest.raises(ProviderUnreachable) as told:
            await provider.create(LABEL, SPEC)

    assert "none.sock" in str(told.value)
    assert "no such socket" in told.value.reason


async def test_a_dead_socket_is_unreachable(tmp_path: Path) -> None:
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))

    async with open_docker_engine(DockerEngineConfig(address=f"unix://{path}")) as dead:
        with pytest.raises(ProviderUnreachable) as told:
            await dead.find(LABEL)

    assert "nobody listens" in told.value.reason


async def test_a_closed_port_is_unreachable() -> None:
    config = DockerEngineConfig(address="tcp://127.0.0.1:1")

    async with open_docker_engine(config) as provider:
        with pytest.raises(ProviderUnreachable) as told:
            await provider.create(LABEL, SPEC)

    assert "tcp://127.0.0.1:1" in str(told.value)
    assert told.value.reason == "nobody listens there"


async def test_a_closed_socket_is_forbidden(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.path.chmod(0)
        fake.path.parent.chmod(0o755)
        is_root = os.geteuid() == 0
        if is_root:
            for folder in fake.path.parents:
                assert folder == Path("/") or folder.exists()
            os.seteuid(NOBODY)
        try:
            with pytest.raises(ProviderForbidden) as told:
                await provider.create(LABEL, SPEC)
        finally:
            if is_root:
                os.seteuid(0)

        assert "permission denied" in told.value.reason


async def test_an_error_is_not_taken_for_absence(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.will("inspect", *[Says(500, "database is locked")] * 3)

        with pytest.raises(ProviderUnreachable):
            await provider.find(LABEL)
        with pytest.raises(ProviderUnreachable):
            await provider.destroy(LABEL)
        with pytest.raises(ProviderUnreachable):
            await provider.connect(
                SandboxAccess(
                    provider="docker", descriptor={"sandbox_id": "x"}, workdir="/w"
                ),
                borrower=ClaimId("b"),
            )


@pytest.mark.case("FC-092", "FC-094")
@pytest.mark.parametrize("state", ["running", "paused", "created", "exited", "dead"])
async def test_an_end_is_pressed_for(
    tmp_path: Path,
    state: str,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        await provider.create(LABEL, SPEC)
        fake.containers[NAME]["State"]["Status"] = state
        fake.will(
            "remove",
            Says(409, f"You cannot remove a {state} container"),
            Says(409, "removal of container is already in progress"),
            Says(500, "driver failed to remove root filesystem"),
        )

        await provider.destroy(LABEL)

        assert not fake.containers
        assert ("unpause" in fake.asked) == (state == "paused")
        assert ("kill" in fake.asked) == (state in {"running", "paused"})


@pytest.mark.case("FC-092", "FC-119")
async def test_an_end_that_is_not_seen_is_no_end(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        await provider.create(LABEL, SPEC)
        fake.will("remove", *[Says(409, "removal is already in progress")] * 1000)
        engine = Engine(to_address(fake.address, provider="docker"), provider="docker")

        with pytest.raises(DestroyFailed) as told:
            await remove(engine, LABEL, NAME, seconds=0.3)

        assert "in progress" in told.value.reason
        await engine.aclose()


@pytest.mark.case("FC-124", "FC-150")
@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"livery.claim": "claim-1"},
        {"livery.claim": "claim-1", "livery.owner": "owner-2"},
        {"livery.claim": "claim-2", "livery.owner": "owner-1"},
    ],
)
async def test_what_is_not_the_claims_is_left_alone(
    tmp_path: Path,
    labels: dict[str, str],
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.add(NAME, labels=labels, state="running")

        with pytest.raises(ClaimTaken):
            await provider.create(LABEL, SPEC)
        with pytest.raises(ClaimTaken):
            await provider.destroy(LABEL)

        assert await provider.find(LABEL) is None
        assert fake.containers[NAME]["State"]["Status"] == "running"
        assert {"remove", "kill", "start"}.isdisjoint(fake.asked)


@pytest.mark.case("FC-124")
async def test_a_half_made_container_of_the_claim_is_adopted(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        await provider.create(LABEL, SPEC)
        fake.containers[NAME]["State"]["Status"] = "created"

        await provider.create(LABEL, SPEC)

        assert fake.containers[NAME]["State"]["Status"] == "running"


async def test_an_ended_container_of_the_claim_is_not_made_again(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        await provider.create(LABEL, SPEC)
        fake.containers[NAME]["State"]["Status"] = "exited"

        with pytest.raises(CreateFailed) as told:
            await provider.create(LABEL, SPEC)

        assert told.value.step == "adopt"
        assert await provider.find(LABEL) is None


async def test_one_on_its_way_out_is_waited_for(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        await provider.create(LABEL, SPEC)
        fake.containers[NAME]["State"]["Status"] = "removing"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.create, LABEL, SPEC)
            await fake.asked_for("create", times=3)
            del fake.containers[NAME]

        assert fake.containers[NAME]["State"]["Status"] == "running"


@pytest.mark.case("FC-018", "FC-260")
async def test_a_pull_has_its_own_time(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path, pull=Pull.MISSING) as (fake, provider):
        fake.images.clear()
        fake.pull_steps = [
            {"status": "Pulling", "id": "layer"},
            0.8,
            {"status": "Done"},
        ]
        spec = attrs.evolve(SPEC, create_timeout_seconds=0.5, ready_timeout_seconds=0.5)

        await provider.create(LABEL, spec)
        await provider.destroy(LABEL)
        fake.images.clear()
        fake.pull_steps = [30.0]
        begun = time.monotonic()
        with pytest.raises(CreateFailed) as told:
            await provider.create(LABEL, attrs.evolve(spec, pull_timeout_seconds=0.3))

        assert told.value.step == "pull"
        assert time.monotonic() - begun < SOON_SECONDS


@pytest.mark.case("FC-018")
async def test_what_a_pull_refuses_is_told(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path, pull=Pull.MISSING) as (fake, provider):
        fake.images.clear()
        fake.pull_steps = [{"error": "toomanyrequests: pull rate limit"}]

        with pytest.raises(ImageMissing) as told:
            await provider.create(LABEL, SPEC)

        assert "rate limit" in told.value.reason


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([b'{"status":"Pull', LOSES_REPLY], id="cut off in a line"),
        pytest.param([{"status": "Pulling"}, LOSES_REPLY], id="cut off behind one"),
        pytest.param([b'{"status":"Pull'], id="ended in a line"),
    ],
)
async def test_a_pull_that_breaks_off_is_told(
    tmp_path: Path, steps: list[object]
) -> None:
    async with faked(tmp_path, pull=Pull.MISSING) as (fake, provider):
        fake.images.clear()
        fake.pull_steps = steps

        with pytest.raises(ProviderUnreachable) as told:
            await provider.create(LABEL, SPEC)

        assert told.value.address == fake.address
        assert not fake.containers


def test_a_pull_that_falls_silent_is_told_as_that() -> None:
    place = EnginePlace(provider="docker", address="unix:///engine.sock")
    silent = urllib3.exceptions.ReadTimeoutError(
        urllib3.HTTPConnectionPool("engine"), "/images/create", "Read timed out."
    )

    fault = place.from_library(silent, 600.0)

    assert fault.reason == "no answer within 600 s"


async def test_long_pulls_hold_up_nothing_short(tmp_path: Path) -> None:
    async with faked(tmp_path, pull=Pull.MISSING) as (fake, provider):
        await provider.create(LABEL, attrs.evolve(SPEC, image=IMAGE))
        fake.images.clear()
        fake.pull_steps = [SOON_SECONDS]
        labels = [
            attrs.evolve(LABEL, claim=ClaimId(f"pulls-{n}")) for n in range(PULLS_MAX)
        ]
        async with anyio.create_task_group() as tasks:
            for label in labels:
                tasks.start_soon(provider.create, label, SPEC)
            await fake.asked_for("pull", times=PULLS_MAX)

            with anyio.fail_after(SOON_SECONDS / 2):
                found = await provider.find(LABEL)
                await provider.destroy(LABEL)
            tasks.cancel_scope.cancel()

        assert found is not None
        assert not fake.containers


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:49160"),
        ("0.0.0.0", "http://127.0.0.1:49160"),
        ("127.0.0.1", "http://127.0.0.1:49160"),
        ("192.0.2.7", "http://192.0.2.7:49160"),
        ("::", "http://[::1]:49160"),
        ("fd00::7", "http://[fd00::7]:49160"),
    ],
)
async def test_a_port_is_reached_where_it_was_published(
    tmp_path: Path, host: str, url: str
) -> None:
    async with faked(tmp_path) as (fake, provider):
        sandbox = await provider.create(LABEL, SPEC)
        bound = [{"HostIp": host, "HostPort": "49160"}]
        fake.containers[NAME]["NetworkSettings"] = {"Ports": {"80/tcp": bound}}

        assert (await sandbox.endpoint(80)).url == url


@pytest.mark.case("FC-018")
def test_the_progress_of_a_pull_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    Progress(IMAGE, seconds=0.0).tell("layer Downloading")
    Progress(IMAGE, seconds=60.0).tell("layer Waiting")

    assert "layer Downloading" in caplog.text
    assert "layer Waiting" not in caplog.text


@pytest.mark.case("FC-118")
async def test_many_creates_at_once_do_not_mix(
    tmp_path: Path,
) -> None:
    async with faked(tmp_path) as (fake, provider):
        labels = [attrs.evolve(LABEL, claim=ClaimId(f"claim-{n}")) for n in range(50)]
        fake.will("create", *[LOSES_REPLY] * 10)
        names: list[str] = []

        async def one(label: ClaimLabel) -> None:
            names.append((await provider.create(label, SPEC)).sandbox_id)

        async with anyio.create_task_group() as tasks:
            for label in labels:
                tasks.start_soon(one, label)

        assert sorted(names) == sorted(fake.containers)
        assert len(names) == 50


@pytest.mark.case("FC-104")
@pytest.mark.parametrize(
    ("state", "word"),
    [("paused", "frozen"), ("exited", "lifetime"), ("removing", "removed")],
)
async def test_what_does_not_run_is_not_borrowed(
    tmp_path: Path, state: str, word: str
) -> None:
    async with faked(tmp_path) as (fake, provider):
        sandbox = await provider.create(LABEL, SPEC)
        fake.containers[NAME]["State"]["Status"] = state

        with pytest.raises(SandboxLost, match=word):
            await provider.connect(sandbox.access(), borrower=ClaimId("b"))

        fake.containers.clear()
        with pytest.raises(SandboxLost, match="no such container"):
            await provider.connect(sandbox.access(), borrower=ClaimId("b"))


@pytest.mark.case("FC-104")
async def test_what_takes_no_commands_is_not_borrowed(tmp_path: Path) -> None:
    async with faked(tmp_path) as (fake, provider):
        sandbox = await provider.create(LABEL, SPEC)
        fake.opening = b"fault workdir read-only file system\n"

        with pytest.raises(SandboxFailed, match="read-only"):
            await provider.connect(sandbox.access(), borrower=ClaimId("b"))

        fake.will("exec", Says(409, "container is not running"))
        fake.will("inspect", Says(404, "x"))
        fake.containers[NAME]["State"]["Status"] = "exited"
        with pytest.raises(SandboxLost):
            await provider.connect(sandbox.access(), borrower=ClaimId("b"))


@pytest.mark.parametrize(
    ("descriptor", "workdir", "field"),
    [
        ({}, "/w", "descriptor.sandbox_id"),
        ({"sandbox_id": "x", "odd": "y"}, "/w", "descriptor.odd"),
        ({"sandbox_id": "x"}, "w", "workdir"),
    ],
)
async def test_an_odd_access_is_refused_by_field(
    tmp_path: Path, descriptor: dict[str, str], workdir: str, field: str
) -> None:
    access = SandboxAccess(provider="docker", descriptor=descriptor, workdir=workdir)

    async with faked(tmp_path) as (_, provider):
        with pytest.raises(SpecRefused) as told:
            await provider.connect(access, borrower=ClaimId("b"))

    assert told.value.field == field


async def test_ports_of_an_engine_elsewhere_are_refused() -> None:
    config = DockerEngineConfig(address="tcp://192.0.2.1:2375")

    async with open_docker_engine(config) as provider:
        with pytest.raises(Unsupported) as told:
            await provider.create(LABEL, attrs.evolve(SPEC, ports=(80,)))

    assert told.value.capability == Capability.PORTS.value
    assert Capability.PORTS not in provider.capabilities
    assert Capability.HOST_FILES not in provider.capabilities


async def test_an_engine_is_reached_over_tcp(tmp_path: Path) -> None:
    async with fake_engine(tmp_path, over_tcp=True) as fake:
        config = DockerEngineConfig(address=fake.address, image=IMAGE)
        async with open_docker_engine(config) as provider:
            sandbox = await provider.create(LABEL, SandboxSpec())
            await provider.destroy(LABEL)
            await provider.aclose()

    assert sandbox.plain_because == "it is a fake"
    assert Capability.PORTS in provider.capabilities
    assert Capability.HOST_FILES not in provider.capabilities


@pytest.mark.case("FC-259")
@pytest.mark.parametrize("ends", ["healthy", "unhealthy"])
async def test_the_health_of_an_own_entry_point_counts(
    tmp_path: Path, ends: str
) -> None:
    async with faked(tmp_path) as (fake, provider):
        fake.image_config = {
            "User": "",
            "Healthcheck": {"Test": ["CMD", "true"], "StartPeriod": 60_000_000_000},
        }
        fake.health = ["starting", "starting", ends]
        spec = attrs.evolve(SPEC, entrypoint=("serve",), ready_timeout_seconds=0.2)

        if ends == "healthy":
            await provider.create(LABEL, spec)
            assert NAME in fake.containers
        else:
            with pytest.raises(CreateFailed, match="health"):
                await provider.create(LABEL, spec)
            assert not fake.containers


async def test_a_fault_in_the_body_comes_out_as_it_is(tmp_path: Path) -> None:
    config = DockerEngineConfig(address=f"unix://{tmp_path}/none.sock")

    with pytest.raises(ProviderUnreachable):
        async with open_docker_engine(config) as provider:
            await provider.find(LABEL)
