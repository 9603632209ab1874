# SPDX-License-Identifier: Apache-2.0
"""Opening a container: what is made ready inside, and who will do the work.

One exec as root makes the folders, finds the user's ids, sets the mark from
which the lifetime counts, and turns into the resident worker where there is a
Python for it. Where there is none, every command is an exec of its own
(`plain_exec`); which of the two it is, and why, is told and kept.
"""

import hashlib
from contextlib import suppress
from typing import ClassVar

import attrs

from ..worker_scripts import MAKE_READY
from .attached_exec import WorkerStream
from .container_config import ROOT
from .engine import Engine
from .keep_alive import MARK

LINE_BYTES_MAX = 8 * 1024
SCRATCH_HEX = 12
PYTHON_OLDEST = (3, 8)

_CHOOSE = """\
import os, sys
if sys.version_info < %r:
    os.write(1, ("plain its Python is %%d.%%d\\n" %% sys.version_info[:2]).encode())
    sys.exit(0)
os.write(1, b"python\\n")
"""


@attrs.frozen
class OpeningFailed(Exception):
    """The container runs, and cannot be made ready; `what` is the step."""

    message: ClassVar[str] = "{what}: {reason}"

    what: str
    """user, workdir, scratch or mark, or `exec` when nothing was said."""
    reason: str
    exec_id: str = ""
    """The exec that said nothing."""

    def __str__(self) -> str:
        return self.message.format(what=self.what, reason=self.reason)


@attrs.frozen(kw_only=True)
class Opened:
    """A container that is ready."""

    uid: int
    gid: int
    expires_at: float | None
    plain_because: str
    """Why no worker runs; empty when one does."""
    stream: WorkerStream | None
    """The started worker's stream; None when there is none."""


def scratch_folder(claim: str) -> str:
    """Return the folder for what is put down on behalf of `claim`."""
    return f"/tmp/.run-{hashlib.sha256(claim.encode()).hexdigest()[:SCRATCH_HEX]}"


async def open_container(
    engine: Engine,
    container: str,
    *,
    workdir: str,
    user: str,
    scratch: str,
    expires_at: float | None,
    worker: tuple[tuple[str, ...], bytes],
) -> Opened:
    """Make a running container ready; `expires_at` sets the mark, once.

    `worker` is the worker's command line, with its starter after `-c`, and what it
    reads first. That is sent ahead; where no worker starts, nobody reads it.

    Raises:
        OpeningFailed: As it says.
    """
    expires = "" if expires_at is None else repr(expires_at)
    command, program = worker
    words = (
        "/bin/sh",
        "-c",
        MAKE_READY,
        "sandbox",
        workdir,
        user,
        scratch,
        MARK,
        expires,
    )
    attached = await engine.exec_attached(
        container, (*words, *_choosing(command)), user=ROOT
    )
    stream = WorkerStream(attached)
    keeps = False
    try:
        with suppress(OSError):
            await stream.send(program)
        said = (await stream.receive_line(bytes_max=LINE_BYTES_MAX)).decode(
            errors="replace"
        )
        word, _, rest = said.partition(" ")
        if word == "fault":
            what, _, reason = rest.partition(" ")
            raise OpeningFailed(what=what, reason=reason.strip())
        facts = rest.split()
        if word != "ready" or len(facts) < 2:
            reason = f"{said} {stream.complaint}".strip()
            raise OpeningFailed(
                what="exec",
                reason=reason or "it said nothing",
                exec_id=stream.exec_id,
            )
        choice = await stream.receive_line(bytes_max=LINE_BYTES_MAX)
        keeps = choice == b"python"
        because = choice.decode(errors="replace").removeprefix("plain").strip()
        return Opened(
            uid=int(facts[0]),
            gid=int(facts[1]),
            expires_at=float(facts[2]) if facts[2:] else None,
            plain_because=""
            if keeps
            else because or f"its Python does not start: {stream.complaint}",
            stream=stream if keeps else None,
        )
    finally:
        if not keeps:
            await stream.aclose()


def _choosing(worker: tuple[str, ...]) -> tuple[str, ...]:
    """Have the worker's Python say first whether it is new enough."""
    at = worker.index("-c") + 1
    choose = _CHOOSE % (PYTHON_OLDEST,)
    return (*worker[:at], choose + worker[at], *worker[at + 1 :])
