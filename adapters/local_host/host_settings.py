# SPDX-License-Identifier: Apache-2.0
"""Where the sandboxes of this host are, and what their commands see of it.

Commands see an allow-list of this process's variables and no other, so that the
secrets of the host's environment do not reach them by it.
"""

import os
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from ...ports.required.sandbox_provider import ProviderForbidden, ProviderUnreachable
from . import claim_folders
from .host_processes import MARKER

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""The variables of this process that commands see; no other of them."""
PATH_WHEN_UNSET = "/usr/local/bin:/usr/bin:/bin"


@attrs.frozen(kw_only=True)
class LocalHostConfig:
    """Where sandboxes are, and what they see of this process's environment."""

    root: Path
    name: str = "local"
    passed_on: tuple[str, ...] = PASSED_ON
    python: str = sys.executable
    """What runs the worker."""


def opened_root(config: LocalHostConfig) -> Path:
    """Make the folder of all sandboxes, and tidy what killed makers left."""
    name, root = config.name, config.root.expanduser().absolute()
    if sys.platform != "linux":
        reason = f"host processes are supervised on Linux alone, not {sys.platform}"
        raise ProviderUnreachable(name, str(root), reason)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root = root.resolve(strict=True)
        owner = root.stat().st_uid
        if owner != os.geteuid():
            reason = f"the folder belongs to user {owner}"
            raise ProviderForbidden(name, str(root), reason)
        claim_folders.sweep(root)
    except PermissionError as fault:
        raise ProviderForbidden(name, str(root), str(fault)) from fault
    except OSError as fault:
        raise ProviderUnreachable(name, str(root), str(fault)) from fault
    return root


def environment(config: LocalHostConfig, folder: Path) -> Mapping[str, str]:
    """Return all that a worker sees: an allow-list, and its own folders."""
    passed = {name: os.environ.get(name) for name in config.passed_on}
    user = _user_name()
    return {
        "PATH": PATH_WHEN_UNSET,
        **{name: value for name, value in passed.items() if value is not None},
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "USER": user,
        "LOGNAME": user,
        MARKER: str(folder),
    }


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
