# SPDX-License-Identifier: Apache-2.0
"""Opening a sandbox: what is made ready inside, and the worker that is started.

Three calls of the runtime server: one makes the folders and looks around, one puts
the porter's program down where it is not there yet, one starts it and hears the
worker's first words. Each may be asked again. They are asked until the server
answers, for a bound claim means a ready pod, not a server that listens.
"""

import hashlib
import secrets
import time

import anyio
import attrs

from ..worker_scripts import program
from .carried_stream import TAKE, CarriedStream, Line, Trouble, said_last
from .runtime_api import Executed, RuntimeApi, RuntimeFailed

PAUSE_SECONDS_FIRST = 0.05
PAUSE_SECONDS_MAX = 1.0
START_SECONDS = 20.0
KEY_HEX = 12
STARTS_MAX = 3
TOLD_CHARACTERS_MAX = 300

_OPEN = r"""
workdir=$1 key=$2 python=$3 program=$4 known=$5 token=$6
fault() { printf 'fault\n%s\n%s\n' "$1" "$(printf %s "$2" | tr '\n' ' ')"; exit 0; }
# Another one may make it at the same time.
make() { mkdir -m 700 -- "$1" || [ -d "$1" ]; }
base=$(pwd -P)
command -v "$python" >/dev/null 2>&1 || fault python "there is no $python in it"
scratch=
for parent in /tmp /var/tmp /dev/shm "$base"; do
    [ -d "$parent/.run-$key" ] && { scratch=$parent/.run-$key; break; }
done
[ -n "$scratch" ] || [ "$known" = no ] || fault lost "what was put down in it is gone"
told=$(mkdir -p -- "$workdir" 2>&1) || fault workdir "$told"
told=$({ cd -- "$workdir" && [ -w . ]; } 2>&1) || fault workdir "it cannot be used: $told"
inside=$(cd -- "$workdir" && pwd -P)
if [ -z "$scratch" ]; then
    for parent in /tmp /var/tmp /dev/shm "$base"; do
        case $parent/ in "$inside"/*) continue ;; esac
        told=$(make "$parent/.run-$key" 2>&1) &&
            { scratch=$parent/.run-$key; break; }
    done
fi
[ -n "$scratch" ] || fault scratch "no folder outside of $workdir can be written: $told"
[ ! -L "$scratch" ] || fault scratch "$scratch is a link"
folder=$base/.livery-$key
told=$(make "$folder" 2>&1) || fault folder "$told"
[ ! -L "$folder" ] || fault folder "$folder is a link"
have=no
[ -s "$folder/$program" ] && have=$(wc -c <"$folder/$program")
holds=no
[ -e "$token" ] && holds=yes
printf 'ready\n%s\n%s\n%s\n%s\n' "$scratch" "$folder" $have $holds
"""

_START = r"""
python=$1 folder=$2 line=$3 program=$4 take=$5 seconds=$6
"$python" -I -S "$folder/$program" "$folder" "$line" || exit
exec "$python" -I -S -c "$take" "$folder/$line" 0 "$seconds"
"""


@attrs.frozen
class OpeningFailed(Exception):
    """The sandbox answers, and cannot be made ready; `what` is the step."""

    what: str
    """python, workdir, scratch, folder, worker, or `lost` when it is another one."""
    reason: str

    @property
    def is_loss(self) -> bool:
        """Whether it is another pod than the one that was opened before."""
        return self.what == "lost"

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


@attrs.frozen(kw_only=True)
class Opened:
    """A sandbox that is ready."""

    scratch: str
    folder: str
    """Where the porter is."""
    stream: CarriedStream
    holds_token: bool
    """Whether whoever runs in it can speak to the cluster's API server."""


def key_of(holder: str) -> str:
    """Return what tells the folders of one claim or borrower from another's."""
    return hashlib.sha256(holder.encode()).hexdigest()[:KEY_HEX]


async def open_runtime(
    api: RuntimeApi,
    *,
    workdir: str,
    key: str,
    python: str,
    is_known: bool,
    seconds: float,
    trouble: Trouble,
    token_file: str,
) -> Opened:
    """Make a sandbox ready and start its worker, within `seconds`.

    `is_known` says that it was opened before: what was put down must be there. A file
    at `token_file` would let whoever runs in it speak to the cluster.

    Raises:
        OpeningFailed: It cannot be made ready.
        RuntimeFailed: The runtime server does not answer.
        RuntimeRefused: We may not ask it.
    """
    text = program("porter")
    name = f"porter-{hashlib.sha256(text).hexdigest()[:KEY_HEX]}.py"
    known = "yes" if is_known else "no"
    asking = _Asking(api, until=time.monotonic() + seconds, trouble=trouble)
    told = await asking.execute(
        *("/bin/sh", "-c", _OPEN, "sandbox"),
        *(workdir, key, python, name, known, token_file),
    )
    match told.stdout.splitlines():
        case ["ready", scratch, folder, have, holds]:
            is_there = have.strip() == str(len(text))
        case ["fault", what, reason]:
            raise OpeningFailed(what, reason.strip() or "it cannot be made")
        case _:
            raise OpeningFailed("shell", _words(told))
    upload_folder = folder.rpartition("/")[2]
    for _ in range(STARTS_MAX):
        if not is_there:
            await asking.upload(f"{upload_folder}/{name}", text)
        word = secrets.token_hex(6)
        told = await asking.execute(
            *("/bin/sh", "-c", _START, "sandbox"),
            *(python, folder, word, name, TAKE, f"{START_SECONDS:g}"),
        )
        line = Line(
            python=python,
            folder=f"{folder}/{word}",
            upload_folder=f"{upload_folder}/{word}",
        )
        first = said_last(told)
        if first is None:
            # The wait for its first word may have been cut, and not the worker.
            first = said_last(await asking.execute(*line.words("0", "0")))
        if first is not None:
            return Opened(
                scratch=scratch,
                folder=folder,
                stream=CarriedStream(api, line, trouble=trouble, first=first),
                holds_token=holds == "yes",
            )
        is_there = False  # It may lie there by half.
    raise OpeningFailed("python", f"the worker does not start: {_words(told)}")


@attrs.frozen(kw_only=True)
class _Asking:
    """Asks until the runtime server answers."""

    api: RuntimeApi = attrs.field(kw_only=False)
    until: float
    trouble: Trouble

    async def execute(self, *words: str) -> Executed:
        pause = PAUSE_SECONDS_FIRST
        while True:
            try:
                return await self.api.execute(words, seconds=START_SECONDS)
            except RuntimeFailed as failed:
                pause = await self._pause(failed, pause)

    async def upload(self, path: str, content: bytes) -> None:
        pause = PAUSE_SECONDS_FIRST
        while True:
            try:
                await self.api.upload(path, content)
                return
            except RuntimeFailed as failed:
                pause = await self._pause(failed, pause)

    async def _pause(self, failed: RuntimeFailed, pause: float) -> float:
        late = time.monotonic() + pause > self.until
        if late or await self.trouble.is_lost():
            raise failed
        await anyio.sleep(pause)
        return min(2 * pause, PAUSE_SECONDS_MAX)


def _words(told: Executed) -> str:
    said = f"{told.stdout} {told.stderr}".strip()[-TOLD_CHARACTERS_MAX:]
    return f"status {told.exit_code}: {' '.join(said.split())}"
