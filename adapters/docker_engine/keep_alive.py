# SPDX-License-Identifier: Apache-2.0
"""What keeps a container alive, and ends it when its time has come.

A few lines of POSIX shell are the container's first process. They wait for the
mark that says the sandbox is ready, count its lifetime from there, and end; all
other processes end with them, whether Livery still lives or not. A container
that is never made ready ends when the time for that is over. So expiry is in
the first request already, and a killed host leaves nothing that lives for ever.

Being the first process, the shell cannot be killed from inside, not by root
either, since it heeds no signal: an agent that could end its container would
choose not to be graded. It reaps what others leave. While a container is frozen
its time does not end it: the reaper does.

An entry point of the user's own takes the first process's place under the
engine's init; the same lines count beside it, and end it.
"""

import math

MARK = "/dev/shm/.ready"
"""Made when the sandbox is ready; holds when it expires, in Unix seconds."""
END_SECONDS = 10
"""How long an own entry point has between TERM and KILL at expiry."""

_COUNT = """\
now() { read -r up _ </proc/uptime; up=${up%%.*}; }
nap() {
    now; end=$((up + $1))
    while now; [ "$up" -lt "$end" ]; do
        [ -n "$2" ] && [ -s "$2" ] && return
        if [ -n "$2" ]; then sleep 1 & else sleep $((end - up)) & fi
        wait $!
    done
    [ -z "$2" ]
}
"""

_ALONE = f"""\
trap '' HUP INT QUIT TERM
command -v sleep >/dev/null || exit 127
{_COUNT}\
nap "$2" "{MARK}" || exit 64
nap "$1" ""
exit 0
"""

_BESIDE = f"""\
{_COUNT}\
life=$1 patience=$2; shift 2
(
    nap "$patience" "{MARK}" && nap "$life" ""
    kill -TERM $$; sleep {END_SECONDS}; kill -KILL $$
) </dev/null >/dev/null 2>&1 &
exec "$@"
"""


def keep_alive(
    entrypoint: tuple[str, ...] | None,
    *,
    lifetime_seconds: float,
    patience_seconds: float,
) -> list[str]:
    """Return the words of the container's first process."""
    seconds = [str(math.ceil(lifetime_seconds)), str(math.ceil(patience_seconds))]
    if entrypoint is None:
        return ["/bin/sh", "-c", _ALONE, "sandbox", *seconds]
    return ["/bin/sh", "-c", _BESIDE, "sandbox", *seconds, *entrypoint]
