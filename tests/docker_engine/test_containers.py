# SPDX-License-Identifier: Apache-2.0
"""Containers of the real engine: what is asked for, what is kept, what is left."""

import json
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import attrs
import httpx
import pytest

from livery.adapters.docker_engine import (
    DockerEngineConfig,
    DockerSandboxProvider,
    open_docker_engine,
)
from livery.adapters.docker_engine.engine import Engine
from livery.adapters.docker_engine.engine_address import to_address
from livery.domain.claims import ClaimId
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Exited,
    ExitUnknown,
    FileForbidden,
    Liveness,
    Lost,
    Sandbox,
    SandboxAccess,
    SandboxLost,
    Signalled,
    shell,
)
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    Mount,
    Network,
    SandboxSpec,
    SpecRefused,
)

from . import raw_engine
from .engines import USER, Owners, name_of

pytestmark = [pytest.mark.anyio, pytest.mark.peer("docker")]

PATIENCE_SECONDS = 60.0
BULK_BYTES = 1024 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
GROWTH_KIB_MAX = 64 * 1024


async def said(sandbox: Sandbox, script: str) -> str:
    ended = await sandbox.exec(shell(script, timeout_seconds=PATIENCE_SECONDS))
    assert ended.how == Exited(0), ended
    return ended.stdout.kept.decode()


async def put(sandbox: Sandbox, path: str, content: bytes) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    await sandbox.put(path, pieces(), size=len(content))


@pytest.fixture
def derived(test_image: str) -> Iterator[str]:
    """The name of an image that the test makes, removed at its end."""
    name = f"livery-test/derived-{os.getpid()}:1"
    yield name
    raw_engine.remove_image(name)


@pytest.fixture
def spec(test_image: str) -> SandboxSpec:
    return SandboxSpec(image=test_image)


# Making


@pytest.mark.case("FC-017")
@pytest.mark.parametrize(
    "entrypoint",
    ['ENTRYPOINT ["/bin/sh"]', 'ENTRYPOINT ["/bin/false"]', "ENTRYPOINT exit 3"],
)
async def test_the_images_entry_point_is_not_in_the_way(
    provider: DockerSandboxProvider,
    owners: Owners,
    test_image: str,
    derived: str,
    entrypoint: str,
) -> None:
    raw_engine.derive_image(test_image, derived, entrypoint, 'CMD ["/bin/false"]')
    label = owners.label()

    sandbox = await provider.create(label, SandboxSpec(image=derived))
    heard = await said(sandbox, "echo here")
    await provider.destroy(label)

    assert heard == "here\n"


async def test_the_images_user_folder_and_variables_count(
    provider: DockerSandboxProvider, owners: Owners, test_image: str, derived: str
) -> None:
    raw_engine.derive_image(
        test_image, derived, "USER nobody", "WORKDIR /nowhere", "ENV LV_IMAGE=own"
    )
    label = owners.label()

    sandbox = await provider.create(label, SandboxSpec(image=derived, workdir="/w"))
    heard = await said(sandbox, 'id -un; pwd; echo "$LV_IMAGE"; touch new; ls -ld .')
    await provider.destroy(label)

    lines = heard.splitlines()
    assert lines[:3] == ["nobody", "/w", "own"]
    assert lines[3].split()[2] == "nobody"


async def test_limits_are_the_engines(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    asked = attrs.evolve(
        spec, cpus=0.5, memory_mib=128, processes_max=64, network=Network.NONE
    )

    sandbox = await provider.create(label, asked)
    told = raw_engine.inspect(name_of(label))["HostConfig"]
    forked = await sandbox.exec(
        shell(
            "i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done",
            timeout_seconds=PATIENCE_SECONDS,
        )
    )
    await provider.destroy(label)

    assert told["NanoCpus"] == 500_000_000
    assert told["Memory"] == told["MemorySwap"] == 128 * 1024 * 1024
    assert told["PidsLimit"] == 64
    assert told["NetworkMode"] == "none"
    assert told["SecurityOpt"] == ["no-new-privileges"]
    assert b"ork" in forked.stderr.kept  # "Cannot fork", in dash's words.


@pytest.mark.case("FC-015")
async def test_running_out_of_memory_is_evidence(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, attrs.evolve(spec, memory_mib=64))

    ended = await sandbox.exec(
        Command(
            argv=("python3", "-c", "x = bytearray(300 << 20); x[::4096] = x[::4096]"),
            timeout_seconds=PATIENCE_SECONDS,
        )
    )
    status = await sandbox.status()
    raw_engine.kill(name_of(label))
    lost = await sandbox.exec(shell("echo on", timeout_seconds=5.0))
    after = await sandbox.status()
    await provider.destroy(label)

    assert ended.how == Signalled(9), ended
    assert (status.liveness, status.out_of_memory) == (Liveness.RUNNING, True)
    assert (after.liveness, after.out_of_memory) == (Liveness.ENDED, True)
    assert isinstance(lost.how, Lost)
    assert "out of memory" in lost.how.reason


async def test_mounts_are_seen_and_a_missing_source_is_refused(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("from the host")
    (tmp_path / "open").mkdir()
    mounts = (
        Mount(source=str(tmp_path), target="/shown"),
        Mount(source=str(tmp_path / "open"), target="/open", read_only=False),
    )
    label, other = owners.label(), owners.label()
    missing = Mount(source=str(tmp_path / "none"), target="/none")

    sandbox = await provider.create(label, attrs.evolve(spec, mounts=mounts))
    heard = await said(
        sandbox, "cat /shown/file; touch /shown/x 2>/dev/null || echo ' closed'"
    )
    await put(sandbox, "/open/large", bytes(2_000_000))
    await provider.destroy(label)
    with pytest.raises(SpecRefused) as told:
        await provider.create(other, attrs.evolve(spec, mounts=(missing,)))

    assert heard == "from the host closed\n"
    assert (tmp_path / "open" / "large").stat().st_size == 2_000_000
    assert told.value.field == "mounts"
    assert not (tmp_path / "none").exists()


async def test_a_published_port_is_reached_on_loopback(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, attrs.evolve(spec, ports=(8000,)))
    await put(sandbox, "hello", b"word")
    server = Command(
        argv=("python3", "-m", "http.server", "8000"), timeout_seconds=PATIENCE_SECONDS
    )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.exec, server)
        endpoint = await sandbox.endpoint(8000)
        answer = await _got(f"{endpoint.url}/hello")
        tasks.cancel_scope.cancel()
    ports = raw_engine.inspect(name_of(label))["NetworkSettings"]["Ports"]
    await provider.destroy(label)

    assert answer == "word"
    assert endpoint.url.startswith("http://127.0.0.1:")
    assert [bound["HostIp"] for bound in ports["8000/tcp"]] == ["127.0.0.1"]


async def _got(url: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        for _ in range(100):
            try:
                return (await client.get(url)).text
            except httpx.TransportError:
                await anyio.sleep(0.1)
    raise AssertionError(f"nobody answers at {url}")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"user": "no-such-user"}, "user"),
        ({"user": "1000:no-such-group"}, "user"),
        ({"workdir": "/proc/none"}, "workdir"),
        ({"image": "Not A Name"}, "image"),
    ],
)
async def test_what_the_image_cannot_give_is_refused(
    provider: DockerSandboxProvider,
    owners: Owners,
    spec: SandboxSpec,
    change: dict[str, str],
    field: str,
) -> None:
    with pytest.raises(SpecRefused) as told:
        await provider.create(owners.label(), attrs.evolve(spec, **change))

    assert told.value.field == field


async def test_a_read_only_root_still_works(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    closed = attrs.evolve(spec, user=USER, provider_options={"read_only": True})

    sandbox = await provider.create(label, closed)
    await put(sandbox, "large", bytes(2_000_000))
    heard = await said(
        sandbox, "wc -c < large; touch /etc/x 2>/dev/null || echo closed"
    )
    await provider.destroy(label)

    assert heard == "2000000\nclosed\n"


# Own entry points


async def test_an_own_entry_point_runs_and_is_ended_at_expiry(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    own = attrs.evolve(
        spec,
        entrypoint=("/bin/sh", "-c", 'echo "$LV_A" > /tmp/said; exec sleep 300'),
        env={"LV_A": "own"},
        lifetime_seconds=2.0,
    )

    sandbox = await provider.create(label, own)
    heard = await said(sandbox, "until [ -s /tmp/said ]; do :; done; cat /tmp/said")
    ended = await sandbox.exec(shell("sleep 300", timeout_seconds=PATIENCE_SECONDS))
    await provider.destroy(label)

    assert heard == "own\n"
    assert isinstance(ended.how, Lost), ended


async def test_an_own_entry_point_that_ends_is_no_sandbox(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()

    with pytest.raises(CreateFailed) as told:
        await provider.create(
            label, attrs.evolve(spec, entrypoint=("no-such-program",))
        )

    assert told.value.step == "ready"
    assert "127" in told.value.reason


@pytest.mark.case("FC-259")
async def test_a_health_check_is_waited_for_within_its_own_times(
    provider: DockerSandboxProvider,
    owners: Owners,
    test_image: str,
    derived: str,
) -> None:
    raw_engine.derive_image(
        test_image,
        derived,
        "HEALTHCHECK --interval=1.5s --timeout=2s --start-period=60s"
        " CMD test -e /tmp/up",
    )
    label = owners.label()
    spec = SandboxSpec(
        image=derived,
        entrypoint=("/bin/sh", "-c", "sleep 2; touch /tmp/up; sleep 300"),
        ready_timeout_seconds=2.0,
    )

    begun = time.monotonic()
    await provider.create(label, spec)
    taken = time.monotonic() - begun
    health = raw_engine.inspect(name_of(label))["State"]["Health"]["Status"]
    await provider.destroy(label)

    assert health == "healthy"
    assert taken > 2.0


# Nothing is left


@pytest.mark.case("FC-008", "FC-137", "FC-159")
async def test_no_network_and_no_volume_is_left(
    provider: DockerSandboxProvider, owners: Owners, test_image: str, derived: str
) -> None:
    raw_engine.derive_image(test_image, derived, "VOLUME /kept")
    spec = SandboxSpec(image=derived)
    networks, volumes = raw_engine.count_of("networks"), raw_engine.count_of("volumes")

    labels = [owners.label() for _ in range(3)]
    for label in labels:
        await provider.create(label, spec)
    during = raw_engine.count_of("networks"), raw_engine.count_of("volumes")
    for label in labels:
        await provider.destroy(label)
    with pytest.raises(CreateFailed):
        await provider.create(
            owners.label(), attrs.evolve(spec, entrypoint=("/bin/false",))
        )

    assert during == (networks, volumes + 3)
    assert raw_engine.count_of("networks") == networks
    assert raw_engine.count_of("volumes") == volumes


@pytest.mark.case("FC-092", "FC-094")
@pytest.mark.parametrize("state", ["created", "running", "frozen", "ended"])
async def test_every_state_is_destroyed(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec, state: str
) -> None:
    label = owners.label()
    if state == "created":
        body = {
            "Image": spec.image,
            "Labels": {"livery.claim": label.claim, "livery.owner": label.owner},
        }
        raw_engine.request(
            "POST", "/containers/create", body, query={"name": name_of(label)}
        )
    else:
        await provider.create(label, spec)
    if state == "frozen":
        await provider.freeze(label)
    if state == "ended":
        raw_engine.kill(name_of(label))

    await provider.destroy(label)

    assert raw_engine.inspect(name_of(label)) is None


@pytest.mark.case("FC-124", "FC-150")
async def test_somebody_elses_container_lives_on(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec, test_image: str
) -> None:
    label = owners.label()
    container = raw_engine.run_container(
        test_image, ["sleep", "600"], name=name_of(label)
    )

    try:
        with pytest.raises(ClaimTaken):
            await provider.create(label, spec)
        with pytest.raises(ClaimTaken):
            await provider.destroy(label)
        assert [found async for found in provider.list(label.owner)] == []
        assert raw_engine.inspect(container)["State"]["Running"]
    finally:
        raw_engine.remove(container)


# Borrowing


@pytest.mark.case("FC-096")
async def test_a_container_of_nemo_gym_is_used_and_never_ended(
    provider: DockerSandboxProvider, test_image: str
) -> None:
    name = f"nemo-gym-{os.urandom(6).hex()}"
    container = raw_engine.run_container(
        test_image,
        ["/bin/sh", "-c", "mkdir -p /testbed; sleep 600"],
        name=name,
        labels={"nemo-gym.sandbox": "1"},
        User="root",
        Env=["LV_GYM=its own"],
    )
    access = SandboxAccess(
        provider="docker",
        descriptor={"sandbox_id": name, "workdir": "/testbed"},
        workdir="/testbed",
    )

    try:
        sandbox = await provider.connect(access, borrower=ClaimId("borrower"))
        heard = await said(sandbox, 'pwd; echo "$LV_GYM"')
        await put(sandbox, f"{sandbox.scratch}/own", b"x")
        await put(sandbox, "large", bytes(2_000_000))
        await sandbox.disconnect()
        after = raw_engine.inspect(container)["State"]
        again = await provider.connect(access, borrower=ClaimId("borrower-2"))
        left = await said(again, "ls -A /tmp; stat -c %s large")
    finally:
        raw_engine.remove(container)

    assert heard == "/testbed\nits own\n"
    assert after["Running"]
    assert not after["Paused"]
    assert left.split() == [again.scratch.removeprefix("/tmp/"), "2000000"]
    assert again.expires_at is None


async def test_a_container_is_one_sandbox_however_it_is_spelled(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, spec)
    lent, name = sandbox.access(), name_of(label)
    whole = str(raw_engine.inspect(name)["Id"])

    told = [
        await provider.identify(spelled(lent, reference))
        for reference in (name, whole, whole[:12])
    ]
    for reference in (f"/{name}", f"x/../{name}", "../../images", "..", f"{name}?a"):
        for ask in (
            provider.identify(spelled(lent, reference)),
            provider.connect(spelled(lent, reference), borrower=ClaimId("b")),
        ):
            with pytest.raises(SpecRefused, match="sandbox_id"):
                await ask
    nothing = await provider.identify(spelled(lent, f"{name}-not"))
    await provider.destroy(label)

    assert told == [sandbox.sandbox_id] * 3
    assert nothing == f"{name}-not"


def spelled(access: SandboxAccess, reference: str) -> SandboxAccess:
    return attrs.evolve(
        access, descriptor={**access.descriptor, "sandbox_id": reference}
    )


@pytest.mark.case("FC-104")
async def test_what_does_not_run_is_not_borrowed(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, spec)
    access, borrower = sandbox.access(), ClaimId("borrower")

    await provider.freeze(label)
    with pytest.raises(SandboxLost, match="frozen"):
        await provider.connect(access, borrower=borrower)
    await provider.thaw(label)
    raw_engine.kill(name_of(label))
    with pytest.raises(SandboxLost, match="137"):
        await provider.connect(access, borrower=borrower)
    await provider.destroy(label)
    with pytest.raises(SandboxLost, match="no such container"):
        await provider.connect(access, borrower=borrower)


# Commands and files


@pytest.mark.case("FC-052")
async def test_what_runs_inside_cannot_end_its_container(
    provider: DockerSandboxProvider, owners: Owners, test_image: str
) -> None:
    # An agent that could would choose not to be graded.
    label = owners.label()
    sandbox = await provider.create(label, SandboxSpec(image=test_image, user="root"))
    first = "tr '\\0' ' ' < /proc/1/cmdline"

    before = await said(sandbox, first)
    for signal in ("TERM", "INT", "HUP", "QUIT", "USR1", "KILL"):
        await said(sandbox, f"kill -{signal} 1; kill -{signal} -- -1 2>&1; true")
    await said(sandbox, "pkill sleep; true")
    after = await said(sandbox, first)
    began = time.monotonic()
    raw_engine.request("POST", f"/containers/{name_of(label)}/stop?t=60")
    took = time.monotonic() - began
    await provider.destroy(label)

    assert before == after
    assert "sleep" in before
    assert took < PATIENCE_SECONDS / 2, "whoever stops it need not wait"


async def test_the_way_of_commands_is_told(
    provider: DockerSandboxProvider,
    owners: Owners,
    test_image: str,
    plain_image: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    one, other, third = owners.label(), owners.label(), owners.label()

    resident = await provider.create(one, SandboxSpec(image=test_image))
    plain = await provider.create(other, SandboxSpec(image=plain_image))
    config = DockerEngineConfig(python="/usr/bin/env")
    async with open_docker_engine(config) as odd:
        broken = await odd.create(third, SandboxSpec(image=test_image))
        assert await said(broken, "echo plain") == "plain\n"
    for label in (one, other, third):
        await provider.destroy(label)

    assert resident.plain_because == ""
    assert plain.plain_because == "there is no python3"
    assert "does not start" in (broken.plain_because or "")
    assert "one engine exec each (there is no python3)" in caplog.text


async def test_a_lost_worker_is_replaced(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, spec)
    heard: list[Ended] = []

    async def sleep() -> None:
        heard.append(
            await sandbox.exec(shell("touch on; sleep 300", timeout_seconds=400.0))
        )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep)
        await said(sandbox, "until [ -e on ]; do :; done")
        _kill_the_worker(label)
    after = await said(sandbox, "echo on")
    await provider.destroy(label)

    assert isinstance(heard[0].how, ExitUnknown), heard
    assert after == "on\n"


def _kill_the_worker(label: ClaimLabel) -> None:
    """Kill the worker from the engine's host, as nobody inside could."""
    name = name_of(label)
    _, raw = raw_engine.request("GET", f"/containers/{name}/top")
    table = json.loads(raw)
    pid = table["Titles"].index("PID")
    for row in table["Processes"]:
        if "python3 -I -S -c" in row[-1]:
            os.kill(int(row[pid]), 9)


@pytest.mark.case("FC-034")
async def test_no_time_limit_of_the_client_ends_a_long_command(
    owners: Owners, provider: DockerSandboxProvider, plain_image: str, test_image: str
) -> None:
    engine = Engine(
        to_address(None, provider="docker"), provider="docker", control_seconds=1.0
    )
    heard: list[Ended] = []
    async with anyio.create_task_group() as tasks:
        hasty = DockerSandboxProvider(DockerEngineConfig(), engine=engine, tasks=tasks)
        for image in (plain_image, test_image):
            label = owners.label()
            sandbox = await provider.create(label, SandboxSpec(image=image))
            del sandbox
            found = await hasty.find(label)
            assert found is not None
            heard.append(await found.exec(shell("sleep 3", timeout_seconds=60.0)))
            await provider.destroy(label)
        tasks.cancel_scope.cancel()
    await engine.aclose()

    assert [ended.how for ended in heard] == [Exited(0), Exited(0)]


@pytest.mark.parametrize("image", ["test_image", "plain_image"])
async def test_thirty_two_commands_hold_no_thread_each(
    provider: DockerSandboxProvider,
    owners: Owners,
    image: str,
    request: pytest.FixtureRequest,
) -> None:
    label = owners.label()
    spec = SandboxSpec(image=str(request.getfixturevalue(image)))
    sandbox = await provider.create(label, spec)
    threads: list[int] = []

    async def run() -> None:
        await said(sandbox, "sleep 4")

    async with anyio.create_task_group() as tasks:
        for _ in range(32):
            tasks.start_soon(run)
        await anyio.sleep(3.5)
        threads += [
            thread.ident or 0
            for thread in threading.enumerate()
            if "AnyIO" in thread.name and not getattr(thread, "idle_since", 0)
        ]
    await provider.destroy(label)

    assert len(threads) <= 16


@pytest.mark.case("FC-066", "FC-072")
@pytest.mark.parametrize("image", ["test_image", "plain_image"])
async def test_a_missing_folder_is_made_whatever_the_size(
    provider: DockerSandboxProvider,
    owners: Owners,
    image: str,
    request: pytest.FixtureRequest,
) -> None:
    label = owners.label()
    spec = SandboxSpec(image=str(request.getfixturevalue(image)), user=USER)
    sandbox = await provider.create(label, spec)
    await put(sandbox, "file", b"x")

    for size in (1, 1_000_000, 2_000_000):
        await put(sandbox, f"new {size}/sub/file", bytes(size))
        with pytest.raises(FileForbidden):
            await put(sandbox, "file/sub/file", bytes(size))
    heard = await said(sandbox, "ls -ln 'new 2000000/sub/file'")
    await provider.destroy(label)

    assert heard.split()[2:5] == ["1000", "1000", "2000000"]


async def test_a_gibibyte_is_not_held_in_memory(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, spec)
    piece, got = os.urandom(PIECE_BYTES), 0

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(BULK_BYTES // PIECE_BYTES):
            yield piece

    before = _peak_kib()
    await sandbox.put("huge", pieces(), size=BULK_BYTES)
    async with sandbox.get("huge") as chunks:
        async for chunk in chunks:
            got += len(chunk)
    growth = _peak_kib() - before
    await provider.destroy(label)

    assert got == BULK_BYTES
    assert growth < GROWTH_KIB_MAX


def _peak_kib() -> int:
    """Return the most memory that this process has held, since the last look."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            Path("/proc/self/clear_refs").write_text("5")
            return int(line.split()[1])
    raise AssertionError("the kernel does not tell")


async def test_the_lifetime_is_not_eaten_by_making(
    provider: DockerSandboxProvider, owners: Owners, spec: SandboxSpec
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, attrs.evolve(spec, lifetime_seconds=100.0))
    ready = time.time()

    found = await provider.find(label)
    assert found is not None
    await said(found, "true")
    (listed,) = [one async for one in provider.list(label.owner)]
    await provider.destroy(label)

    assert sandbox.expires_at is not None
    assert found.expires_at == sandbox.expires_at
    assert ready + 90.0 < sandbox.expires_at <= ready + 100.0
    assert listed.expires_at is not None
    assert listed.expires_at >= sandbox.expires_at
