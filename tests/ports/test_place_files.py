# SPDX-License-Identifier: Apache-2.0
"""Grader files find their place, whatever the agent left there."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from livery.adapters.local_host import LocalHostConfig, open_local_host
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.provided.place_files import (
    make_private_folders,
    place_files,
    place_over,
)
from livery.ports.required.faults import Fault
from livery.ports.required.harness import PlacedFile
from livery.ports.required.sandbox import Sandbox, SandboxFailed, shell
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

pytestmark = pytest.mark.anyio

FILE = PlacedFile(path="tests/deep/grade.sh", content=b"hidden", mode=0o755)
OBSTACLES = {
    "nothing": "true",
    "an older file": "mkdir -p tests/deep; echo mine > tests/deep/grade.sh",
    "a folder": "mkdir -p tests/deep/grade.sh/full; touch tests/deep/grade.sh/full/x",
    "a folder that is shut": "mkdir -p tests/deep/grade.sh/x; chmod 0 tests/deep/grade.sh",
    "a shut parent": "mkdir -p tests/deep; chmod 0 tests/deep tests",
    "a file for a parent": "touch tests",
    "a file for a lower parent": "mkdir tests; touch tests/deep",
    "a link that leads out": "ln -s /proc tests",
    "a link that leads nowhere": "mkdir tests; ln -s nowhere tests/deep",
    "a link to itself": "ln -s tests tests",
    "a link for the file": "mkdir -p tests/deep; ln -s /etc/passwd tests/deep/grade.sh",
    "a pipe": "mkdir -p tests/deep; mkfifo tests/deep/grade.sh",
    "a pipe for a parent": "mkfifo tests",
}


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncGenerator[Sandbox]:
    label = ClaimLabel(claim=ClaimId("one"), owner=OwnerId("test"))
    async with open_local_host(LocalHostConfig(root=tmp_path / "root")) as provider:
        made = await provider.create(label, SandboxSpec())
        try:
            yield made
        finally:
            await made.disconnect()
            await provider.destroy(label)


async def run(sandbox: Sandbox, script: str) -> bytes:
    ended = await sandbox.exec(shell(script, timeout_seconds=30.0))
    assert ended.succeeded, ended
    return ended.stdout.kept


@pytest.mark.parametrize("obstacle", OBSTACLES.values(), ids=OBSTACLES)
async def test_what_is_in_the_way_of_a_grader_file_is_removed(
    sandbox: Sandbox, obstacle: str
) -> None:
    await run(sandbox, f"echo other > other.txt; {obstacle}")

    await place_over(sandbox, [FILE])

    assert await run(sandbox, "cat tests/deep/grade.sh other.txt") == b"hiddenother\n"
    assert await run(sandbox, "find tests/deep/grade.sh -perm 755 -type f") != b""


async def test_a_file_of_the_task_does_not_make_room_for_itself(
    sandbox: Sandbox,
) -> None:
    await run(sandbox, OBSTACLES["a folder"])

    with pytest.raises(Fault):
        await place_files(sandbox, [FILE])
    assert await run(sandbox, "find tests -name x") != b""


@pytest.mark.parametrize("path", ["-rf", "a b/-x", "n\nl/$(id)", "*"])
async def test_an_odd_name_is_cleared_as_it_is(sandbox: Sandbox, path: str) -> None:
    await place_over(sandbox, [PlacedFile(path=f"{path}/inside", content=b"old")])

    await place_over(sandbox, [PlacedFile(path=path, content=b"new")])

    assert (Path(sandbox.workdir) / path).read_bytes() == b"new"


async def test_private_folders_are_shut_to_others(sandbox: Sandbox) -> None:
    folder = f"{sandbox.scratch}/a/b"

    await make_private_folders(sandbox, (f"{sandbox.scratch}/a", folder, folder))

    modes = await run(sandbox, f"stat -c %a {sandbox.scratch}/a {folder}")
    assert modes == b"700\n700\n"


async def test_a_private_folder_that_cannot_be_made_is_told(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFailed, match="make the folder /proc/x"):
        await make_private_folders(sandbox, ("/proc/x",))
