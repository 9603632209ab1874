# SPDX-License-Identifier: Apache-2.0
"""Programs in this sandbox: staged in parts, verified, installed by a rename.

    runtimes.py look | check | begin | unpack | install | abandon

Each reads its words as JSON from standard input and prints one line of JSON. One
stager at a time: who it is stands in a file that every part that arrives makes
fresh, and whose owner is taken for gone when it was stale for long. What was cut
off is gone on with by the next stager. A lock of the kernel keeps two calls apart.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
import time
import zlib
from typing import Iterator

from .staging import WAIT_STEP_SECONDS, Busy, Lock, Parts, Place, Refused
from .system import platform_words

PIECE_BYTES = 1024 * 1024
UNPACKED_BYTES = 4 * 1024 * 1024
"""How much is unpacked at a time."""
MARGIN_BYTES = 16 * 1024 * 1024
"""What is to be left on the disk beside the program and its parts."""
VERSION_SECONDS_MAX = 60
VERSION_BYTES_MAX = 200
WORDS_BYTES_MAX = 4 * 1024 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)


def look(words: dict[str, object]) -> dict[str, object]:
    """Tell what this sandbox is."""
    return {"state": "looked", **platform_words()}


def check(words: dict[str, object]) -> dict[str, object]:
    """Verify a program that stands under a path of somebody else's."""
    return _checked(str(words["path"]), words)


def begin(words: dict[str, object]) -> dict[str, object]:
    """Become the stager, or tell that it is installed or who stages."""
    place = Place(words)
    until = time.monotonic() + float(str(words["wait_seconds"]))
    while True:
        try:
            return _begin_once(place)
        except Busy:
            if time.monotonic() > until:
                raise
            time.sleep(WAIT_STEP_SECONDS)


def _begin_once(place: Place) -> dict[str, object]:
    place.make()
    with Lock(place):
        if os.path.lexists(place.final):
            place.clear()
            return _checked(place.final, place.words)
        stager = place.stager()
        if stager not in (None, place.words["stager"]):
            raise Busy(str(stager))
        present = place.present()
        arrived = sum(place.part_size(number) for number in present)
        needed = place.number("size") + place.number("packed_size") - arrived
        _check_room(place, needed)
        place.write_claim()
        return {"state": "begun", "parts": place.parts, "present": present}


def unpack(words: dict[str, object]) -> dict[str, object]:
    """Put the parts together as they come, and tell what was found in them."""
    place = Place(words)
    with Lock(place):
        place.check_claim()
        try:
            sha256 = _written(place)
            version = _version(place.staged) if sha256 == words["sha256"] else ""
        except (zlib.error, EOFError) as fault:
            place.clear()
            raise Refused("damaged", reason=str(fault)) from fault
        except Refused as refusal:
            if refusal.words["state"] != "stalled":  # Then the rest may still come.
                place.clear()
            raise
        if version:
            place.write_claim()
        else:
            place.clear()
        return {"state": "unpacked", "sha256": sha256, "version": version}


def install(words: dict[str, object]) -> dict[str, object]:
    """Give the verified program its name."""
    place = Place(words)
    with Lock(place):
        place.check_claim()
        os.rename(place.staged, place.final)
        place.clear()
        identity = _identity(os.stat(place.final))
    return {"state": "installed", "path": place.final, "identity": identity}


def abandon(words: dict[str, object]) -> dict[str, object]:
    """Stage no more: leave nothing, or the parts for whoever goes on with them."""
    place = Place(words)
    if not os.path.isdir(place.folder):
        return {"state": "abandoned"}
    with Lock(place):
        if not words["keeps_parts"] and place.stager() is None:
            # It was cleared when it was refused; parts on their way came after that.
            place.clear()
            return {"state": "abandoned"}
        place.check_claim()
        if words["keeps_parts"]:
            os.unlink(place.claim)
        else:
            place.clear()
    return {"state": "abandoned"}


def _checked(path: str, words: dict[str, object]) -> dict[str, object]:
    """Tell what is found under a path; one that did not change is not read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return {"state": "missing", "path": path}
    except OSError as fault:
        return {"state": "forbidden", "path": path, "reason": _reason(fault)}
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode):
        os.close(descriptor)
        return {"state": "forbidden", "path": path, "reason": "it is no file"}
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        identity = _identity(seen)
        if identity == words.get("known"):
            return {"state": "known", "path": path, "identity": identity}
        found = hashlib.sha256()
        while True:
            piece = file.read(PIECE_BYTES)
            if not piece:
                break
            found.update(piece)
        changed = _identity(os.fstat(file.fileno())) != identity
    if changed:
        return {"state": "forbidden", "path": path, "reason": "it changes"}
    sha256 = found.hexdigest()
    version = _version(path) if sha256 == words["sha256"] else ""
    return {
        "state": "found",
        "path": path,
        "identity": identity,
        "sha256": sha256,
        "version": version,
    }


def _written(place: Place) -> str:
    found = hashlib.sha256()
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(place.staged, flags, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        for piece in _unpacked(place):
            found.update(piece)
            while piece:
                piece = piece[file.write(piece) :]
        os.fchmod(file.fileno(), 0o755)
    return found.hexdigest()


def _unpacked(place: Place) -> Iterator[memoryview]:
    """Yield the program; before and after it there may be more of an archive."""
    skipped, left = place.number("offset"), place.number("size")
    parts = Parts(place)
    unpacker = zlib.decompressobj(wbits=31)
    packed = b""
    while left:
        packed = packed or parts.read()
        if unpacker.eof or not packed:
            raise EOFError("it ends too early")
        piece = unpacker.decompress(packed, UNPACKED_BYTES)
        packed = unpacker.unconsumed_tail
        taken = memoryview(piece)[skipped : skipped + left]
        skipped -= min(skipped, len(piece))
        left -= len(taken)
        yield taken


def _version(path: str) -> str:
    """Return what the program says of itself, in one line."""
    try:
        ended = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VERSION_SECONDS_MAX,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refused("not_run", reason="it did not tell its version in time") from None
    except OSError as fault:
        raise Refused("not_run", reason=_reason(fault)) from fault
    told = ended.stdout[:VERSION_BYTES_MAX].decode("utf-8", "replace").strip()
    if ended.returncode != 0 or not told:
        reason = "asked for its version it ended with %d: %s"
        raise Refused("not_run", reason=reason % (ended.returncode, told))
    return told.splitlines()[0]


def _check_room(place: Place, needed: int) -> None:
    seen = os.statvfs(place.folder)
    free = seen.f_bavail * seen.f_frsize
    if free < needed + MARGIN_BYTES:
        reason = "%d bytes are free, needed are %d" % (free, needed + MARGIN_BYTES)
        raise Refused("full", path=place.folder, reason=reason)


def _identity(seen: os.stat_result) -> list[int]:
    return [
        seen.st_dev,
        seen.st_ino,
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
    ]


def _reason(fault: OSError) -> str:
    return fault.strerror or str(fault)


_CALLS = {
    "look": look,
    "check": check,
    "begin": begin,
    "unpack": unpack,
    "install": install,
    "abandon": abandon,
}


def main(arguments: list[str]) -> int:
    """Do one call and print its answer."""
    if len(arguments) != 1 or arguments[0] not in _CALLS:
        print(json.dumps({"state": "misused", "reason": "wanted: one call"}))
        return 2
    os.umask(0o077)
    try:
        words = json.loads(sys.stdin.buffer.read(WORDS_BYTES_MAX) or b"{}")
        answer = _CALLS[arguments[0]](words)
    except Refused as refusal:
        answer = refusal.words
    except OSError as fault:
        path = fault.filename if isinstance(fault.filename, str) else ""
        state = "full" if fault.errno in _FULL else "forbidden"
        answer = {"state": state, "path": path, "reason": _reason(fault)}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
