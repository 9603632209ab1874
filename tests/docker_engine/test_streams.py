# SPDX-License-Identifier: Apache-2.0
"""Commands and files over an engine's streams, on a fake whose execs run here.

The sandbox suite, with the worker and without, less what only a real engine can
show: isolation, and other users. And what happens when a stream breaks.
"""

import os
import shutil
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import psutil
import pytest

from livery.adapters.docker_engine import (
    DockerEngineConfig,
    DockerSandboxProvider,
    open_docker_engine,
)
from livery.adapters.docker_engine.bulk_files import BulkFiles, NotBulk
from livery.adapters.docker_engine.engine import Engine
from livery.adapters.docker_engine.engine_address import to_address
from livery.adapters.docker_engine.opening import scratch_folder
from livery.adapters.docker_engine.sandbox import DockerSandbox
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.contracts import sandbox as sandbox_suite
from livery.ports.contracts.cases import Case
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.required.sandbox import (
    Command,
    DiskFull,
    Ended,
    Exited,
    ExitUnknown,
    Liveness,
    Lost,
    Output,
    SandboxFailed,
    SandboxLost,
    TransferCut,
    shell,
)
from livery.ports.required.sandbox_provider import (
    Capability,
    ClaimLabel,
    SandboxSpec,
)

from ..contracts.parameters import parameters
from .fake_engine import IMAGE, FakeEngine, Says, fake_engine

pytestmark = pytest.mark.anyio

CAPABILITIES = frozenset(Capability) - {Capability.ISOLATION, Capability.USERS}
WAYS = {"worker": "python3", "plain": "no-such-python"}
EXECS_MANY = 60
OWNER = OwnerId("owner")
BULK_BYTES = 3_000_000

ways = pytest.mark.parametrize("way", WAYS)


@asynccontextmanager
async def made(
    folder: Path, way: str
) -> AsyncGenerator[tuple[FakeEngine, DockerSandboxProvider, DockerSandbox]]:
    """Make a sandbox on a fake whose execs run here."""
    user = f"{os.geteuid()}:{os.getegid()}"
    claim = ClaimId(f"claim-{os.urandom(6).hex()}")
    label = ClaimLabel(claim=claim, owner=OWNER)
    spec = SandboxSpec(image=IMAGE, workdir=str(folder / "work"), user=user)
    async with fake_engine(folder) as fake:
        fake.runs_here = True
        config = DockerEngineConfig(address=fake.address, python=WAYS[way])
        try:
            async with open_docker_engine(config) as provider:
                yield fake, provider, await provider.create(label, spec)
        finally:
            shutil.rmtree(scratch_folder(claim), ignore_errors=True)


@ways
@pytest.mark.parametrize(
    "case",
    parameters(sandbox_suite.CASES, capabilities=CAPABILITIES, hooks=frozenset()),
)
async def test_sandbox(case: Case[SandboxContext], tmp_path: Path, way: str) -> None:
    async with made(tmp_path, way) as (_, _, sandbox):
        await case.run(
            SandboxContext(
                sandbox=sandbox,
                capabilities=CAPABILITIES,
                long_command_seconds=2.0,
                execs_many=EXECS_MANY,
            )
        )


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece


async def read(sandbox: DockerSandbox, path: str) -> bytes:
    async with sandbox.get(path) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def test_large_files_go_by_archive_and_small_ones_do_not(tmp_path: Path) -> None:
    content = os.urandom(BULK_BYTES)
    async with made(tmp_path, "worker") as (fake, _, sandbox):
        await sandbox.put("small", pieces(b"x"), size=1)
        await sandbox.put("unknown", pieces(content))
        assert "put archive" not in fake.asked

        await sandbox.put("a b/large", pieces(content), size=len(content), mode=0o640)
        assert fake.asked.count("put archive") == 1
        assert (await sandbox.stat("a b/large")).mode == 0o640

        assert await read(sandbox, "a b/large") == content
        assert fake.asked.count("get archive") == 1
        assert await read(sandbox, "small") == b"x"
        assert fake.asked.count("get archive") == 1


async def test_a_folder_of_any_name_gives_its_large_files(tmp_path: Path) -> None:
    content = os.urandom(BULK_BYTES)
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "large").write_bytes(content)
    async with made(tmp_path, "worker") as (fake, _, sandbox):
        (tmp_path / "work" / "link").symlink_to(folder)

        assert await read(sandbox, "link/large") == content
        assert fake.asked.count("get archive") == 1


async def test_an_owner_that_no_archive_can_tell_goes_the_other_way(
    tmp_path: Path,
) -> None:
    address = to_address(f"unix://{tmp_path}/none", provider="docker")
    bulk = BulkFiles(
        engine=Engine(address, provider="docker"),
        container="none",
        root_device=0,
        worker=Nobody(),
        user="1000650000:0",
        owner=(1_000_650_000, 0),
        scratch="/tmp/none",
    )
    given = pieces(bytes(BULK_BYTES))

    with pytest.raises(NotBulk):
        await bulk.put("/large", given, size=BULK_BYTES, mode=0o644)

    assert [len(piece) async for piece in given] == [BULK_BYTES]


class Nobody:
    """A worker that says where things are, and is asked for nothing else."""

    async def rename(self, source: str, path: str, *, user: str | None) -> None:
        raise AssertionError("nothing was put")

    async def exec(
        self, command: Command, *, cwd: str, env: Mapping[str, str], user: str | None
    ) -> Ended:
        return Ended(how=Exited(0), stdout=Output(head=b"0 0\n/tmp", size=8))


@pytest.mark.case("FC-066")
async def test_an_archive_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    content = bytes(BULK_BYTES)
    async with made(tmp_path, "worker") as (fake, _, sandbox):
        fake.will("put archive", Says(500, "write /x: no space left on device"))
        with pytest.raises(DiskFull):
            await sandbox.put("new", pieces(content), size=len(content))
        fake.will("put archive", Says(500, "something broke"))
        with pytest.raises(SandboxFailed, match="something broke"):
            await sandbox.put("new", pieces(content), size=len(content))
        with pytest.raises(TransferCut):
            await sandbox.put("new", pieces(content[:-1]), size=len(content))

        assert list((tmp_path / "work").iterdir()) == []


async def test_an_archive_that_is_none_is_a_failure_of_the_provider(
    tmp_path: Path,
) -> None:
    async with made(tmp_path, "worker") as (fake, _, sandbox):
        await sandbox.put("large", pieces(bytes(BULK_BYTES)), size=BULK_BYTES)
        fake.will("get archive", Says(500, "cannot pack"))

        with pytest.raises(SandboxFailed, match="cannot pack"):
            await read(sandbox, "large")


@ways
@pytest.mark.case("FC-037", "FC-054")
async def test_an_end_under_a_command_is_its_loss(tmp_path: Path, way: str) -> None:
    heard: list[Ended] = []
    async with made(tmp_path, way) as (fake, _, sandbox):

        async def sleep() -> None:
            script = "echo begun; touch on; exec sleep 301"
            heard.append(await sandbox.exec(shell(script, timeout_seconds=60.0)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep)
            await until(tmp_path / "work" / "on")
            _end_all(fake)
        later = await sandbox.exec(shell("echo on", timeout_seconds=5.0))
        with pytest.raises(SandboxLost):
            await sandbox.stat("on")
        with pytest.raises(SandboxLost):
            await sandbox.put("on", pieces(b"x"), size=1)
        with pytest.raises(SandboxLost):
            await read(sandbox, "on")
        with pytest.raises(SandboxLost):
            await sandbox.endpoint(1)
        status = await sandbox.status()

    assert isinstance(heard[0].how, Lost), heard
    assert isinstance(later.how, Lost), later
    assert "137" in later.how.reason
    assert status.liveness is Liveness.ENDED
    _see_nothing_of("sleep 301")


def _end_all(fake: FakeEngine) -> None:
    """End every container and what runs in it, as KILL to its first process would."""
    for container in fake.containers.values():
        container["State"].update(Status="exited", ExitCode=137)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.send_signal(signal.SIGKILL)


@ways
async def test_a_wrapper_that_is_killed_leaves_an_unknown_end(
    tmp_path: Path, way: str
) -> None:
    heard: list[Ended] = []
    async with made(tmp_path, way) as (_, _, sandbox):

        async def sleep() -> None:
            script = "echo begun; touch on; exec sleep 302"
            heard.append(await sandbox.exec(shell(script, timeout_seconds=60.0)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep)
            await until(tmp_path / "work" / "on")
            for child in psutil.Process().children():
                child.send_signal(signal.SIGKILL)
        after = await sandbox.exec(shell("echo on", timeout_seconds=5.0))

    assert isinstance(heard[0].how, ExitUnknown), heard
    assert (after.how, after.stdout.kept) == (Exited(0), b"on\n")
    _see_nothing_of("sleep 302")


async def test_a_worker_that_ends_again_and_again_is_given_up(tmp_path: Path) -> None:
    async with made(tmp_path, "worker") as (fake, _, sandbox):
        await sandbox.disconnect()
        fake.will("exec", *[Says(500, "no exec today")] * 200)

        with pytest.raises(SandboxFailed):
            await sandbox.stat("x")


@ways
@pytest.mark.case("FC-052")
async def test_the_way_is_told(tmp_path: Path, way: str) -> None:
    async with made(tmp_path, way) as (_, _, sandbox):
        assert (sandbox.plain_because == "") is (way == "worker")


@ways
@pytest.mark.case("FC-096")
async def test_a_borrower_takes_its_folder_along(tmp_path: Path, way: str) -> None:
    borrower = ClaimId(f"borrower-{os.urandom(6).hex()}")
    async with made(tmp_path, way) as (fake, provider, sandbox):
        borrowed = await provider.connect(sandbox.access(), borrower=borrower)
        await borrowed.put(f"{borrowed.scratch}/own", pieces(b"x"), size=1)
        assert Path(borrowed.scratch).is_dir()

        await borrowed.disconnect()

        assert not Path(borrowed.scratch).exists()
        assert Path(sandbox.scratch).is_dir()
        assert [one["State"]["Status"] for one in fake.containers.values()] == [
            "running"
        ]


async def test_a_frozen_sandbox_is_frozen_and_thawed_once(tmp_path: Path) -> None:
    async with made(tmp_path, "worker") as (fake, provider, sandbox):
        (listed,) = [one async for one in provider.list(OWNER)]
        label = listed.label

        for _ in range(2):
            await provider.freeze(label)
            assert (await sandbox.status()).liveness is Liveness.FROZEN
        for _ in range(2):
            await provider.thaw(label)
            assert (await sandbox.status()).liveness is Liveness.RUNNING
        fake.will("pause", Says(500, "cgroup is busy"))
        with pytest.raises(SandboxFailed, match="busy"):
            await provider.freeze(label)
        fake.containers.clear()
        with pytest.raises(SandboxLost):
            await provider.thaw(label)

    assert (fake.asked.count("pause"), fake.asked.count("unpause")) == (2, 1)


async def until(path: Path) -> None:
    with anyio.fail_after(30.0):
        while not path.exists():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def _see_nothing_of(command: str) -> None:
    """Nothing on this host runs the command any more."""
    running = [
        process
        for process in psutil.process_iter(["cmdline"])
        if " ".join(process.info["cmdline"] or []).endswith(command)
    ]
    assert running == []
