# SPDX-License-Identifier: Apache-2.0
"""What keeps a sandbox alive, and execd in it.

A few lines of POSIX shell are the first process, which nothing inside can kill.
They look every other second whether execd lives: neither the server nor anything
else starts it again after a command of root's, or the kernel, has killed it, and
without it the sandbox would be out of reach for ever. Expiry is the server's.
"""

FIND = """\
tries=0 pid=
while [ -z "$pid" ] && [ "$tries" -lt 20 ]; do
    # In brackets: what looks for a pattern has it among its own words, and execd may
    # not have begun.
    for f in $(grep -l "[/]${folder#/}/execd" /proc/[0-9]*/cmdline 2>/dev/null); do
        pid=${f#/proc/} pid=${pid%/cmdline}
        break
    done
    tries=$((tries + 1))
    [ -n "$pid" ] || { sleep 0.1 || sleep 1; }
done
"""
"""Looks for `$folder/execd` and leaves its id in `$pid`, which stays empty for none."""

_GUARD = f"""\
trap 'exit 0' TERM INT
command -v sleep >/dev/null || exit 127
folder=/opt/opensandbox
{FIND}\
while :; do
    sleep 2 & wait $!
    [ -n "$pid" ] || continue
    stat=
    {{ read -r stat <"/proc/$pid/stat"; }} 2>/dev/null
    case $stat in
    '' | *') Z '* | *') X '*)
        "$folder/execd" >/dev/null 2>&1 </dev/null &
        pid=$!
        ;;
    esac
done
"""

KEEP_ALIVE = ("/bin/sh", "-c", _GUARD)
