# SPDX-License-Identifier: Apache-2.0
"""The processes of a sandbox on this host: found by what cannot be taken off.

A process belongs to a sandbox when its environment began with the sandbox's
marker, when its working folder or root is below the sandbox's folder, or when
it descends from one that belongs. This process and its ancestors never do.

Everything here blocks; callers run it in a thread.
"""

import os
import signal
from collections.abc import Iterable
from pathlib import Path

MARKER = "LIVERY_SANDBOX"
_LINKS = ("cwd", "root")


def processes_of(folder: Path) -> set[int]:
    """Return the processes that belong to the sandbox and can still act."""
    parents = _parents()
    ours = _with_ancestors(os.getpid(), parents)
    belonging = {
        pid for pid in parents if pid not in ours and _belongs(pid, os.fsencode(folder))
    }
    return _with_descendants(belonging, parents) - ours


def kill(pids: Iterable[int]) -> None:
    """Kill each; one that is gone, or that is not ours to end, is passed over."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue  # Whoever asks sees by the next look whether it stayed.


def _belongs(pid: int, folder: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if MARKER.encode() + b"=" + folder in environment.split(b"\0"):
            return True
        places = [os.readlink(f"/proc/{pid}/{link}".encode()) for link in _LINKS]
    except OSError:
        return False  # It ended, or it is another user's.
    return any(_is_below(place, folder) for place in places)


def _is_below(place: bytes, folder: bytes) -> bool:
    # The kernel marks a folder that was removed under a process.
    place = place.removesuffix(b" (deleted)")
    return place == folder or place.startswith(folder + b"/")


def _parents() -> dict[int, int]:
    """Return every process that can still act, with its parent."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            told = Path(f"/proc/{name}/stat").read_bytes()
        except OSError:
            continue  # It ended while the folder was read.
        state, parent = told[told.rindex(b")") + 2 :].split()[:2]
        if state not in (b"Z", b"X"):
            found[int(name)] = int(parent)
    return found


def _with_ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found = {pid}
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def _with_descendants(roots: set[int], parents: dict[int, int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, open_ends = set(roots), list(roots)
    while open_ends:
        for child in children.get(open_ends.pop(), ()):
            if child not in found:
                found.add(child)
                open_ends.append(child)
    return found
