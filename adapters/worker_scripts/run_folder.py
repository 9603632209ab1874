# SPDX-License-Identifier: Apache-2.0
"""The folder of a supervised run: what is on disk about it, and what that means.

A run folder appears in one step, by a rename, and is never empty: it holds
`started.json` (who supervises) or `forbidden`. Whoever comes second finds the
name taken. `receipt.json` is written once, at the end, by the supervisor.

absent → running → finished, or running → vanished when the supervisor was
killed; absent → forbidden.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from typing import cast

from .processes import (
    KILL_SECONDS,
    MARKER,
    descendants,
    is_alive,
    look_at,
    marked,
    process_table,
    send,
    stop_and_kill,
)
from .spool import kept_of

STARTED = "started.json"
STOP = "stop"
"""The file by which whoever asks for the end of a run says so before any signal."""
UNASKED = "unasked"
"""What that file is until then: to rename it takes no room on the disk."""
RECEIPT_ROOM_BYTES = 8192
"""Written at the start, so that the end can be told on a full disk."""

REMOVED_SECONDS = 30.0
"""How long a run may take to end once its folder was removed."""

STOPPED = "T"

_PASS_SECONDS = 0.02


class NameTaken(Exception):
    """There is a run folder of that name already."""


def claim(folder: str, fresh: str) -> None:
    """Give the prepared folder `fresh` its name.

    Raises:
        NameTaken: Another came first.
    """
    try:
        os.rename(fresh, folder)
    except OSError as fault:
        if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise NameTaken(folder) from None
    sync_folder(os.path.dirname(folder))


def prepare(folder: str) -> str:
    """Return a fresh folder beside `folder` that can become it."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    fresh = "%s.%s" % (folder, os.urandom(8).hex())
    os.mkdir(fresh, 0o700)
    return fresh


def discard(fresh: str) -> None:
    """Remove a prepared folder that did not get its name."""
    shutil.rmtree(fresh, ignore_errors=True)


def write(folder: str, name: str, content: bytes) -> None:
    """Write a file of the folder, whole or not at all, safely on disk."""
    part = os.path.join(folder, name + ".part")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        # What was there was room that was kept; it is given back only now.
        os.ftruncate(file, len(content))
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(part, os.path.join(folder, name))
    sync_folder(folder)


def write_anew(folder: str, name: str, content: bytes) -> None:
    """Give the name to a folder of one file, unless another has it by now."""
    fresh = prepare(folder)
    try:
        write(fresh, name, content)
        claim(folder, fresh)
    except NameTaken:
        discard(fresh)
    except OSError:
        discard(fresh)
        raise


def keep_room(folder: str, name: str) -> None:
    """Take the room on disk that `write` of `name` will need."""
    part = os.path.join(folder, name + ".part")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, b" " * RECEIPT_ROOM_BYTES)
        os.fsync(file)
    finally:
        os.close(file)


def keep_word(folder: str) -> None:
    """Put down the file by which the end will be asked for."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    os.close(os.open(os.path.join(folder, UNASKED), flags, 0o600))


def sync_folder(folder: str) -> None:
    """Put the names of a folder safely on disk, where its file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as fault:
        if fault.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def read(folder: str, name: str) -> dict[str, object] | None:
    """Return what a JSON file of the folder says, None when there is none."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            words = json.load(file)
    except FileNotFoundError:
        return None
    return cast("dict[str, object]", words)  # written by us alone


def boot_id() -> str:
    """Return what tells one start of the machine from another."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def mark_of(request: dict[str, object]) -> bytes:
    """Return the marker that every process of the run carries."""
    return MARKER + b"=" + str(request["mark"]).encode()


def supervisor_of(folder: str) -> int:
    """Return the process id of the supervisor that lives, 0 for none."""
    started = read(folder, STARTED)
    if started is None or started["boot_id"] != boot_id():
        return 0
    pid = cast("int", started["pid"])
    seen = look_at(pid)
    if seen is None or not is_alive(seen) or seen.begun != started["begun"]:
        return 0
    if seen.state == STOPPED:
        send(signal.SIGCONT, {pid})  # It has a deadline to keep.
    return pid


def state_of(folder: str) -> dict[str, object]:
    """Tell how the run stands; what a vanished supervisor left behind is ended."""
    if not os.path.isdir(folder):
        return {"state": "absent"}
    if os.path.exists(os.path.join(folder, "forbidden")):
        return {"state": "forbidden"}
    alive = supervisor_of(folder)
    # In this order: a supervisor that is gone has written what it was going to.
    receipt = read(folder, "receipt.json")
    if receipt is not None:
        return {"state": "finished", "receipt": receipt}
    if alive:
        return {"state": "running"}
    return {"state": "vanished", **_end_survivors(folder)}


def _end_survivors(folder: str) -> dict[str, object]:
    request = read(folder, "request.json")
    if request is None:
        return {"ended": 0, "alive": []}
    mark = mark_of(request)
    ended: set[int] = set()
    until = time.monotonic() + KILL_SECONDS
    left = _survivors(mark)
    while left and time.monotonic() < until:
        ended |= stop_and_kill(lambda: _survivors(mark))
        time.sleep(_PASS_SECONDS)
        left = _survivors(mark)
    bytes_max = cast("int", request["output_bytes_max"])
    kept = {
        name: list(kept_of(os.path.join(folder, name), bytes_max)[0])
        for name in ("stdout", "stderr")
    }
    return {"ended": len(ended - left), "alive": sorted(left), "kept": kept}


def _survivors(mark: bytes) -> set[int]:
    table = process_table()
    found = marked(mark, table)
    found |= descendants(found, table)
    return {pid for pid in found - {os.getpid()} if is_alive(table.get(pid))}


def wait(folder: str, wait_seconds: float) -> dict[str, object]:
    """Tell how the run stands once it is over, or when so many seconds passed."""
    _see_folder_or_nobody(folder)
    _wait_for_supervisor(folder, wait_seconds)
    return state_of(folder)


def _wait_for_supervisor(folder: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while supervisor_of(folder) and time.monotonic() < until:
        time.sleep(_PASS_SECONDS)


def stop(folder: str, wait_seconds: float) -> dict[str, object]:
    """Ask the supervisor to end the run, wait for that, tell how it stands."""
    alive = supervisor_of(folder)
    if alive:
        _ask_to_stop(folder)
        send(signal.SIGTERM, {alive})
        send(signal.SIGCONT, {alive})
    return wait(folder, wait_seconds)


def _ask_to_stop(folder: str) -> None:
    """Say that the end is asked for, also on a full disk and over whatever is there."""
    word = os.path.join(folder, STOP)
    try:
        os.rename(os.path.join(folder, UNASKED), word)
    except OSError:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            os.close(os.open(word, flags, 0o600))
        except OSError:
            pass  # The signal alone has to do.


def forbid(folder: str) -> dict[str, object]:
    """Take the name, so that the run can never start; tell how it stands.

    Raises:
        OSError: The name could not be taken, or a run of it goes on without a folder.
    """
    _see_folder_or_nobody(folder)
    if not os.path.isdir(folder):
        write_anew(folder, "forbidden", b"")
    return state_of(folder)


def _see_folder_or_nobody(folder: str) -> None:
    """Wait for whoever supervises under this name, and has no folder any more.

    A command may have removed it, and would seem never to have begun. Its supervisor
    notices, ends it and says so in a folder made anew.
    """
    until = time.monotonic() + REMOVED_SECONDS
    while not os.path.isdir(folder) and (left := _launched(folder)):
        if time.monotonic() > until:
            raise OSError(errno.EBUSY, "processes %s go on" % sorted(left), folder)
        time.sleep(_PASS_SECONDS)


def _launched(folder: str) -> set[int]:
    """Return the processes that were started to supervise in `folder`."""
    wanted = [b"launch", os.fsencode(folder)]
    found: set[int] = set()
    for pid, seen in process_table().items():
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue  # It is gone, or none of ours.
        if is_alive(seen) and words[-3:-1] == wanted:
            found.add(pid)
    return found
