# SPDX-License-Identifier: Apache-2.0
"""The folder itself: made new or gone on with, by one process at a time.

Whatever is refused is refused before anything is written. A folder that is not
empty and holds no run is somebody's, and is left alone.
"""

import errno
import fcntl
import os
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from ...ports.required.result_log import ResultLogUnusable
from .faults import ResultsFolderRefused
from .result_lines import FileResultLog, open_result_lines
from .run_card import RunCard, read_card

RUN: Final = "run.json"
RESULTS: Final = "results.jsonl"
ARTIFACTS: Final = "artifacts"
LOCK: Final = ".lock"
PART: Final = ".part-"
"""How the name of a file begins that is not whole yet: a kill may leave one."""
FILE_MODE: Final = 0o644
CARD_MODE: Final = 0o600
"""The settings hold the environment of the sandboxes, in whose values secrets end up
though they should not."""
HOLDER_BYTES_MAX: Final = 64


@attrs.frozen(kw_only=True)
class ResultsFolder:
    """An open results folder; no other process writes to it."""

    path: Path
    card: RunCard
    log: FileResultLog
    healed_bytes: int = 0
    """What a kill had left of a line, and was cut off."""

    @property
    def artifacts(self) -> Path:
        """Where the artifacts are."""
        return self.path / ARTIFACTS

    def write(self, name: str, text: str) -> None:
        """Write a file, whole or not at all.

        Raises:
            ResultLogUnusable: It could not be written.
        """
        _write(self.path / name, text)


def check_new(path: Path) -> None:
    """Raise `ResultsFolderRefused` when no new run can begin in the folder."""
    try:
        path.lstat()
        is_folder = path.is_dir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if not is_folder:
        raise ResultsFolderRefused(
            str(path), "is not a folder", "Name another with --out."
        )
    try:
        names = set(os.listdir(path)) - {LOCK}
        # A kill in the middle of making it may have left its own file half written.
        found = sorted(name for name in names if not name.startswith(PART + RUN))
    except OSError as error:
        raise _unreadable(path, error) from error
    if RUN in found:
        raise ResultsFolderRefused(
            str(path),
            "holds the results of a run already",
            f"Go on with it (livery run --resume {path}), or name another with --out.",
        )
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise ResultsFolderRefused(
            str(path),
            f"is not empty: it holds {found[0]}{more}",
            "Name a new or empty folder with --out.",
        )


@contextmanager
def make_results_folder(path: Path, card: RunCard) -> Generator[ResultsFolder]:
    """Begin a run in a new or empty folder, and hold it inside the block.

    Raises:
        ResultsFolderRefused: It is not new or empty, another process has it, or it
            cannot be made or written; nothing of it is left.
    """
    check_new(path)
    text = card.written()
    new = _made(path)
    with ExitStack() as held:
        try:
            held.enter_context(_held(path))
            check_new(path)  # Another may have begun between the look and the lock.
            folder = held.enter_context(_begun(path, card, text))
            # What is written is found again by the names that lead to it.
            for one in (path, *(made.parent for made in new)):
                _sync_folder(one)
        except ResultLogUnusable as failure:
            _remove(new)
            raise _unusable(path, failure.reason) from failure
        yield folder


@contextmanager
def open_results_folder(path: Path) -> Generator[ResultsFolder]:
    """Go on with the run in the folder, and hold it inside the block.

    Raises:
        ResultsFolderRefused: It holds no run, or another process has it.
        ResultLogUnusable: It cannot be written.
    """
    card = read_run(path)
    with _held(path), _opened(path, card) as folder:
        yield folder


def read_run(path: Path) -> RunCard:
    """Return what the run in the folder is.

    Raises:
        ResultsFolderRefused: It holds no run that this version can read.
    """
    try:
        return read_card((path / RUN).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "has no " + RUN if path.is_dir() else "is not a folder"
        raise ResultsFolderRefused(
            str(path),
            f"holds no run: it {what}",
            "Name the folder that a run was given with --out.",
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise ResultsFolderRefused(
            str(path / RUN), f"cannot be read: {error}", "Use the Livery that wrote it."
        ) from error


def _made(path: Path) -> list[Path]:
    """Make the folder and what is missing above it; return the new, innermost first."""
    missing: list[Path] = []
    try:
        missing += [one for one in (path, *path.parents) if not one.exists()]
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove(missing)
        raise _unusable(path, error.strerror or str(error)) from error
    return missing


def _remove(folders: Sequence[Path]) -> None:
    """Remove folders that are empty; one that another has begun to use is kept."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _begun(path: Path, card: RunCard, text: str) -> Generator[ResultsFolder]:
    """Write the first files of a folder that is held, all or none."""
    with ExitStack() as opened:
        try:
            _write(path / RUN, text, mode=CARD_MODE)
            folder = opened.enter_context(_opened(path, card))
        except ResultLogUnusable:
            for name in (RESULTS, RUN, LOCK):
                with suppress(OSError):
                    os.unlink(path / name)
            raise
        yield folder


@contextmanager
def _opened(path: Path, card: RunCard) -> Generator[ResultsFolder]:
    log, torn = open_result_lines(path / RESULTS)
    try:
        yield ResultsFolder(path=path, card=card, log=log, healed_bytes=torn)
    finally:
        log.close()


@contextmanager
def _held(path: Path) -> Generator[None]:
    """Hold the folder's lock; the kernel lets go of it however this process ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        descriptor = os.open(path / LOCK, flags, FILE_MODE)
    except OSError as error:
        raise ResultLogUnusable(str(path), error.strerror or str(error)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, HOLDER_BYTES_MAX, 0).decode(errors="replace")
            raise ResultsFolderRefused(
                str(path),
                f"is in use by process {holder.strip() or '(unknown)'}",
                "Wait for its end, or end that process.",
            ) from error
        _sign(path, descriptor)
        _drop_parts(path)
        yield
    finally:
        os.close(descriptor)


def _sign(path: Path, descriptor: int) -> None:
    """Write into the lock who holds it."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        with suppress(OSError):
            os.unlink(path / LOCK)
        raise ResultLogUnusable(str(path), error.strerror or str(error)) from error


def _drop_parts(path: Path) -> None:
    """Remove what a kill left half written; who holds the lock writes alone."""
    try:
        for part in path.glob(f"{PART}*"):
            part.unlink()
    except OSError as error:
        raise ResultLogUnusable(str(path), error.strerror or str(error)) from error


def _write(path: Path, text: str, *, mode: int = FILE_MODE) -> None:
    try:
        descriptor, name = tempfile.mkstemp(
            dir=path.parent, prefix=f"{PART}{path.name}-"
        )
        try:
            # Half a surrogate pair, a byte of a file's name say, is no UTF-8: in JSON
            # its escape reads back as it was.
            with os.fdopen(
                descriptor, "w", encoding="utf-8", errors="backslashreplace"
            ) as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ResultLogUnusable(str(path), error.strerror or str(error)) from error


def _sync_folder(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise ResultLogUnusable(str(path), error.strerror or str(error)) from error


def _unusable(path: Path, reason: str) -> ResultsFolderRefused:
    return ResultsFolderRefused(
        str(path), f"cannot be used: {reason}", "Name another with --out."
    )


def _unreadable(path: Path, error: OSError) -> ResultsFolderRefused:
    return ResultsFolderRefused(
        str(path),
        f"cannot be read: {error.strerror or error}",
        "Correct its permissions, or name another.",
    )
