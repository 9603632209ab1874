# SPDX-License-Identifier: Apache-2.0
"""The folder of a claim: made whole or not at all, and removed label last.

`<root>/<name>/` holds `claim.json` (whose it is, as what it was made, until
when), `work/`, `home/`, `tmp/` and `scratch/`. It is built under another name
and renamed, so that a folder under a claim's name always tells whose it is, at
whatever moment its maker was killed. What a killed maker left is found by the
claim in its name and goes with `remove`, or with `sweep` after a while.

Everything here blocks; callers run it in a thread.
"""

import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import cast

import attrs

from ...domain.claims import ClaimId, OwnerId
from ...domain.names import to_name
from ...ports.required.sandbox_provider import ClaimLabel

RECORD = "claim.json"
FOLDERS = {"work": 0o755, "home": 0o700, "tmp": 0o700, "scratch": 0o700}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
MAKING = ".making-"
MAKING_SECONDS_MAX = 600.0
"""After this long nobody is still making a folder."""
RECORD_BYTES_MAX = 16 * 1024 * 1024


class FolderState(StrEnum):
    """How far the life of a claim's folder went."""

    LIVE = "live"
    ENDED = "ended"
    """Its processes were ended; the folder waits for its removal."""
    ENDING = "ending"
    """Its removal has begun."""


@attrs.frozen(kw_only=True)
class ClaimRecord:
    """What `claim.json` tells."""

    label: ClaimLabel
    spec: str
    """The digest of the spec that it was made as."""
    env: Mapping[str, str]
    """The variables of the spec, for whoever finds the sandbox again."""
    created: float
    expires: float
    state: FolderState = FolderState.LIVE
    reason: str = ""


class RecordUnreadable(Exception):
    """A `claim.json` is there and does not tell what it should."""


def folder_of(root: Path, claim: ClaimId) -> Path:
    """Return where the folder of a claim is, if there is one."""
    return root / to_name("livery", claim)


def make(folder: Path, record: ClaimRecord) -> bool:
    """Make the folder; return False, and leave it alone, when there is one.

    Raises:
        OSError: It could not be made, and nothing of it is left.
    """
    making = folder.parent / f"{MAKING}{folder.name}.{secrets.token_hex(6)}"
    making.mkdir(mode=0o700)
    try:
        write_record(making, record)
        for name, mode in FOLDERS.items():
            (making / name).mkdir()
            # Whatever the mask says: these modes are promised.
            (making / name).chmod(mode)
        making.rename(folder)
    except OSError as fault:
        shutil.rmtree(making, ignore_errors=True)
        if fault.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def write_record(folder: Path, record: ClaimRecord) -> None:
    """Write `claim.json` so that a reader sees the old one or the new one."""
    words = {
        "format": 1,
        "claim": record.label.claim,
        "owner": record.label.owner,
        "spec": record.spec,
        "env": dict(record.env),
        "created": record.created,
        "expires": record.expires,
        "state": record.state.value,
        "reason": record.reason,
    }
    fresh = folder / f"{RECORD}.{secrets.token_hex(6)}"
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(words, file)
        fresh.rename(folder / RECORD)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def read_record(folder: Path) -> ClaimRecord | None:
    """Return what `claim.json` tells; None when there is none.

    Raises:
        RecordUnreadable: It is no record of ours.
    """
    try:
        with open(folder / RECORD, encoding="utf-8") as file:
            words: object = json.loads(file.read(RECORD_BYTES_MAX))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as fault:
        raise RecordUnreadable(f"{folder / RECORD} cannot be read: {fault}") from fault
    try:
        return _to_record(words)
    except (KeyError, TypeError, ValueError) as fault:
        raise RecordUnreadable(f"{folder / RECORD} is no record of ours") from fault


def records(root: Path) -> Iterator[tuple[Path, ClaimRecord | RecordUnreadable]]:
    """Tell every folder below `root` with its record, half made ones included."""
    for path in sorted(root.iterdir()):
        try:
            record = read_record(path)
        except RecordUnreadable as fault:
            yield path, fault
            continue
        if record is not None:
            yield path, record


def why_not_adopted(there: ClaimRecord, asked: ClaimRecord) -> str:
    """Return why what is there is not what was asked for; empty when it is."""
    if there.label != asked.label:
        return "another owner's"
    if there.spec != asked.spec:
        return "made as another spec"
    if there.state is not FolderState.LIVE or time.time() >= there.expires:
        return "over, and not removed yet"
    return ""


def told_state(folder: Path, record: ClaimRecord) -> str:
    """Return how a folder stands, in a word for who reads the list."""
    if is_half_made(folder):
        return "half made"
    if record.state is FolderState.LIVE and time.time() >= record.expires:
        return "expired"
    return record.state.value


def is_half_made(folder: Path) -> bool:
    """Return whether the folder is one that its maker did not finish."""
    return folder.name.startswith(MAKING)


def remove(folder: Path) -> None:
    """Remove the folder and what a killed maker left for it, label last.

    Raises:
        OSError: Something of it could not be removed.
    """
    for half in folder.parent.glob(f"{MAKING}{folder.name}.*"):
        _remove_whole(half)
    _remove_whole(folder)


def sweep(root: Path) -> None:
    """Remove what carries no label: empty folders, and half made ones of old."""
    for path in root.iterdir():
        try:
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                continue
            if not is_half_made(path):
                path.rmdir()
            elif time.time() - status.st_mtime > MAKING_SECONDS_MAX:
                _remove_whole(path)
        except OSError:
            continue  # Not empty, so it has its label; or somebody else was faster.


def _remove_whole(folder: Path) -> None:
    """Remove a folder of any depth, whatever mode a command gave its parts.

    Each folder below is moved up before it is emptied. So no path grows long,
    and what somebody mounted in there, which does not move, is never emptied.
    """
    with _alone(folder) as is_there:
        if is_there:
            _remove_parts(folder)


@contextmanager
def _alone(folder: Path) -> Generator[bool]:
    """Wait until nobody else removes the folder; tell whether it is still there.

    Who removes moves things about, so two at once would take them from under
    each other's hands. The kernel ends the hold with the process that has it.
    """
    if not folder.is_dir():
        yield False
        return
    try:
        folder.chmod(0o700)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield _is_at(folder, handle)
    finally:
        os.close(handle)


def _is_at(folder: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.lstat())
    except FileNotFoundError:
        return False


def _remove_parts(folder: Path) -> None:
    while below := [entry for entry in _entries(folder) if _is_folder(entry)]:
        for entry in below:
            emptied = _moved_up(entry, folder)
            for inner in _entries(emptied):
                if _is_folder(inner):
                    _moved_up(inner, folder)
                else:
                    os.unlink(inner.path)
            emptied.rmdir()
    for entry in _entries(folder):
        if entry.name != RECORD:
            os.unlink(entry.path)
    (folder / RECORD).unlink(missing_ok=True)
    folder.rmdir()


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    with os.scandir(folder) as entries:
        return list(entries)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir(follow_symlinks=False)


def _moved_up(entry: "os.DirEntry[str]", folder: Path) -> Path:
    status = entry.stat(follow_symlinks=False)
    try:
        if status.st_dev != folder.stat().st_dev:
            raise OSError(errno.EBUSY, "")
        # Else what is below could not be listed, nor the folder moved.
        if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(entry.path, 0o700)
        return Path(entry.path).rename(folder / f"gone-{secrets.token_hex(8)}")
    except OSError as fault:
        if fault.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        reason = "something is mounted there"
        raise OSError(errno.EBUSY, reason, entry.path) from fault


def _to_record(words: object) -> ClaimRecord:
    if not isinstance(words, dict):
        raise TypeError("it is no object")
    fields = cast(dict[str, object], words)
    env = fields["env"]
    if fields["format"] != 1 or not isinstance(env, dict):
        raise ValueError("it is of another format")
    return ClaimRecord(
        label=ClaimLabel(
            claim=ClaimId(_text(fields["claim"])), owner=OwnerId(_text(fields["owner"]))
        ),
        spec=_text(fields["spec"]),
        env={
            _text(name): _text(value)
            for name, value in cast(dict[object, object], env).items()
        },
        created=_number(fields["created"]),
        expires=_number(fields["expires"]),
        state=FolderState(_text(fields["state"])),
        reason=_text(fields["reason"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("it is no text")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError("it is no number")
    return float(value)
