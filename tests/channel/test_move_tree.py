# SPDX-License-Identifier: Apache-2.0
"""Folders out of one sandbox and into another."""

import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from livery.adapters.worker_scripts import program
from livery.ports.provided.move_tree import TreeNotMoved, export_tree, import_tree

from .worker_sandbox import WorkerSandbox, sandbox_in

pytestmark = pytest.mark.anyio

PROGRAM = program("archive")


@pytest.fixture
async def sandbox(tmp_path: Path, python: str) -> AsyncIterator[WorkerSandbox]:
    async with sandbox_in(tmp_path, python) as opened:
        yield opened


async def whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


@pytest.mark.case("FC-073")
@pytest.mark.parametrize("ending", ["", "/", "/."])
async def test_a_folder_arrives_as_it_was(
    sandbox: WorkerSandbox, python: str, tmp_path: Path, ending: str
) -> None:
    work = Path(sandbox.workdir)
    (work / "empty").mkdir()
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("run.sh")
    (work / "outside").symlink_to("/usr/bin/env")
    target = tmp_path / "target"

    async with export_tree(
        sandbox, f"{work}{ending}", program=PROGRAM, python=python
    ) as exported:
        report = await import_tree(
            sandbox,
            f"{target}{ending}",
            exported.chunks,
            program=PROGRAM,
            python=python,
        )

    assert (report.files, report.folders, report.links) == (1, 1, 2)
    assert exported.report == report
    assert sorted(os.listdir(target)) == ["empty", "link", "outside", "run.sh"]
    assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "outside") == "/usr/bin/env"
    assert [p.name for p in Path(sandbox.scratch).iterdir() if p.suffix == ".tar"] == []


async def test_what_was_left_out_is_told(sandbox: WorkerSandbox, python: str) -> None:
    os.mkfifo(Path(sandbox.workdir, "pipe"))

    async with export_tree(
        sandbox, sandbox.workdir, program=PROGRAM, python=python
    ) as exported:
        content = b"".join([chunk async for chunk in exported.chunks])

    assert [one.path for one in exported.report.skipped] == ["pipe"]
    assert exported.report.skipped_count == 1
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert tar.getnames() == []


async def test_more_than_allowed_is_not_exported(
    sandbox: WorkerSandbox, python: str
) -> None:
    Path(sandbox.workdir, "file").write_bytes(bytes(1001))

    with pytest.raises(TreeNotMoved, match="1000"):
        async with export_tree(
            sandbox, sandbox.workdir, program=PROGRAM, python=python, bytes_max=1000
        ):
            raise AssertionError("nothing is to be had")

    assert list(Path(sandbox.scratch).glob("*.tar")) == []


async def test_a_folder_is_replaced_when_asked(
    sandbox: WorkerSandbox, python: str, tmp_path: Path
) -> None:
    Path(sandbox.workdir, "new").touch()
    target = tmp_path / "target"
    (target / "old").mkdir(parents=True)

    async with export_tree(
        sandbox, sandbox.workdir, program=PROGRAM, python=python
    ) as exported:
        await import_tree(
            sandbox,
            str(target),
            exported.chunks,
            program=PROGRAM,
            python=python,
            replaces=True,
        )

    assert os.listdir(target) == ["new"]


@pytest.mark.parametrize("content", [b"noise" * 1000, b""])
async def test_what_is_no_tar_file_is_refused(
    sandbox: WorkerSandbox, python: str, tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(TreeNotMoved):
        await import_tree(
            sandbox,
            str(tmp_path / "target"),
            whole(content),
            program=PROGRAM,
            python=python,
        )

    assert not (tmp_path / "target").exists()
    assert list(Path(sandbox.scratch).glob("*.tar")) == []


async def test_links_that_lead_out_can_be_refused(
    sandbox: WorkerSandbox, python: str, tmp_path: Path
) -> None:
    Path(sandbox.workdir, "way").symlink_to("/etc")

    async with export_tree(
        sandbox, sandbox.workdir, program=PROGRAM, python=python
    ) as exported:
        with pytest.raises(TreeNotMoved, match="leaves the folder"):
            await import_tree(
                sandbox,
                str(tmp_path / "target"),
                exported.chunks,
                program=PROGRAM,
                python=python,
                keeps_outside_links=False,
            )


async def test_a_cancelled_export_leaves_no_tar_file(
    sandbox: WorkerSandbox, python: str
) -> None:
    Path(sandbox.workdir, "file").write_bytes(bytes(5_000_000))

    async with (
        anyio.create_task_group() as tasks,
        export_tree(
            sandbox, sandbox.workdir, program=PROGRAM, python=python
        ) as exported,
    ):
        await anext(exported.chunks)
        tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint()

    assert list(Path(sandbox.scratch).glob("*.tar")) == []


async def test_a_program_that_answers_nothing_is_told(
    sandbox: WorkerSandbox, python: str
) -> None:
    with pytest.raises(TreeNotMoved, match="NameError"):
        async with export_tree(
            sandbox, sandbox.workdir, program=b"this_is_no_program", python=python
        ):
            raise AssertionError("nothing is to be had")
