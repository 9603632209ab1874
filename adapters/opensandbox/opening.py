# SPDX-License-Identifier: Apache-2.0
"""Opening a sandbox: what is made ready inside, and the door for our programs.

Execd writes one file and runs one command: the folders are made, the user's ids
found, and the door left behind, which takes the file away. Doing it again does
no harm, so what does not answer yet is asked again within a budget.
"""

import secrets
import shlex
from collections.abc import Awaitable, Callable

import anyio
import attrs

from ..worker_scripts import MAKE_READY, keyed
from .command_events import CommandEnded, StreamBroken
from .execd import Execd, ExecdGone, Ran
from .lifecycle_facts import ApiRefused
from .spec_terms import EXECD_VARIABLES, SPOOL_FOLDER
from .tunnel import DoorAddress

COMMAND_SECONDS = 60.0
PAUSE_SECONDS = 0.02
PAUSE_SHARE = 0.1
"""Of what was waited already: to ask late costs a tenth of it at most."""
PAUSE_SECONDS_MAX = 0.5
LOOK_AFTER_SECONDS = 0.3
"""The server is asked when execd takes longer than it mostly does."""
KEY_BYTES = 32


@attrs.frozen
class OpeningFailed(Exception):
    """The sandbox runs, and cannot be made ready; `what` is the step."""

    what: str
    """user, workdir, scratch, python or execd."""
    reason: str

    @property
    def lacks_python(self) -> bool:
        """Whether a shell inside answers, and there is no Python that runs."""
        return self.what == "python"

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


@attrs.frozen(kw_only=True)
class Wishes:
    """What a sandbox is made ready for."""

    workdir: str
    user: str
    scratch: str
    python: str


async def until_answering(
    execd: Execd, look: Callable[[], Awaitable[None]], *, seconds: float
) -> None:
    """Wait until execd answers; `look` sees in between whether there is hope.

    Raises:
        ExecdGone: It did not answer within `seconds`.
    """
    begun = anyio.current_time()
    while True:
        try:
            await execd.ping()
            return
        except (ExecdGone, ApiRefused) as gone:
            if isinstance(gone, ApiRefused) and gone.status in {401, 403}:
                raise OpeningFailed("execd", "it does not take our token") from gone
            waited = anyio.current_time() - begun
            if waited >= LOOK_AFTER_SECONDS:
                await look()
            pause = min(max(PAUSE_SECONDS, PAUSE_SHARE * waited), PAUSE_SECONDS_MAX)
            if waited + pause > seconds:
                raise ExecdGone(f"its execd does not answer: {gone}") from gone
        await anyio.sleep(pause)


async def open_door(
    execd: Execd, wishes: Wishes, *, has_frames: bool = False
) -> DoorAddress:
    """Make a running sandbox ready, and leave a door behind in it.

    Raises:
        OpeningFailed: As it says.
        ExecdGone, StreamBroken, ApiRefused: Execd did not do it.
    """
    key = secrets.token_hex(KEY_BYTES)
    path = f"{SPOOL_FOLDER}/.{secrets.token_hex(8)}"
    words, content = keyed(wishes.python, path, name="door", key=key)
    await execd.upload(path, content, mode=0o600)
    ran = await execd.run(_script(wishes, words), seconds=COMMAND_SECONDS)
    port = _port(ran, wishes)
    return DoorAddress(
        url=f"{execd.url}/proxy/{port}",
        headers=execd.headers,
        key=key.encode(),
        has_frames=has_frames,
    )


def _script(wishes: Wishes, words: tuple[str, ...]) -> str:
    """Return the command; what is execd's own in its environment stays out."""
    ready = (
        *("/bin/sh", "-c", MAKE_READY, "sandbox"),
        *(wishes.workdir, wishes.user, wishes.scratch, "", ""),
        *words,
    )
    return (
        f'[ "$TMPDIR" != {SPOOL_FOLDER} ] || unset TMPDIR;'
        f" unset {' '.join(EXECD_VARIABLES)}; exec {shlex.join(ready)}"
    )


def _port(ran: Ran, wishes: Wishes) -> int:
    told: dict[str, str] = {}
    for line in ran.stdout.splitlines():
        word, _, rest = line.partition(" ")
        told.setdefault(word, rest)
    if "fault" in told:
        what, _, reason = told["fault"].partition(" ")
        raise OpeningFailed(what, reason.strip())
    if "plain" in told:
        raise OpeningFailed("python", _without(wishes, told["plain"]))
    if "door" in told and told["door"].isdigit():
        return int(told["door"])
    if "ready" in told:
        reason = ran.stderr.strip()[-300:] or _end(ran.end)
        raise OpeningFailed("python", _without(wishes, reason))
    raise StreamBroken(f"nothing was made ready: {_end(ran.end)} {ran.stderr[-300:]}")


def _without(wishes: Wishes, reason: str) -> str:
    return (
        f"no {wishes.python} of version 3.8 or newer works in the image ({reason});"
        " use an image that has python3"
    )


def _end(end: CommandEnded) -> str:
    return end.reason or f"its command ended with {end.code}"
