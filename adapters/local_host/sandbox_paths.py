# SPDX-License-Identifier: Apache-2.0
"""Which paths of this host are a sandbox's: those below its own folder.

A relative path is below the working folder. `..` is refused, and so is a name
that leads out by a link: nothing isolates the sandbox's commands, but what
Livery itself reads and writes for it stays in its folder.
"""

import os
from pathlib import Path

from ...ports.required.sandbox import PathRefused, SandboxAccess, SandboxId
from ...ports.required.sandbox_provider import SpecRefused
from .claim_folders import RECORD


def to_host_path(path: str, *, folder: Path, workdir: str, is_followed: bool) -> str:
    """Return the absolute path; `is_followed` when a link at its end will be.

    Raises:
        PathRefused: It breaks the rule, or is not below `folder`.
    """
    if not path:
        raise PathRefused(path, "it is empty")
    if "\0" in path:
        raise PathRefused(path, "it holds a NUL")
    if ".." in path.split("/"):
        raise PathRefused(path, "it holds '..'")
    whole = os.path.join(workdir, path)
    if not _is_below(whole, folder):
        raise PathRefused(path, f"it is not below {folder}, the sandbox's own folder")
    parent, name = os.path.split(whole.rstrip("/") or "/")
    real = os.path.realpath(whole if is_followed else parent)
    if not is_followed:
        real = os.path.join(real, name)
    if not _is_below(real, folder):
        raise PathRefused(path, "a link on the way leads out of the sandbox")
    if real == str(folder / RECORD):
        raise PathRefused(path, "it is Livery's own record")
    return whole


def described(provider: str, access: SandboxAccess) -> tuple[Path, str]:
    """Read a descriptor of ours.

    Raises:
        SpecRefused: It is none.
    """
    words = access.descriptor
    if set(words) != {"folder", "workdir"}:
        reason = f"it holds {sorted(words)}, not folder and workdir"
        raise SpecRefused(provider, "descriptor", reason)
    folder = Path(words["folder"])
    if not folder.is_absolute() or ".." in folder.parts:
        reason = f"{words['folder']!r} is no absolute folder"
        raise SpecRefused(provider, "descriptor.folder", reason)
    try:
        workdir = to_host_path(
            words["workdir"], folder=folder, workdir="/", is_followed=False
        )
    except PathRefused as refused:
        raise SpecRefused(provider, "descriptor.workdir", refused.reason) from refused
    return folder, workdir


def identity(provider: str, access: SandboxAccess) -> SandboxId:
    """Return the folder of a descriptor, without links; no two sandboxes share it.

    Raises:
        SpecRefused: It is no descriptor of ours.
    """
    folder, _ = described(provider, access)
    return SandboxId(os.path.realpath(folder))


def _is_below(path: str, folder: Path) -> bool:
    return path == str(folder) or path.startswith(f"{folder}/")
