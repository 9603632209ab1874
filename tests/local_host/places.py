# SPDX-License-Identifier: Apache-2.0
"""Where local sandboxes are in tests, and a look at them past the provider."""

import itertools
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
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
    """Find by marker, folder and nothing of the provider's own code."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            environment, cwd = process.environ(), process.cwd()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        marked = environment.get("LIVERY_SANDBOX") == str(folder)
        if marked or f"{cwd}/".startswith(f"{folder}/"):
            found.append(process)
    return found


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
        process.send_signal(signal.SIGKILL)


@asynccontextmanager
async def provider_in(root: Path) -> AsyncGenerator[LocalHostSandboxProvider]:
    async with open_local_host(LocalHostConfig(root=root)) as provider:
        yield provider


def provider_context(
    provider: LocalHostSandboxProvider, root: Path
) -> ProviderContext:
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
