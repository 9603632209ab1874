# SPDX-License-Identifier: Apache-2.0
"""Holders as locked files: the kernel lets go of a lock when its process dies.

Each process holds one file of the folder locked for as long as it lives, also when
it is killed. A file that can be locked belongs to nobody any more.
"""

import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import attrs

from ...domain.claims import Holder
from ...ports.required.journal import JournalUnusable


@attrs.frozen
class LockedFileHolders:
    """The holders of one state folder; `own` is this process."""

    folder: Path
    own: Holder

    async def alive(self, holder: Holder) -> bool:
        """Whether that process lives. A dead one's file is removed on the way.

        Raises:
            JournalUnusable: Nobody can tell, with no descriptor left, say.
        """
        if holder == self.own:
            return True
        path = self.folder / holder
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _untold(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return True
        except OSError as error:
            raise _untold(path, error) from error
        finally:
            os.close(descriptor)
        return False


def _untold(path: Path, error: OSError) -> JournalUnusable:
    return JournalUnusable(
        where=str(path),
        reason=f"whether its process lives cannot be told: {error.strerror or error}",
        advice="Mend that; nothing of the process was taken over.",
    )


@contextmanager
def open_locked_file_holders(folder: Path) -> Generator[LockedFileHolders]:
    """Enter this process among the holders of `folder` until the end.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = Holder(f"{os.getpid()}-{secrets.token_hex(8)}")
    # Locked before it has its name, so nobody finds it unlocked while its process lives.
    unnamed = folder / f".{own}"
    descriptor = os.open(
        unnamed, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unnamed.rename(folder / own)
        yield LockedFileHolders(folder, own)
    finally:
        (folder / own).unlink(missing_ok=True)
        unnamed.unlink(missing_ok=True)
        os.close(descriptor)
