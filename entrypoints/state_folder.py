# SPDX-License-Identifier: Apache-2.0
"""The state folder: who this machine is to every provider, and what it remembers.

The owner id tells our sandboxes from everybody else's; it is made once, whole, and
never changes. The folder and all that is in it is for its user alone.
"""

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs

from ..domain.claims import OwnerId
from ..ports.required.faults import Fault

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
SECRET_BYTES: Final = 32
OWNER_BYTES: Final = 16
FILE_BYTES_MAX: Final = 4096


@attrs.frozen
class StateFolderUnusable(Fault):
    """The state folder cannot be made, read or trusted."""

    kind: ClassVar[str] = "state_folder_unusable"
    message: ClassVar[str] = "The state folder {where} cannot be used: {reason}."

    where: str
    reason: str


@attrs.frozen(kw_only=True)
class StateFolder:
    """An open state folder."""

    path: Path
    owner: OwnerId
    secret: str = attrs.field(repr=False)
    """Signs what this installation gives out; never leaves it."""

    @property
    def journal(self) -> Path:
        """Where the journal is."""
        return self.path / "journal.sqlite"


def state_path(
    chosen: str | Path | None, environ: Mapping[str, str] = os.environ
) -> Path:
    """Return the place of the state folder; `chosen` goes first.

    Raises:
        StateFolderUnusable: It is in a home folder that is not known.
    """
    try:
        if chosen is not None:
            return Path(chosen).expanduser().absolute()
        # An empty or relative value is as good as none, says the XDG specification.
        given = Path(environ.get("XDG_STATE_HOME", ""))
        home = given if given.is_absolute() else Path.home() / ".local" / "state"
        return home / "livery"
    except RuntimeError as error:
        where = "~/.local/state/livery" if chosen is None else str(chosen)
        reason = "there is no such home folder; name another place with --state"
        raise StateFolderUnusable(where, reason) from error


def open_state_folder(path: Path) -> StateFolder:
    """Return the folder, made with its owner id and secret where they are missing.

    Raises:
        StateFolderUnusable: It cannot be made, read or trusted.
    """
    try:
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _guard(path)
        owner = _kept(path / "owner", f"owner-{secrets.token_hex(OWNER_BYTES)}")
        secret = _kept(path / "secret", secrets.token_hex(SECRET_BYTES))
    except OSError as error:
        raise StateFolderUnusable(str(path), error.strerror or str(error)) from error
    return StateFolder(path=path, owner=OwnerId(owner), secret=secret)


def _guard(path: Path) -> None:
    """Let nobody else in; a folder of somebody else's cannot be trusted at all."""
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise StateFolderUnusable(str(path), "it is not a folder")
    if found.st_uid != os.geteuid():
        raise StateFolderUnusable(
            str(path), f"it belongs to user {found.st_uid}; name your own with --state"
        )
    if stat.S_IMODE(found.st_mode) != FOLDER_MODE:
        path.chmod(FOLDER_MODE)


def _kept(path: Path, fresh: str) -> str:
    """Return what the file holds; `fresh`, written whole, when there is no file.

    Of several who come at once, one wins and all return the winner's.
    """
    if not path.exists():
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{fresh}\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # Theirs counts.
                os.link(name, path)
        finally:
            os.unlink(name)
    path.chmod(FILE_MODE)
    with path.open(encoding="ascii", errors="replace") as file:
        kept = file.read(FILE_BYTES_MAX).strip()
    if not kept or not kept.replace("-", "").isalnum():
        raise StateFolderUnusable(
            str(path.parent),
            f"its file {path.name} is damaged; if no sandbox of it is left"
            " (`livery claims list`), remove the file",
        )
    return kept
