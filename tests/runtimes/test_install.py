# SPDX-License-Identifier: Apache-2.0
"""Programs come into sandboxes whole, verified and once; what is cut off is resumed."""

import json
import os
import time
from collections.abc import AsyncIterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from livery.domain.claims import ClaimId
from livery.domain.platforms import LibcTooOld, PlatformUnknown
from livery.domain.runtimes import (
    Platform,
    Runtime,
    RuntimeConflict,
    Stager,
    StagingUnderWay,
)
from livery.ports.provided import install_runtime
from livery.ports.provided.install_runtime import Came, Delivery, WantedRuntime
from livery.ports.provided.mount_runtime import mount_runtime
from livery.ports.provided.runtime_faults import (
    RuntimeNotMounted,
    RuntimeRejected,
    RuntimeTooLarge,
)
from livery.ports.provided.send_parts import LANES, PART_BYTES, PartLanes
from livery.ports.required.runtime_source import PackedRuntime
from livery.ports.required.sandbox import (
    Command,
    FileForbidden,
    Sandbox,
    SandboxAccess,
    SandboxFailed,
    SandboxLost,
)

from ..environment_server.good_partners import eventually
from .registry import NAME, VERSION, program_text
from .sandboxes import (
    WANTED,
    Host,
    Unsteady,
    broken,
    host_in,
    left_in,
    place_of,
)

pytestmark = pytest.mark.anyio
ANNA, BERT = Stager("anna"), Stager("bert")
INSTALLED = ["claude", "lock"]


async def version_told(sandbox: Sandbox, path: str) -> bytes:
    ended = await sandbox.exec(Command(argv=(path, "--version"), timeout_seconds=30.0))
    return ended.stdout.kept


async def test_a_program_is_installed_and_runs(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()

        installed = await install(sandbox, WANTED, stager=ANNA)

        assert installed.came is Came.TRANSFERRED
        assert installed.runtime.sha256 == host.source.sha256
        assert await version_told(sandbox, installed.path) == b"1.2.3 (Fake)\n"
        assert Path(installed.path).read_bytes() == host.program
        assert left_in(sandbox) == INSTALLED


async def test_a_second_seed_moves_no_byte_and_reads_nothing(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        first = await install(sandbox, WANTED, stager=ANNA)
        sent = install.lanes.sent

        second = await install(sandbox, WANTED, stager=BERT)

        assert (second.came, second.path) == (Came.REUSED, first.path)
        assert install.lanes.sent == sent > 4


async def test_another_process_verifies_what_it_finds(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox = await host.sandbox()
        first = await host.install()(sandbox, WANTED, stager=ANNA)
        other = host.install()

        second = await other(sandbox, WANTED, stager=BERT)

        assert (second.came, second.path) == (Came.REUSED, first.path)
        assert other.lanes.sent == 0


async def test_a_borrower_shares_what_the_owner_installed(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox = await host.sandbox()
        first = await host.install()(sandbox, WANTED, stager=ANNA)
        lent = await host.provider.connect(
            sandbox.access(), borrower=ClaimId("borrower")
        )

        second = await host.install()(lent, WANTED, stager=BERT)

        assert (second.came, second.path) == (Came.REUSED, first.path)
        await lent.disconnect()


async def test_of_several_at_once_in_one_sandbox_one_installs(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox = await host.sandbox()
        hosts = [host.install(), host.install()]
        came: list[Came] = []

        async def seed(number: int) -> None:
            stager = Stager(f"session-{number}")
            found = await hosts[number % 2](sandbox, WANTED, stager=stager)
            came.append(found.came)

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(seed, number)

        assert sorted(came) == [Came.REUSED] * 3 + [Came.TRANSFERRED]
        assert left_in(sandbox) == INSTALLED


async def test_many_sandboxes_share_the_lanes_and_the_reading(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandboxes = [await host.sandbox(f"number-{number}") for number in range(4)]
        install = host.install()

        async with anyio.create_task_group() as tasks:
            for sandbox in sandboxes:
                tasks.start_soon(lambda one=sandbox: install(one, WANTED, stager=ANNA))

        assert install.lanes.most == LANES
        assert host.source.digests.reads == 1
        assert all(left_in(sandbox) == INSTALLED for sandbox in sandboxes)


@pytest.mark.case("FC-212")
async def test_a_libc_that_is_too_old_is_told_before_a_byte_is_sent(
    tmp_path: Path,
) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        wanted = attrs.evolve(WANTED, glibc_least=(99, 0))

        with pytest.raises(LibcTooOld):
            await install(sandbox, wanted, stager=ANNA)
        with pytest.raises(LibcTooOld):
            await install.check_standing(sandbox, wanted, path="/x", sha256="0" * 64)

        assert install.lanes.sent == host.source.digests.reads == 0


def answering(words: object) -> bytes:
    """Return a worker script that gives this answer to whatever it is asked."""
    return f"print({json.dumps(words)!r})".encode()


@pytest.mark.case("FC-212")
async def test_a_platform_that_nobody_knows_is_told(tmp_path: Path) -> None:
    said = {"state": "looked", "system": "Plan9", "machine": "mips", "libc": "none"}
    async with host_in(tmp_path) as host:
        install = host.install(program=answering(said))

        with pytest.raises(PlatformUnknown, match="Plan9"):
            await install(await host.sandbox(), WANTED, stager=ANNA)


@pytest.mark.parametrize(
    "said", [{}, {"state": "looked", "system": 7}, {"state": 1}, []]
)
async def test_an_answer_that_is_none_is_the_sandboxs_failure(
    tmp_path: Path, said: object
) -> None:
    async with host_in(tmp_path) as host:
        install = host.install(program=answering(said))

        with pytest.raises(SandboxFailed):
            await install(await host.sandbox(), WANTED, stager=ANNA)


@attrs.define
class Oversized:
    """A source whose program is larger than any disk."""

    source: object

    def __getattr__(self, name: str) -> object:
        return getattr(self.source, name)

    async def packed(self, runtime: Runtime) -> PackedRuntime:
        found: PackedRuntime = await self.source.packed(runtime)  # type: ignore[attr-defined]
        return attrs.evolve(found, size=10**16)


async def test_a_disk_that_is_too_small_is_told_before_a_byte_is_sent(
    tmp_path: Path,
) -> None:
    async with host_in(tmp_path) as host:
        install = host.install(source=Oversized(host.source))

        with pytest.raises(RuntimeTooLarge, match="bytes are free"):
            await install(await host.sandbox(), WANTED, stager=ANNA)

        assert install.lanes.sent == 0


async def test_a_part_that_does_not_arrive_is_sent_again_alone(tmp_path: Path) -> None:
    failures = 3

    def turn(path: str, content: bytes) -> bytes:
        nonlocal failures
        if path.endswith("/000002") and failures:
            failures -= 1
            raise broken(path)
        return content

    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        unsteady = Unsteady(sandbox, turn)

        found = await install(unsteady, WANTED, stager=ANNA)  # type: ignore[arg-type]

        assert found.came is Came.TRANSFERRED
        parts = [path for path in unsteady.put_paths if "/parts-" in path]
        assert len(parts) == len(set(parts)) == -(-len(host.program) // PART_BYTES)


async def test_what_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    def turn(path: str, content: bytes) -> bytes:
        if path.endswith("/000005"):
            raise broken(path)
        return content

    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()

        with pytest.raises(SandboxFailed):
            await install(Unsteady(sandbox, turn), WANTED, stager=ANNA)  # type: ignore[arg-type]
        steady = Unsteady(sandbox, lambda path, content: content)
        await install(steady, WANTED, stager=BERT)  # type: ignore[arg-type]

        parts = [path[-6:] for path in steady.put_paths if "/parts-" in path]
        assert "000005" in parts
        assert "000000" not in parts
        assert left_in(sandbox) == INSTALLED


async def test_a_cancelled_transfer_ends_at_once_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    came = anyio.Event()

    def turn(path: str, content: bytes) -> bytes:
        if path.endswith("/000003"):
            came.set()
        return content

    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        unsteady = Unsteady(sandbox, turn)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: install(unsteady, WANTED, stager=ANNA)  # type: ignore[arg-type, return-value]
            )
            await came.wait()
            tasks.cancel_scope.cancel()

        assert left_in(sandbox) == ["lock"]
        other = await install(sandbox, WANTED, stager=BERT)
        assert other.came is Came.TRANSFERRED


def claimed_by(sandbox: Sandbox, name: str, *, age_seconds: float) -> Path:
    """Leave the claim of another stager, as of a host that was killed."""
    place = place_of(sandbox)
    claim = place / "stager"
    claim.write_text(name)
    then = time.time() - age_seconds
    for path in (claim, *place.glob("parts-*")):
        os.utime(path, (then, then))
    return claim


async def killed_while_sending(host: Host, sandbox: Sandbox) -> None:
    """Leave what a killed host leaves: some parts, and its claim."""

    def turn(path: str, content: bytes) -> bytes:
        if path.endswith("/000004"):
            raise broken(path)
        return content

    with suppress(SandboxFailed):
        await host.install()(Unsteady(sandbox, turn), WANTED, stager=ANNA)  # type: ignore[arg-type]


async def test_a_dead_stagers_parts_are_taken_over(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        await killed_while_sending(host, sandbox)
        claimed_by(sandbox, "dead", age_seconds=3600)

        found = await install(sandbox, WANTED, stager=BERT)

        assert found.came is Came.TRANSFERRED
        assert install.lanes.sent < -(-len(host.program) // PART_BYTES)


async def test_a_live_stager_is_waited_for(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        await killed_while_sending(host, sandbox)
        claim = claimed_by(sandbox, "alive", age_seconds=0)
        found: list[Came] = []
        done = anyio.Event()

        async def seed() -> None:
            found.append((await install(sandbox, WANTED, stager=BERT)).came)
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(seed)
            with anyio.move_on_after(0.3) as waited:
                await done.wait()
            claim.unlink()
        assert waited.cancelled_caught

        assert found == [Came.TRANSFERRED]


async def test_a_stager_is_not_waited_for_without_end(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        install = host.install(
            program=answering({**LOOKED, "state": "busy", "stager": "alive"}),
            staging_seconds=0.0,
        )

        with pytest.raises(StagingUnderWay, match="alive"):
            await install(await host.sandbox(), WANTED, stager=BERT)


LOOKED = {"system": "Linux", "machine": "x86_64", "libc": "glibc 2.36"}


async def test_another_build_that_stands_there_is_left_alone(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        first = await install(sandbox, WANTED, stager=ANNA)
        other = program_text(10)
        Path(first.path).write_bytes(other)

        with pytest.raises(RuntimeConflict):
            await install(sandbox, WANTED, stager=BERT)

        assert Path(first.path).read_bytes() == other


async def test_parts_that_are_damaged_are_never_installed(tmp_path: Path) -> None:
    def turn(path: str, content: bytes) -> bytes:
        return bytes(len(content)) if path.endswith("/000003") else content

    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()

        with pytest.raises(RuntimeRejected):
            await install(Unsteady(sandbox, turn), WANTED, stager=ANNA)  # type: ignore[arg-type]

        assert left_in(sandbox) == ["lock"]


async def test_a_part_on_its_way_when_others_are_refused_is_not_left(
    tmp_path: Path,
) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()

        with pytest.raises(RuntimeRejected):
            await install(LateParts(sandbox, damaged), WANTED, stager=ANNA)  # type: ignore[arg-type]

        assert left_in(sandbox) == ["lock"]


def damaged(path: str, content: bytes) -> bytes:
    return bytes(len(content)) if path.endswith("/000001") else content


class LateParts(Unsteady):
    """A sandbox where one part arrives just after all others were cleared away."""

    async def put(self, path: str, chunks: AsyncIterable[bytes], **words: Any) -> None:
        if path.endswith("/000002"):
            with anyio.CancelScope(shield=True):
                await eventually(lambda: not Path(path).parent.exists())
                Path(path).parent.mkdir(mode=0o700)
                await super().put(path, chunks, **words)
        else:
            await super().put(path, chunks, **words)


async def test_a_program_of_another_version_is_never_installed(tmp_path: Path) -> None:
    async with host_in(tmp_path, program_text(says="9.9.9 (Fake)")) as host:
        sandbox, install = await host.sandbox(), host.install()

        with pytest.raises(RuntimeRejected, match=r"9\.9\.9"):
            await install(sandbox, WANTED, stager=ANNA)

        assert left_in(sandbox) == ["lock"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"#!/bin/sh\nexit 3\n", "ended with 3"),
        (b"#!/nowhere/sh\n", "No such file"),
        (b"#!/bin/sh\nexit 0\n", "ended with 0"),
    ],
)
@pytest.mark.case("FC-212")
async def test_a_program_that_does_not_start_is_told(
    tmp_path: Path, text: bytes, told: str
) -> None:
    async with host_in(tmp_path, text) as host:
        sandbox, install = await host.sandbox(), host.install()

        with pytest.raises(RuntimeRejected, match=told):
            await install(sandbox, WANTED, stager=ANNA)

        assert left_in(sandbox) == ["lock"]


async def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        folder = Path(sandbox.scratch).parent / f".runtimes-{os.geteuid()}"
        folder.mkdir()
        folder.chmod(0o777)

        with pytest.raises(FileForbidden, match="not ours alone"):
            await install(sandbox, WANTED, stager=ANNA)


async def test_a_sandbox_that_is_lost_is_told(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()

        def turn(path: str, content: bytes) -> bytes:
            if path.endswith("/000002"):
                raise SandboxLost("local", "one", "it was ended")
            return content

        with pytest.raises(SandboxLost):
            await install(Unsteady(sandbox, turn), WANTED, stager=ANNA)  # type: ignore[arg-type]


@pytest.mark.parametrize("lost_at", ["unpack", "install"])
async def test_who_was_silent_for_too_long_gives_way_and_begins_anew(
    tmp_path: Path, lost_at: str
) -> None:
    lost = {"state": "not_the_stager"}
    async with host_in(tmp_path, program_text()) as host:
        found = {"state": "unpacked", "sha256": host.source.sha256, "version": VERSION}
        install = host.install(
            program=answering_each(
                look={"state": "looked", **LOOKED},
                begin={"state": "begun", "parts": "/parts", "present": [0]},
                unpack=lost if lost_at == "unpack" else found,
                install=lost,
            )
        )

        with pytest.raises(StagingUnderWay):
            await install(await host.sandbox(), WANTED, stager=ANNA)


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({"unpack": {"state": "full", "reason": "x"}}, RuntimeTooLarge),
        ({"unpack": {"state": "what"}}, SandboxFailed),
        ({"unpack": {"state": "damaged", "reason": "x"}}, RuntimeRejected),
        ({"install": {"state": "forbidden", "path": "/p"}}, FileForbidden),
    ],
)
async def test_what_goes_wrong_in_the_sandbox_has_its_own_fault(
    tmp_path: Path, answers: dict[str, object], fault: type[Exception]
) -> None:
    async with host_in(tmp_path, program_text()) as host:
        found = {"state": "unpacked", "sha256": host.source.sha256, "version": VERSION}
        words: dict[str, object] = {
            "look": {"state": "looked", **LOOKED},
            "begin": {"state": "begun", "parts": "/parts", "present": [0]},
            "unpack": found,
            "abandon": {"state": "abandoned"},
            **answers,
        }
        install = host.install(program=answering_each(**words))

        with pytest.raises(fault):
            await install(await host.sandbox(), WANTED, stager=ANNA)


def answering_each(**answers: object) -> bytes:
    """Return a worker script that gives each call its answer, or breaks off."""
    lines = {call: json.dumps(words) for call, words in answers.items()}
    return f"import sys; print({lines!r}[sys.argv[1]])".encode()


# What stands in the sandbox already.


async def test_a_mounted_program_is_verified_and_nothing_is_sent(
    tmp_path: Path,
) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        mounted = {here(): str(host.source.path)}

        for delivery in (Delivery.AUTO, Delivery.MOUNT):
            found = await install(
                sandbox, WANTED, stager=ANNA, delivery=delivery, mounted=mounted
            )
            assert (found.came, found.path) == (Came.MOUNTED, mounted[here()])

        assert install.lanes.sent == 0


def here() -> Platform:
    kind, _ = os.confstr("CS_GNU_LIBC_VERSION").split()  # type: ignore[union-attr]
    return Platform(system="linux", machine=os.uname().machine, libc=kind)


async def test_what_is_mounted_is_verified_and_read_only(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        platforms = [here(), attrs.evolve(here(), libc="musl")]

        found = await mount_runtime(host.source, WANTED, platforms)

        assert [one.platform for one in found] == platforms
        assert {one.mount.source for one in found} == {str(host.source.path)}
        assert all(one.mount.read_only for one in found)
        assert len({one.mount.target for one in found}) == len(platforms)
        assert host.source.digests.reads == 1


async def test_a_mounted_program_that_is_another_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(program_text())
    async with host_in(tmp_path) as host:
        with pytest.raises(RuntimeRejected, match="its sha256 is"):
            await host.install()(
                await host.sandbox(),
                WANTED,
                stager=ANNA,
                mounted={here(): str(other)},
            )


async def test_what_must_be_mounted_and_is_not_is_told(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        install = host.install()

        with pytest.raises(RuntimeNotMounted, match=here().word):
            await install(
                await host.sandbox(), WANTED, stager=ANNA, delivery=Delivery.MOUNT
            )


async def test_a_transfer_that_is_forced_leaves_the_mount_alone(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        found = await host.install()(
            await host.sandbox(),
            WANTED,
            stager=ANNA,
            delivery=Delivery.TRANSFER,
            mounted={here(): str(host.source.path)},
        )

        assert found.came is Came.TRANSFERRED


async def test_the_sandboxs_own_program_is_verified(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        sandbox, install = await host.sandbox(), host.install()
        path, sha256 = str(host.source.path), host.source.sha256.upper()

        for _ in range(2):
            found = await install.check_standing(
                sandbox, WANTED, path=path, sha256=sha256
            )
            assert (found.came, found.path) == (Came.STOOD, path)


@pytest.mark.parametrize(
    ("path", "told"),
    [("missing", "there is none"), (".", "no file"), ("quiet", "Permission denied")],
)
async def test_an_own_program_that_is_none_is_told(
    tmp_path: Path, path: str, told: str
) -> None:
    text = program_text()
    (tmp_path / "quiet").write_bytes(text)
    async with host_in(tmp_path, text) as host:
        with pytest.raises((RuntimeRejected, FileForbidden), match=told):
            await host.install().check_standing(
                await host.sandbox(),
                WANTED,
                path=str(tmp_path / path),
                sha256=host.source.sha256,
            )


async def test_an_own_program_of_another_version_is_told(tmp_path: Path) -> None:
    async with host_in(tmp_path) as host:
        with pytest.raises(RuntimeRejected, match=VERSION):
            await host.install().check_standing(
                await host.sandbox(),
                WantedRuntime(name=NAME, version="9.9.9"),
                path=str(host.source.path),
                sha256=host.source.sha256,
            )


async def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    async with host_in(tmp_path, program_text()) as host:
        install = host.install(known_most=1)
        sandboxes = [await host.sandbox(name) for name in ("one", "two")]

        for sandbox in (*sandboxes, sandboxes[0]):
            found = await install(sandbox, WANTED, stager=ANNA)

        assert found.came is Came.REUSED


# Lanes.


@attrs.define
class Slow:
    """A sandbox that takes parts when it is told to."""

    taken: list[str]
    name: str
    gate: anyio.Event

    async def put(self, path: str, chunks: object, **words: object) -> None:
        self.taken.append(self.name)
        await self.gate.wait()


@attrs.frozen
class Zeros:
    """`PackedBytes` without content."""

    async def piece(self, offset: int, size: int) -> bytes:
        return bytes(size)


async def test_transfers_take_turns_and_none_takes_every_lane() -> None:
    gate, taken, lanes = anyio.Event(), list[str](), PartLanes()

    async with anyio.create_task_group() as tasks:
        for name in ("first", "second", "third"):
            sandbox = Slow(taken, name, gate)
            tasks.start_soon(send, sandbox, lanes)
            await anyio.wait_all_tasks_blocked()
        begun = list(taken)
        gate.set()

    assert begun == ["first", "first", "second", "second"]
    assert taken[4:6] == ["third", "third"]
    assert lanes.most == LANES
    assert sorted(taken) == sorted(["first", "second", "third"] * 6)


async def send(sandbox: Slow, lanes: PartLanes) -> None:
    await install_runtime.send_parts(
        sandbox,  # type: ignore[arg-type]
        Zeros(),
        folder="/parts",
        packed_size=6 * PART_BYTES,
        present=(),
        lanes=lanes,
        pause_seconds=0.0,
    )


async def test_a_part_that_is_stuck_lets_go_of_its_lane() -> None:
    never, lanes = anyio.Event(), PartLanes(part_seconds=0.01)

    with pytest.raises(SandboxFailed, match=r"within 0\.01 s"):
        await send(Stuck([], "stuck", never), lanes)

    gate = anyio.Event()
    gate.set()
    await send(Slow([], "first", gate), lanes)
    assert lanes.sent == 6


@attrs.define
class Stuck(Slow):
    """A sandbox that takes nothing."""

    sandbox_id: str = "stuck"

    def access(self) -> SandboxAccess:
        return SandboxAccess(provider="none", descriptor={}, workdir="/")
