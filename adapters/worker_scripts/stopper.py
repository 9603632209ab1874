# SPDX-License-Identifier: Apache-2.0
"""Ends every process of the sandbox but those that this one comes from.

What is graded must be still. A process is over when it can do nothing any more; new
ones that appear meanwhile are ended too, until a look finds none. Where the sandbox
shares its processes with a host, those are meant that began with the sandbox's mark.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

FIRST = 1
"""What keeps the sandbox alive."""
LOOKS_MAX = 400
PAUSE_SECONDS = 0.025
TOLD_MAX = 20


def main(arguments: list[str]) -> int:
    """End the processes; with a mark's name only those that carry its value."""
    mark = arguments[0].encode() + b"=" if arguments else b""
    own = marked(os.getpid(), mark)
    if mark and own is None:
        # Whose the others are cannot be told, and most may be a host's.
        sys.stdout.write(json.dumps({"state": "unmarked", "left": []}) + "\n")
        return 0
    left: list[int] = []
    for _ in range(LOOKS_MAX):
        left = [pid for pid in _others() if marked(pid, mark) == own]
        if not left:
            break
        for pid in left:
            _kill(pid)
        time.sleep(PAUSE_SECONDS)
    words = {"state": "left" if left else "still", "left": left[:TOLD_MAX]}
    sys.stdout.write(json.dumps(words) + "\n")
    return 0


def marked(pid: int, mark: bytes) -> bytes | None:
    """Return a process's mark; None where none is asked for, or it cannot be read."""
    if not mark:
        return None
    try:
        with open("/proc/%d/environ" % pid, "rb") as environ:
            words = environ.read().split(b"\0")
    except OSError:
        return None
    return next((word for word in words if word.startswith(mark)), None)


def _others() -> list[int]:
    """Return every process that can still act, but this one and where it comes from."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as told:
                    before, _, after = told.read().rpartition(b")")
            except OSError:
                continue  # It ended while the folder was read.
            state, parent, _, session = after.split()[:4]
            program = before.partition(b"(")[2]
            if state in (b"Z", b"X") or is_pulse(program, int(parent), int(session)):
                continue
            parents[int(name)] = int(parent)
    ours = {FIRST}
    pid = os.getpid()
    while pid and pid not in ours:
        ours.add(pid)
        pid = parents.get(pid, 0)
    return [pid for pid in parents if pid not in ours]


def is_pulse(program: bytes, parent: int, session: int) -> bool:
    """Whether it is the `sleep` by which the first process counts its time.

    It would begin the next at once. Nobody else's process can be in that session:
    a session is left, and never entered.
    """
    return program == b"sleep" and parent == session == FIRST


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # The next look tells whether it stayed.
