# SPDX-License-Identifier: Apache-2.0
"""What is the local provider's own: folders, processes, environment and paths."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import anyio
import attrs
import psutil
import pytest

from livery.adapters.local_host import (
    LocalHostConfig,
    LocalHostSandbox,
    LocalHostSandboxProvider,
    claim_folders,
    open_local_host,
)
from livery.domain.claims import ClaimId
from livery.ports.contracts.provider_context import listed, put_word, read_word, said
from livery.ports.contracts.sandbox_context import caught, comes_true, sleep_token
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Exited,
    ExitUnknown,
    Lost,
    NotStarted,
    PathRefused,
    SandboxAccess,
    SandboxFailed,
    SandboxLost,
    shell,
)
from livery.ports.required.sandbox_provider import (
    CapacityExhausted,
    ClaimTaken,
    CreateFailed,
    DestroyFailed,
    ProviderForbidden,
    ProviderUnreachable,
    SandboxSpec,
    SpecRefused,
)

from . import places

pytestmark = pytest.mark.anyio

SPEC = SandboxSpec()
PLAIN_USERS_CASES = (
    "forbidden or user_can or works or cancelled or ends_the_tree or create_twice"
    " or statuses or every_size"
)


async def test_it_says_once_that_it_does_not_isolate(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with places.provider_in(root) as provider:
        labels = [places.new_label(), places.new_label()]
        for label in labels:
            await provider.create(label, SPEC)
            await provider.destroy(label)

    told = [line for line in caplog.messages if "does not isolate" in line]
    assert len(told) == 1


async def test_commands_see_an_allow_list_of_the_environment(
    provider: LocalHostSandboxProvider, root: Path
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, attrs.evolve(SPEC, env={"LV_SPEC": "1"}))

    lines = (await said(sandbox, "env")).splitlines()
    names = {line.partition("=")[0] for line in lines}

    folder = places.folder_of(root, label)
    assert f"HOME={folder}/home" in lines
    assert f"TMPDIR={folder}/tmp" in lines
    assert f"LIVERY_SANDBOX={folder}" in lines
    # The last three are the shell's and the worker's own.
    assert names <= {
        *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "HOME", "TMPDIR", "USER"),
        *("LOGNAME", "LIVERY_SANDBOX", "LV_SPEC", "PWD", "OLDPWD", "SHLVL", "_"),
        "LIVERY_TREE",
    }
    await provider.destroy(label)


async def test_a_command_cannot_take_the_marker_off_its_sandbox(
    provider: LocalHostSandboxProvider, root: Path
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)

    ended = await sandbox.exec(
        Command(
            argv=("/bin/sh", "-c", "echo $LIVERY_SANDBOX"),
            env={"LIVERY_SANDBOX": "elsewhere"},
            timeout_seconds=20.0,
        )
    )

    assert ended.stdout.kept.decode().strip() == str(places.folder_of(root, label))
    await provider.destroy(label)


async def test_the_specs_folder_is_not_made_on_the_host(
    provider: LocalHostSandboxProvider, root: Path
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, attrs.evolve(SPEC, workdir="/livery-test"))

    assert sandbox.workdir == f"{places.folder_of(root, label)}/work"
    assert not os.path.exists("/livery-test")
    await provider.destroy(label)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "{folder}x/file", "{root}/file", "", "a\0b", "leads-out/file"],
)
async def test_paths_outside_are_refused(
    provider: LocalHostSandboxProvider, root: Path, path: str
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    await said(sandbox, "ln -s / leads-out")
    path = path.format(folder=places.folder_of(root, label), root=root)

    assert isinstance(await caught(put_word(sandbox, path, "x")), PathRefused)
    assert isinstance(await caught(read_word(sandbox, path)), PathRefused)
    assert isinstance(await caught(sandbox.stat(path)), PathRefused)
    await provider.destroy(label)


async def test_a_link_out_is_not_read_and_the_record_not_written(
    provider: LocalHostSandboxProvider,
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    await said(sandbox, "ln -s /etc/passwd out")

    reading = await caught(read_word(sandbox, "out"))
    record = f"{sandbox.folder}/claim.json"
    writing = await caught(put_word(sandbox, record, "mine"))

    assert isinstance(reading, PathRefused)
    assert isinstance(writing, PathRefused)
    await provider.destroy(label)


async def test_a_user_or_a_folder_above_starts_nothing(
    provider: LocalHostSandboxProvider,
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    true = Command(argv=("true",), timeout_seconds=20.0)

    as_user = await sandbox.exec(attrs.evolve(true, user="nobody"))
    above = await sandbox.exec(attrs.evolve(true, cwd=".."))

    assert isinstance(as_user.how, NotStarted)
    assert isinstance(above.how, NotStarted)
    await provider.destroy(label)


@pytest.mark.case("FC-171")
async def test_a_killed_worker_is_told_and_started_anew(
    provider: LocalHostSandboxProvider,
) -> None:
    label, heard = places.new_label(), list[Ended]()
    sandbox = await provider.create(label, SPEC)
    token = sleep_token()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep, sandbox, f"sleep {token}", heard)
        assert await comes_true(lambda: runs(token), seconds=20.0)
        kill_worker(sandbox)

    assert isinstance(heard[0].how, ExitUnknown), heard
    assert await said(sandbox, "echo on") == "on\n"
    assert await comes_true(lambda: is_over(token), seconds=20.0)
    await provider.destroy(label)


@pytest.mark.parametrize("end", ["kill -9 $$", "exit 137"], ids=["leader", "child"])
@pytest.mark.case("FC-054")
async def test_a_command_killed_because_its_sandbox_ends_is_no_end_of_its_own(
    root: Path, end: str
) -> None:
    # The folder is marked first and its processes are killed then; the command's
    # end can be told before the worker is hit as well.
    script = (
        "echo so far; touch begun; while [ ! -e go ]; do sleep 0.05; done; kill -9 $$"
    )
    heard: list[Ended] = []
    async with open_local_host(LocalHostConfig(root=root)) as provider:
        label = places.new_label()
        sandbox = await provider.create(label, SPEC)

        async def run() -> None:
            heard.append(await sandbox.exec(shell(script, timeout_seconds=60.0)))

        async def begun() -> bool:
            return (Path(sandbox.workdir) / "begun").exists()

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            assert await comes_true(begun, seconds=30.0)
            folder = Path(sandbox.workdir).parent
            record = claim_folders.read_record(folder)
            assert record is not None
            ending = attrs.evolve(
                record, state=claim_folders.FolderState.ENDING, reason="it is over"
            )
            claim_folders.write_record(folder, ending)
            (Path(sandbox.workdir) / "go").touch()
        await provider.destroy(label)

    assert isinstance(heard[0].how, Lost), heard
    assert heard[0].stdout.kept == b"so far\n"


async def test_a_worker_is_not_started_for_ever(
    provider: LocalHostSandboxProvider,
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)

    fault: object = None
    for _ in range(30):
        kill_worker(sandbox)
        fault = await caught(until_refused(sandbox))
        if isinstance(fault, SandboxFailed) and "20 times" in fault.reason:
            break

    assert isinstance(fault, SandboxFailed)
    assert "20 times" in fault.reason
    await provider.destroy(label)


async def test_a_folder_is_one_sandbox_however_it_is_spelled(
    root: Path, tmp_path: Path
) -> None:
    async with places.provider_in(root) as provider:
        label = places.new_label()
        access = (await provider.create(label, SPEC)).access()
        folder = access.descriptor["folder"]
        link = tmp_path / "link"
        link.symlink_to(folder)

        told = [
            await provider.identify(
                attrs.evolve(access, descriptor={"folder": spelled, "workdir": workdir})
            )
            for spelled, workdir in (
                (folder, access.descriptor["workdir"]),
                (folder, f"{folder}/elsewhere"),
                (f"{folder}/./", folder),
                (str(link), str(link)),
            )
        ]
        await provider.destroy(label)

    assert told == [os.path.realpath(folder)] * 4


@pytest.mark.case("FC-102")
async def test_an_expired_sandbox_is_ended_when_it_is_found(root: Path) -> None:
    label, token = places.new_label(), sleep_token()
    async with places.provider_in(root) as provider:
        spec = attrs.evolve(SPEC, lifetime_seconds=1.0)
        sandbox = await provider.create(label, spec)
        script = f"setsid sleep {token} >/dev/null 2>&1 </dev/null &"
        await sandbox.exec(
            attrs.evolve(shell(script, timeout_seconds=20.0), detaches=True)
        )
        access = sandbox.access()
    await anyio.sleep(1.0)

    async with places.provider_in(root) as provider:
        (found,) = await listed(provider, label.owner)
        assert found.state == "expired"
        assert await runs(token)
        assert await provider.find(label) is None
        assert await is_over(token)
        (found,) = await listed(provider, label.owner)
        assert found.state == "ended"
        lost = await caught(provider.connect(access, borrower=ClaimId("b")))
        assert isinstance(lost, SandboxLost)
        taken = await caught(provider.create(label, spec))
        assert isinstance(taken, ClaimTaken)
        await provider.destroy(label)


async def test_destroy_finds_processes_that_hid(
    provider: LocalHostSandboxProvider, root: Path
) -> None:
    label, tokens = places.new_label(), [sleep_token() for _ in range(3)]
    sandbox = await provider.create(label, SPEC)
    # By folder alone, by marker alone, and one that will not hear TERM.
    script = f"""
        env -i setsid sleep {tokens[0]} >/dev/null 2>&1 </dev/null &
        cd / && setsid sleep {tokens[1]} >/dev/null 2>&1 </dev/null &
        trap '' TERM; setsid sleep {tokens[2]} >/dev/null 2>&1 </dev/null &
    """
    launched = await sandbox.exec(
        attrs.evolve(shell(script, timeout_seconds=20.0), detaches=True)
    )
    assert launched.how == Exited(0)
    for token in tokens:
        assert await comes_true(lambda token=token: runs(token))

    await provider.destroy(label)

    for token in tokens:
        assert await is_over(token)
    assert await places.Onlooker(root).left(label) == ()


async def test_destroy_removes_what_is_read_only(
    provider: LocalHostSandboxProvider, root: Path
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    await said(
        sandbox,
        "mkdir -p a/b/c; : > a/b/c/f; ln -s /etc link; mkfifo pipe;"
        " chmod 000 a/b/c/f a/b/c; chmod 500 a/b; chmod 000 a; chmod 000 ../home",
    )

    await provider.destroy(label)

    assert not places.folder_of(root, label).exists()
    assert os.path.isdir("/etc")


@pytest.mark.peer("root")
async def test_what_cannot_be_removed_is_told(
    provider: LocalHostSandboxProvider, root: Path
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    mount = Path(sandbox.workdir, "mount")
    mount.mkdir()

    with places.small_file_system(mount):
        fault = await caught(provider.destroy(label))
        (still,) = await listed(provider, label.owner)
        assert isinstance(fault, DestroyFailed)
        assert "something is mounted there" in fault.reason
        assert still.state == "ending"
    await provider.destroy(label)


async def test_a_spoilt_record_is_left_alone_and_told(
    provider: LocalHostSandboxProvider,
    root: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    record = places.folder_of(root, label) / "claim.json"
    kept = record.read_text()

    for spoilt in ("", "[]", "{}", json.dumps({**json.loads(kept), "owner": 1})):
        record.write_text(spoilt)
        assert isinstance(await caught(provider.create(label, SPEC)), ClaimTaken)
        assert isinstance(await caught(provider.find(label)), SandboxFailed)
        assert isinstance(await caught(provider.destroy(label)), DestroyFailed)
        assert isinstance(await caught(sandbox.stat("x")), SandboxLost)
        borrowing = provider.connect(sandbox.access(), borrower=ClaimId("b"))
        assert isinstance(await caught(borrowing), SandboxLost)
        assert await listed(provider, label.owner) == []
    assert "Nobody can tell whose this is" in caplog.text

    record.write_text(kept)
    await provider.destroy(label)


@pytest.mark.parametrize(
    "descriptor",
    [
        {"folder": "relative", "workdir": "relative/work"},
        {"folder": "/a/../b", "workdir": "/b"},
        {"folder": "/a", "workdir": "/b"},
        {"folder": "/a", "workdir": "/a/work", "user": "root"},
        {"folder": "/a"},
    ],
)
async def test_an_odd_descriptor_is_refused(
    provider: LocalHostSandboxProvider, descriptor: dict[str, str]
) -> None:
    access = SandboxAccess(provider="local", descriptor=descriptor, workdir="/")

    fault = await caught(provider.connect(access, borrower=ClaimId("b")))

    assert isinstance(fault, SpecRefused)
    assert fault.field.startswith("descriptor")


async def test_a_folder_that_is_no_sandbox_is_not_lent(
    provider: LocalHostSandboxProvider, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    (folder / "work").mkdir(parents=True)
    access = SandboxAccess(
        provider="local",
        descriptor={"folder": str(folder), "workdir": f"{folder}/work"},
        workdir=f"{folder}/work",
    )

    fault = await caught(provider.connect(access, borrower=ClaimId("b")))

    assert isinstance(fault, SandboxLost)
    assert list(folder.iterdir()) == [folder / "work"]


async def test_a_closed_handle_says_so(provider: LocalHostSandboxProvider) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    await sandbox.disconnect()
    await sandbox.disconnect()

    assert isinstance(await caught(sandbox.stat("x")), SandboxFailed)
    await provider.destroy(label)


async def test_a_closed_provider_makes_nothing(root: Path) -> None:
    async with places.provider_in(root) as provider:
        await provider.aclose()
        fault = await caught(provider.create(places.new_label(), SPEC))

    assert isinstance(fault, ProviderUnreachable)
    assert list(root.iterdir()) == []


@pytest.mark.case("FC-140")
async def test_a_worker_that_says_nothing_leaves_nothing(root: Path) -> None:
    for python in ("/no/such/python", "/bin/true"):
        config = LocalHostConfig(root=root, python=python)
        async with open_local_host(config) as provider:
            fault = await caught(provider.create(places.new_label(), SPEC))

            assert isinstance(fault, CreateFailed)
            assert fault.step == "ready"
            assert list(root.iterdir()) == []


@pytest.mark.case("FC-140")
async def test_a_place_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    async def open_in(root: Path) -> None:
        async with places.provider_in(root):
            raise AssertionError("it was opened")

    assert isinstance(await caught(open_in(file / "below")), ProviderUnreachable)
    assert isinstance(await caught(open_in(file)), ProviderUnreachable)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.peer("root")
async def test_another_users_place_is_not_used(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)

    async def open_there() -> None:
        async with places.provider_in(tmp_path):
            raise AssertionError("it was opened")

    fault = await caught(open_there())
    os.chown(tmp_path, 0, 0)

    assert isinstance(fault, ProviderForbidden)


@pytest.mark.peer("root")
async def test_a_full_or_read_only_place_is_told(tmp_path: Path) -> None:
    root = tmp_path / "place"
    root.mkdir()
    with places.small_file_system(root, "size=64k,nr_inodes=3"):
        async with places.provider_in(root) as provider:
            full = await caught(provider.create(places.new_label(), SPEC))
            assert list(root.iterdir()) == []
    with places.small_file_system(root, "ro"):
        async with places.provider_in(root) as provider:
            read_only = await caught(provider.create(places.new_label(), SPEC))

    assert isinstance(full, CapacityExhausted)
    assert isinstance(read_only, ProviderForbidden)


async def test_opening_tidies_empty_folders(root: Path) -> None:
    for name in ("livery-claim-1", ".making-livery-claim-2.0123456789ab"):
        (root / name).mkdir(parents=True)
    os.utime(root / ".making-livery-claim-2.0123456789ab", (0, 0))
    (root / ".making-livery-claim-3.0123456789ab").mkdir()
    (root / "file").write_text("")

    async with places.provider_in(root):
        left = sorted(path.name for path in root.iterdir())

    # What is fresh may be another process's, which is just making it.
    assert left == [".making-livery-claim-3.0123456789ab", "file"]
    (root / "file").unlink()
    (root / left[0]).rmdir()


@pytest.mark.peer("root")
def test_the_contracts_hold_without_roots_rights(tmp_path: Path) -> None:
    tests = [
        f"--basetemp={tmp_path / 'inner'}",
        *("-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"),
        *("-k", PLAIN_USERS_CASES, str(Path(__file__).with_name("test_contracts.py"))),
    ]
    ran = subprocess.run(
        [
            "setpriv",
            "--bounding-set=-all",
            sys.executable,
            "-P",
            "-m",
            "pytest",
            *tests,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " skipped" not in ran.stdout


@pytest.mark.case("FC-140")
async def test_a_worker_that_keeps_silent_is_given_up(root: Path) -> None:
    silent = program(root.parent / "silent", "exec sleep 600")
    spec = attrs.evolve(SPEC, create_timeout_seconds=0.5)
    async with open_local_host(LocalHostConfig(root=root, python=silent)) as provider:
        fault = await caught(provider.create(places.new_label(), spec))

        assert isinstance(fault, CreateFailed)
        assert "longer than 0.5 s" in fault.reason
        assert list(root.iterdir()) == []


async def test_a_create_that_cannot_be_undone_is_told_and_stays_listed(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoiling = program(root.parent / "spoiling", "echo spoilt > claim.json")
    label = places.new_label()
    config = LocalHostConfig(root=root, python=spoiling)
    async with open_local_host(config) as provider:
        fault = await caught(provider.create(label, SPEC))

    assert isinstance(fault, CreateFailed)
    assert "was not undone" in caplog.text
    shutil.rmtree(places.folder_of(root, label))


async def test_a_found_sandbox_that_does_not_work_is_no_absent_one(root: Path) -> None:
    label = places.new_label()
    async with places.provider_in(root) as provider:
        access = (await provider.create(label, SPEC)).access()

    broken = LocalHostConfig(root=root, python="/bin/true")
    async with open_local_host(broken) as provider:
        finding = await caught(provider.find(label))
        borrowing = await caught(provider.connect(access, borrower=ClaimId("b")))
        assert isinstance(finding, SandboxFailed)
        assert isinstance(borrowing, SandboxLost)
        await provider.destroy(label)


async def test_destroying_at_once_succeeds_for_all(
    provider: LocalHostSandboxProvider,
) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    await said(sandbox, "for n in $(seq 300); do mkdir -p $n; : > $n/f; done")

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(provider.destroy, label)


def test_a_folder_is_removed_by_one_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "claim"
    (folder / "work").mkdir(parents=True)
    other = os.open(folder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)

    with ThreadPoolExecutor(8) as threads:
        removals = [threads.submit(claim_folders.remove, folder) for _ in range(8)]
        done, waiting = wait(removals, timeout=0.3)
        kept = list(folder.iterdir())
        os.close(other)

    assert (len(done), len(waiting)) == (0, 8)
    assert kept == [folder / "work"]
    assert [removal.exception() for removal in removals] == [None] * 8
    assert not folder.exists()


async def test_a_place_that_went_away_is_told(tmp_path: Path) -> None:
    root = tmp_path / "gone"
    async with places.provider_in(root) as provider:
        root.rmdir()
        fault = await caught(provider.create(places.new_label(), SPEC))

    assert isinstance(fault, CreateFailed)
    assert fault.step == "create"


@pytest.mark.peer("root")
async def test_a_full_disk_does_not_keep_a_sandbox(tmp_path: Path) -> None:
    root, label = tmp_path / "place", places.new_label()
    root.mkdir()
    with places.small_file_system(root, "size=256k"):
        async with places.provider_in(root) as provider:
            sandbox = await provider.create(label, SPEC)
            filled = await sandbox.exec(
                shell("cat /dev/zero > full; : > more", timeout_seconds=20.0)
            )
            assert b"No space left" in filled.stderr.kept

            await provider.destroy(label)

            assert list(root.iterdir()) == []


async def test_depth_keeps_nothing(provider: LocalHostSandboxProvider) -> None:
    label = places.new_label()
    sandbox = await provider.create(label, SPEC)
    name = "d" * 200
    script = f"n=0; while test $n -lt 60; do mkdir {name}; cd {name}; n=$((n+1)); done"
    await said(sandbox, f"{script}; : > file")

    await provider.destroy(label)


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


async def keep(sandbox: LocalHostSandbox, script: str, heard: list[Ended]) -> None:
    heard.append(await sandbox.exec(shell(script, timeout_seconds=60.0)))


def kill_worker(sandbox: LocalHostSandbox) -> None:
    for process in places.processes_of(sandbox.folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.ppid() == os.getpid():
                process.kill()


async def until_refused(sandbox: LocalHostSandbox) -> None:
    """Use the sandbox until a call finds that the worker was killed."""
    ended = await sandbox.exec(shell("echo on", timeout_seconds=20.0))
    assert isinstance(ended.how, Exited | ExitUnknown), ended
    await sandbox.stat(".")
    raise LookupError("it works")


async def runs(token: str) -> bool:
    return bool(places.sleepers(token))


async def is_over(token: str) -> bool:
    return not places.sleepers(token)
