# SPDX-License-Identifier: Apache-2.0
"""Archives: a folder as one tar file, and back.

    archive.py pack FOLDER OUT.tar [--bytes-max N]
    archive.py unpack IN.tar FOLDER [--replace] [--keep-outside-links]

Each prints one line of JSON and exits with 0; with 2 when it is misused. What
is packed is regular files, folders and links with their modes, in the order of
their names, and belongs to nobody. What cannot be packed is left out and told.
Unpacking looks at every entry before it writes one; it follows no link, not of
the archive and not of the folder.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tarfile
from typing import IO, Iterator

from .trees import Folder, empty_folder, set_time

SKIPPED_TOLD_MAX = 100
DEPTH_MAX = 200
"""How deep folders are packed; Python, tar and the kernel all have their limit."""
COPY_BYTES = 1024 * 1024
_MODES_KEPT = 0o1777  # a file is not unpacked to act for who owns it there


class Refused(Exception):
    """An entry breaks the rules; nothing was written."""


class TooLarge(Exception):
    """The folder holds more than was allowed."""


class Misused(Exception):
    """The call is none; the text says why."""


class Counts:
    """What is told at the end."""

    def __init__(self) -> None:
        self.told: dict[str, object] = {}
        self.counts = {"files": 0, "folders": 0, "links": 0, "bytes": 0}
        self.skipped: list[list[str]] = []
        self.skipped_count = 0

    def skip(self, path: bytes, reason: str) -> None:
        """Note an entry that is left out."""
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_TOLD_MAX:
            self.skipped.append([os.fsdecode(path), reason])

    def words(self, state: str) -> dict[str, object]:
        """Return the answer."""
        return {
            "state": state,
            "skipped": self.skipped,
            "skipped_count": self.skipped_count,
            **self.counts,
        }


class Archive(tarfile.TarFile):
    """A tar file that does not remember every entry that it has seen."""

    members: list[tarfile.TarInfo]
    firstmember: tarfile.TarInfo | None

    def forget(self) -> None:
        """Let go of the entries so far; a folder may hold millions."""
        self.members = []

    def entries(self) -> Iterator[tarfile.TarInfo]:
        """Yield one entry after the other."""
        if self.firstmember is None:
            return  # It is empty; some Pythons fail when asked once more.
        while True:
            entry = self.next()
            if entry is None:
                return
            yield entry
            self.forget()


class _Steady:
    """A file read to the size it had; what it lost meanwhile reads as zeros."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size
        self.lacked = 0

    def read(self, wanted: int = -1) -> bytes:
        """Return the next bytes."""
        wanted = self._left if wanted < 0 else min(wanted, self._left)
        found = self._file.read(wanted)
        self._left -= wanted
        self.lacked += wanted - len(found)
        return found + bytes(wanted - len(found))


def pack(folder: bytes, out: bytes, bytes_max: int | None) -> dict[str, object]:
    """Write what is in `folder` to the new file `out`."""
    counts = Counts()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(out, flags, 0o600), "wb") as target:
            with Archive.open(
                fileobj=target, mode="w", format=tarfile.PAX_FORMAT
            ) as tar:
                for path, seen in _entries(folder, counts):
                    _add(tar, folder, path, seen, counts, bytes_max)
                    tar.forget()
            target.flush()
            os.fsync(target.fileno())
    except BaseException:
        if os.path.exists(out):
            os.unlink(out)
        raise
    return counts.words("packed")


def _entries(folder: bytes, counts: Counts) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield the path below `folder` of all that is in there, parents first."""
    open_ends = [b""]
    while open_ends:
        below = open_ends.pop()
        full = os.path.join(folder, below)
        try:
            names = sorted(os.listdir(full))
        except OSError as fault:
            counts.skip(below or b".", _reason(fault))
            continue
        folders: list[bytes] = []
        for name in names:
            path = os.path.join(below, name)
            try:
                seen = os.lstat(os.path.join(folder, path))
            except OSError as fault:
                counts.skip(path, _reason(fault))
                continue
            yield path, seen
            if not stat.S_ISDIR(seen.st_mode):
                continue
            if path.count(b"/") + 1 < DEPTH_MAX:
                folders.append(path)
            else:
                counts.skip(path, "too deep: what is in it is left out")
        open_ends += reversed(folders)


def _add(
    tar: Archive,
    folder: bytes,
    path: bytes,
    seen: os.stat_result,
    counts: Counts,
    bytes_max: int | None,
) -> None:
    entry = tarfile.TarInfo(os.fsdecode(path))
    entry.mode = stat.S_IMODE(seen.st_mode)
    entry.mtime = int(seen.st_mtime)
    full = os.path.join(folder, path)
    if stat.S_ISDIR(seen.st_mode):
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
        counts.counts["folders"] += 1
    elif stat.S_ISLNK(seen.st_mode):
        try:
            entry.linkname = os.fsdecode(os.readlink(full))
        except OSError as fault:
            counts.skip(path, _reason(fault))
            return
        entry.type = tarfile.SYMTYPE
        tar.addfile(entry)
        counts.counts["links"] += 1
    elif stat.S_ISREG(seen.st_mode):
        _add_file(tar, entry, full, path, counts, bytes_max)
    else:
        counts.skip(path, "neither file nor folder nor link")


def _add_file(
    tar: Archive,
    entry: tarfile.TarInfo,
    full: bytes,
    path: bytes,
    counts: Counts,
    bytes_max: int | None,
) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.fdopen(os.open(full, flags), "rb")
    except OSError as fault:
        counts.skip(path, _reason(fault))
        return
    with file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            counts.skip(path, "it changed as it was looked at")
            return
        entry.size = seen.st_size
        counts.counts["bytes"] += entry.size
        if bytes_max is not None and counts.counts["bytes"] > bytes_max:
            raise TooLarge("more than %d bytes" % bytes_max)
        steady = _Steady(file, entry.size)
        tar.addfile(entry, steady)
    counts.counts["files"] += 1
    if steady.lacked:
        counts.skip(path, "it lost %d bytes as it was read" % steady.lacked)


def unpack(
    archive: bytes, folder: bytes, *, replaces: bool, keeps_outside_links: bool
) -> dict[str, object]:
    """Write what `archive` holds into `folder`, which is made when missing."""
    counts = Counts()
    with Archive.open(archive, mode="r:") as tar:
        for entry in tar.entries():
            check_entry(entry, keeps_outside_links=keeps_outside_links)
    os.makedirs(folder, exist_ok=True)
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if replaces:
            empty_folder(top)
        with Archive.open(archive, mode="r:") as tar:
            _write_all(tar, Folder(top), counts)
    finally:
        os.close(top)
    return counts.words("unpacked")


def check_entry(entry: tarfile.TarInfo, *, keeps_outside_links: bool) -> None:
    """Refuse what would be written elsewhere, or is of no kind that is unpacked."""
    parts = entry.name.split("/")
    if entry.name.startswith("/"):
        raise Refused("%s: the name is absolute" % _shown(entry.name))
    if ".." in parts or "\0" in entry.name:
        raise Refused("%s: the name leaves the folder" % _shown(entry.name))
    if not (entry.isreg() or entry.isdir() or entry.issym()):
        raise Refused("%s: neither file nor folder nor link" % _shown(entry.name))
    if entry.isdir():
        return
    if not parts_of(entry.name):
        raise Refused("%s: no name for a file" % _shown(entry.name))
    if entry.issym() and not keeps_outside_links and leaves(entry.name, entry.linkname):
        raise Refused("%s: the link leaves the folder" % _shown(entry.name))


def leaves(name: str, target: str) -> bool:
    """Tell whether a link of that name and target may lead out of the folder.

    Counted step by step: a `..` after another name may follow a link, so only
    those at the beginning are taken for what they look like.
    """
    if target.startswith("/"):
        return True
    steps = parts_of(target)
    ups = 0
    while ups < len(steps) and steps[ups] == "..":
        ups += 1
    return ".." in steps[ups:] or ups > len(parts_of(name)) - 1


def parts_of(name: str) -> list[str]:
    """Return the names that a path is made of."""
    return [part for part in name.split("/") if part not in ("", ".")]


def _write_all(tar: Archive, folder: Folder, counts: Counts) -> None:
    folders: list[tuple[list[bytes], int, float]] = []
    links: list[tuple[list[bytes], bytes]] = []
    for entry in tar.entries():
        parts = [os.fsencode(part) for part in parts_of(entry.name)]
        if entry.isdir():
            folder.make(parts)
            if parts:
                folders.append((parts, entry.mode & _MODES_KEPT, entry.mtime))
            counts.counts["folders"] += 1
        elif entry.issym():
            links.append((parts, os.fsencode(entry.linkname)))
            counts.counts["links"] += 1
        else:
            _write_file(tar, entry, folder, parts)
            counts.counts["files"] += 1
            counts.counts["bytes"] += entry.size
    # Links last: nothing of the archive is ever written by way of them.
    for parts, target in links:
        folder.make_link(parts, target)
    # And modes after that, deepest first: a folder may forbid us its own content.
    for parts, mode, mtime in reversed(folders):
        folder.finish_folder(parts, mode, mtime)


def _write_file(
    tar: Archive, entry: tarfile.TarInfo, folder: Folder, parts: list[bytes]
) -> None:
    source = tar.extractfile(entry)
    assert source is not None, "asked for above"
    with os.fdopen(folder.open_new(parts), "wb") as target:
        while True:
            piece = source.read(COPY_BYTES)
            if not piece:
                break
            target.write(piece)
        target.flush()
        os.fchmod(target.fileno(), entry.mode & _MODES_KEPT)
        set_time(target.fileno(), entry.mtime)


def _reason(fault: OSError) -> str:
    return fault.strerror or str(fault)


def _shown(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()[:200]


def _answer(arguments: list[str]) -> dict[str, object]:
    words = [word for word in arguments if not word.startswith("--")]
    options = [word for word in arguments if word.startswith("--")]
    if words[:1] == ["pack"] and options == [] and len(words) == 3:
        return pack(os.fsencode(words[1]), os.fsencode(words[2]), None)
    if words[:1] == ["pack"] and options == ["--bytes-max"] and len(words) == 4:
        return pack(os.fsencode(words[1]), os.fsencode(words[2]), int(words[3]))
    known = {"--replace", "--keep-outside-links"}
    if words[:1] == ["unpack"] and len(words) == 3 and known.issuperset(options):
        return unpack(
            os.fsencode(words[1]),
            os.fsencode(words[2]),
            replaces="--replace" in options,
            keeps_outside_links="--keep-outside-links" in options,
        )
    raise Misused("wanted: pack FOLDER OUT [--bytes-max N], or unpack IN FOLDER")


def main(arguments: list[str]) -> int:
    """Do one command and print its answer."""
    status = 0
    try:
        answer = _answer(arguments)
    except (Misused, ValueError) as refusal:
        answer, status = {"state": "misused", "reason": str(refusal)}, 2
    except Refused as refusal:
        answer = {"state": "refused", "reason": str(refusal)}
    except TooLarge as refusal:
        answer = {"state": "too_large", "reason": str(refusal)}
    except tarfile.TarError as fault:
        answer = {"state": "refused", "reason": "no archive: %s" % fault}
    except OSError as fault:
        answer = {"state": "failed", "reason": str(fault)}
    print(json.dumps(answer))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
