# SPDX-License-Identifier: Apache-2.0
"""The sandbox that the worker woke up in: what it tells of it, and what it takes."""

from __future__ import annotations

import fcntl
import glob
import os
import resource
import signal
import sys

PIPE_BYTES = 1024 * 1024

_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of linux/fcntl.h
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")

_IGNORED = [
    "HUP",
    "INT",
    "QUIT",
    "PIPE",
    "TERM",
    "USR1",
    "USR2",
    "ALRM",
    "TSTP",
    "TTIN",
    "TTOU",
]


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


def raise_open_files() -> tuple[int, int]:
    """Allow this process all the descriptors it may have; return what was before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    except (OSError, ValueError):
        pass  # Then the limit that was there has to do.
    return before


def widen(descriptor: int) -> None:
    """Let a pipe hold more, so that it takes fewer turns."""
    try:
        fcntl.fcntl(descriptor, _SET_PIPE_SIZE, PIPE_BYTES)
    except OSError:
        pass  # No pipe, or not allowed: it works as it is, with more turns.


def ignore_signals() -> None:
    """Be ended by no signal that can be ignored."""
    for name in _IGNORED:
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
