# SPDX-License-Identifier: Apache-2.0
"""What the worker tells of the sandbox it woke up in."""

from __future__ import annotations

import glob
import os
import sys

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


def hello(*, subreaper: bool) -> dict[str, object]:
    """Return the worker's first words."""
    return {
        **platform_words(),
        "shell": next(
            (path for path in _SHELLS if os.access(path, os.X_OK)), "/bin/sh"
        ),
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "pid": os.getpid(),
        "root_device": os.stat("/").st_dev,
        "subreaper": subreaper,
    }


def platform_words() -> dict[str, object]:
    """Return what programs are built for here."""
    machine = os.uname()
    return {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "system": machine.sysname,
        "machine": machine.machine,
        "libc": _libc(),
    }


def _libc() -> str:
    try:
        told = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        told = None
    if told:
        return told
    if glob.glob("/lib/ld-musl-*"):
        return "musl"
    # A Python that brings its own C library knows nothing of the one that is here.
    return "glibc" if glob.glob("/lib*/ld-linux-*") else "unknown"
