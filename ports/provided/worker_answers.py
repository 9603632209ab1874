# SPDX-License-Identifier: Apache-2.0
"""What the worker's words mean in the terms of the sandbox port."""

from typing import cast

import attrs

from ..required.faults import Fault
from ..required.sandbox import (
    DiskFull,
    Ended,
    Exited,
    ExitUnknown,
    FileForbidden,
    FileKind,
    FileMissing,
    FileStat,
    How,
    NotAFile,
    NotStarted,
    Output,
    PathRefused,
    Signalled,
    TimedOut,
    TransferCut,
)
from .worker_faults import WorkerFailed
from .worker_frames import FramesBroken

Words = dict[str, object]


@attrs.frozen(kw_only=True)
class WorkerHello:
    """What the worker tells of its sandbox when it starts."""

    python: str
    """Version, "3.11.2"."""
    shell: str
    """The shell that is there: "/bin/bash", else "/bin/sh"."""
    system: str
    machine: str
    libc: str
    """"glibc 2.36", "musl" or "unknown"."""
    uid: int
    gid: int
    pid: int
    root_device: int
    """`st_dev` of `/`: a path on another device is a mount."""
    subreaper: bool
    """Whether trees are held by the kernel; else they are searched for in /proc."""


def to_hello(words: Words) -> WorkerHello:
    """Read the worker's first words."""
    return WorkerHello(
        python=_text(words, "python"),
        shell=_text(words, "shell"),
        system=_text(words, "system"),
        machine=_text(words, "machine"),
        libc=_text(words, "libc"),
        uid=_whole(words, "uid"),
        gid=_whole(words, "gid"),
        pid=_whole(words, "pid"),
        root_device=_whole(words, "root_device"),
        subreaper=words.get("subreaper") is True,
    )


def to_ended(words: Words, content: bytes) -> Ended:
    """Read how a command ended; `content` is what was kept of both outputs."""
    sizes = _wholes(words, "sizes", count=2)
    lengths = _wholes(words, "lengths", count=4)
    if sum(lengths) != len(content):
        raise WorkerFailed("exec", "its answer and its output do not fit together")
    parts: list[bytes] = []
    for length in lengths:
        parts.append(content[:length])
        content = content[length:]
    return Ended(
        how=_how(words),
        stdout=Output(head=parts[0], tail=parts[1], size=sizes[0]),
        stderr=Output(head=parts[2], tail=parts[3], size=sizes[1]),
        duration_seconds=_number(words, "seconds"),
        leftovers_ended=_whole(words, "leftovers"),
    )


def _how(words: Words) -> How:
    match words.get("how"):
        case "exited":
            return Exited(_whole(words, "number"))
        case "signalled":
            return Signalled(_whole(words, "number"))
        case "timed_out":
            return TimedOut(_number(words, "seconds"))
        case "not_started":
            return NotStarted(_text(words, "reason"))
        case "unknown":
            return ExitUnknown(_text(words, "reason"))
        case other:
            raise WorkerFailed("exec", f"it says that the command {other!r}")


def to_file_stat(words: Words) -> FileStat:
    """Read what was found under a path."""
    return FileStat(
        kind=FileKind(_text(words, "kind")),
        size=_whole(words, "size"),
        mode=_whole(words, "mode"),
    )


def to_fault(words: Words, *, operation: str, path: str) -> Fault:
    """Read why a call failed."""
    reason = str(words.get("reason", "it gave no reason"))
    match words.get("kind"):
        case "missing":
            return FileMissing(path)
        case "not_a_file":
            return NotAFile(path, str(words.get("found")))
        case "forbidden":
            return FileForbidden(path, reason)
        case "disk_full":
            return DiskFull(path)
        case "refused":
            return PathRefused(path, reason)
        case "cut":
            got, announced = _whole(words, "got"), _whole(words, "announced")
            return TransferCut(path, got, announced)
        case _:
            return WorkerFailed(operation, reason)


def _text(words: Words, key: str) -> str:
    found = words.get(key)
    if not isinstance(found, str):
        raise FramesBroken(f"{key} is no text in its words")
    return found


def _whole(words: Words, key: str) -> int:
    found = words.get(key)
    if not isinstance(found, int):
        raise FramesBroken(f"{key} is no whole number in its words")
    return found


def _number(words: Words, key: str) -> float:
    found = words.get(key)
    if not isinstance(found, int | float):
        raise FramesBroken(f"{key} is no number in its words")
    return float(found)


def _wholes(words: Words, key: str, *, count: int) -> list[int]:
    found = words.get(key)
    items = cast("list[object]", found) if isinstance(found, list) else []
    if len(items) != count:
        raise FramesBroken(f"{key} is no list of {count} in its words")
    return [_whole({key: item}, key) for item in items]
