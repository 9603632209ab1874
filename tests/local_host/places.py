# SPDX-License-Identifier: Apache-2.0
"""Where local sandboxes are in tests, and a look at them past the provider."""

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import attrs
import psutil

from livery.adapters.local_host import (
    LocalHostConfig,
    LocalHostSandboxProvider,
    open_local_host,
)
from livery.domain.claims import ClaimId, OwnerId
from livery.domain.names import to_name
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

OWNER = OwnerId("owner-of-the-test")
OTHER_OWNER = OwnerId("somebody-else")
TOO_LONG = "x" * 200_000
"""No program can be started with such a variable."""

_numbers = itertools.count(1)


def new_label() -> ClaimLabel:
    return ClaimLabel(claim=ClaimId(f"claim-{next(_numbers)}"), owner=OWNER)


def folder_of(root: Path, label: ClaimLabel) -> Path:
    return root.resolve() / to_name("livery", label.claim)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Find what belongs to the folder, or to one below, past the provider."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            environment, cwd = process.environ(), process.cwd()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        marked = environment.get("LIVERY_SANDBOX", "")
        if any(f"{place}/".startswith(f"{folder}/") for place in (marked, cwd)):
            found.append(process)
    return found


def sleepers(token: str) -> list[psutil.Process]:
    """Find the processes that have `token` as an argument and can still act."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if token in (process.info["cmdline"] or ())
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


@attrs.frozen
class Onlooker:
    """`Observe` over folders and processes."""

    root: Path

    async def left(self, label: ClaimLabel) -> tuple[str, ...]:
        folder = folder_of(self.root, label)
        folders = [str(path) for path in self.root.glob(f"*{folder.name}*")]
        return (*folders, *(str(process) for process in processes_of(folder)))


async def end_outside(root: Path, label: ClaimLabel) -> None:
    """Remove the folder and kill its processes, as an operator would."""
    folder = folder_of(root, label)
    shutil.rmtree(folder)
    for process in processes_of(folder):
        with suppress(psutil.NoSuchProcess):
            process.kill()


@asynccontextmanager
async def provider_in(root: Path) -> AsyncGenerator[LocalHostSandboxProvider]:
    async with open_local_host(LocalHostConfig(root=root)) as provider:
        yield provider


def provider_context(provider: LocalHostSandboxProvider, root: Path) -> ProviderContext:
    return ProviderContext(
        provider=provider,
        open_again=lambda: provider_in(root),
        spec=SandboxSpec(),
        new_label=new_label,
        other_owner=OTHER_OWNER,
        observe=Onlooker(root),
        end_outside=lambda label: end_outside(root, label),
        failing_spec=SandboxSpec(env={"TOO_LONG": TOO_LONG}),
    )


def sandbox_hooks() -> frozenset[str]:
    """Return which odd folders can be had here."""
    hooks = {"forbidden_folder", "full_folder"} if can_mount() else set[str]()
    return frozenset(hooks | ({"forbidden_folder"} if modes_count() else set()))


def modes_count() -> bool:
    """Return whether this user is held to the modes of folders."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o500)
        return not os.access(folder, os.W_OK)


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_file_system(Path(folder)):
                return True
        except subprocess.CalledProcessError:
            return False


@contextmanager
def small_file_system(folder: Path, options: str = "size=1m") -> Generator[None]:
    """Mount a small file system, for as long as this is entered."""
    name = f"livery-test-{next(_numbers)}-{os.getpid()}"
    mount = ["mount", "-t", "tmpfs", "-o", options, name, str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield
    finally:
        # The folder above it may have been moved.
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        (place,) = (words[1] for line in mounts if (words := line.split())[0] == name)
        subprocess.run(["umount", "--lazy", place], check=True)


@contextmanager
def odd_folders(workdir: Path, hooks: frozenset[str]) -> Generator[dict[str, str]]:
    """Give the folders that a sandbox case asks for, below `workdir`."""
    folders = {hook: str(workdir / hook) for hook in hooks if hook.endswith("_folder")}
    with ExitStack() as stack:
        for hook, name in folders.items():
            folder = Path(name)
            folder.mkdir()
            if hook == "forbidden_folder" and modes_count():
                folder.chmod(0o555)
            else:
                options = "size=1m" if hook == "full_folder" else "ro"
                stack.enter_context(small_file_system(folder, options))
        yield folders
