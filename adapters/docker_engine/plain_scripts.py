# SPDX-License-Identifier: Apache-2.0
"""The shell's part of commands and files in an image without a Python.

Every script reads a fresh word from its input first and does nothing without
it; what it has to tell begins with that word, on standard error. The command
never sees the word, so nothing that it prints can be taken for the wrapper's.

A command's tree is found by a mark that all its descendants inherit, whatever
they do to their environment, session or parent: a limit on the resident set,
which Linux keeps for each process and does not enforce, set to a number of the
run's own. It is seen in `/proc/PID/limits`.
"""

_TELL = r"""
IFS= read -r word || exit 0
exec 3>&2 4>&1 2>/dev/null
tell() { printf '%s %s\n' "$word" "$*" >&3; }
"""

_TREE = r"""
bytes=$((tag * 1024))
living() {
    left=
    for f in $(grep -l "^Max resident set  *$bytes " /proc/[0-9]*/limits); do
        p=${f#/proc/} p=${p%/limits}
        read -r seen <"/proc/$p/stat" || continue
        case ${seen##*) } in Z* | X*) ;; *) left="$left $p" ;; esac
    done
}
pause() { if sleep 0.05; then step=50; else sleep 1; step=1000; fi; }
await() {
    over=$1
    while living; [ -n "$left" ]; do
        [ "$over" -gt 0 ] || return 1
        pause
        over=$((over - step))
    done
}
end_tree() {
    living
    [ -n "$left" ] || return 0
    kill -TERM $left
    await "$grace" && return 0
    over=5000
    while living; [ -n "$left" ]; do
        kill -KILL $left
        [ "$over" -gt 0 ] || return 1
        pause
        over=$((over - step))
    done
}
"""

RUN = (
    _TELL
    + r"""
tag=$1 limit=$2 whole=$3 grace=$4 drain=$5 detaches=$6 cwd=$7; shift 7
"""
    + _TREE
    + r"""
tell begin
# Whoever gave up before it heard that sends no second line, and nothing runs.
IFS= read -r go || exit 0
cd "$cwd" || { tell absent "there is no folder $cwd"; exit 0; }
program=
case $1 in
*/*) [ -f "$1" ] && [ -x "$1" ] && program=$1 ;;
*)
    IFS=:
    for folder in $PATH; do
        if [ -f "${folder:-.}/$1" ] && [ -x "${folder:-.}/$1" ]; then
            program=${folder:-.}/$1
            break
        fi
    done
    unset IFS
    ;;
esac
[ -n "$program" ] || { tell absent "there is no program $1"; exit 0; }
shift
(ulimit -S -m "$tag") || { tell absent "its processes cannot be marked"; exit 0; }
case $limit in *.*) sleep 0.01 || limit=$whole ;; esac
session=
command -v setsid >/dev/null && session=setsid

timed=0
trap 'timed=1' USR1
(
    # Not a name for it, set a moment later; nor TERM, which a fork may lose.
    trap 'kill -KILL "$!"; exit 0' TERM
    sleep "$limit" &
    wait "$!"
    kill -USR1 $$
    end_tree
) </dev/null >/dev/null 3>&- 4>&- &
timer=$!

# Of a program that a signal ended its shell says so, on that shell's own standard
# error; of one that ended itself with the same status it says nothing.
said=$(
    /bin/sh -c '(exec "$@" >&4 2>&3 3>&- 4>&-); exit $?' sh \
        $session /bin/sh -c 'ulimit -S -m "$0" && exec "$@"' \
        "$tag" "$program" "$@" 2>&1
)
code=$?

[ "$timed" = 1 ] || kill -TERM "$timer"
while kill -0 "$timer"; do wait "$timer"; done
found=0
if [ "$detaches" = 0 ] || [ "$timed" = 1 ]; then
    if [ "$timed" = 0 ] && ! await "$drain"; then
        set -- $left
        found=$#
    fi
    end_tree
else
    left=
fi
set -- $left
signalled=0
[ -n "$said" ] && [ "$code" -gt 128 ] && signalled=1
tell ended "$code" "$signalled" "$timed" "$found" "$#"
"""
)
"""tag, seconds, whole seconds, grace, drain, detaches, folder, then the words."""

SWEEP = (
    _TELL
    + r"""
IFS= read -r tag || exit 0
grace=$1
"""
    + _TREE
    + r"""
# The wrapper and its parts have the number among their words; grep has not. What
# one of them starts while it is looked for is seen by the next look.
over=5000
while [ "$over" -gt 0 ]; do
    parts=
    for f in $(printf '%s\n' "$tag" | grep -lF -f - /proc/[0-9]*/cmdline); do
        p=${f#/proc/}
        parts="$parts ${p%/cmdline}"
    done
    [ -n "$parts" ] || break
    kill -KILL $parts
    over=$((over - 5))
done
end_tree
set -- $left
tell left "$#"
"""
)
"""grace; the number comes by the input, or it would find itself."""

_PATHS = r"""
parent_of() { parent=${1%/*}; parent=${parent:-/}; }
tell_absent() {
    p=$1
    while [ "$p" != / ]; do
        parent_of "$p"
        if [ -d "$parent" ]; then
            [ -x "$parent" ] && tell missing || tell forbidden "$parent is closed"
            exit 0
        fi
        p=$parent
    done
    tell missing
    exit 0
}
"""

STAT = (
    _TELL
    + _PATHS
    + r"""
[ -e "$1" ] || [ -L "$1" ] || tell_absent "$1"
found=$(stat -c '%f %s' "$1") || { tell failed "stat says nothing"; exit 0; }
tell stat $found
"""
)
"""path."""

GET = (
    _TELL
    + _PATHS
    + r"""
[ -e "$1" ] || tell_absent "$1"
[ -d "$1" ] && { tell not_a_file folder; exit 0; }
[ -f "$1" ] || { tell not_a_file "special file"; exit 0; }
[ -r "$1" ] || { tell forbidden "it may not be read"; exit 0; }
size=$(stat -L -c %s "$1") || { tell failed "stat says nothing"; exit 0; }
tell size "$size"
# Two pipes keep no order between them: the bytes wait until the size was heard.
IFS= read -r go || exit 0
cat "$1" >&4 3>&-
tell read "$?"
"""
)
"""path."""

PUT = (
    _TELL
    + _PATHS
    + r"""
path=$1 name=$2 mode=$3
parent_of "$path"
temporary=${parent%/}/$name
no() {
    rm -f "$temporary"
    case $1 in
    *"o space left"* | *uota*) tell full ;;
    *"ot a directory"* | *"ile exists"*)
        tell forbidden "a part of the path is no folder"
        ;;
    *denied* | *"not permitted"* | *"ead-only"*) tell forbidden "$1" ;;
    *) tell failed "$1" ;;
    esac
    exit 0
}
if [ -n "$mode" ]; then
    [ -L "$path" ] && rm -f "$path"
    said=$(chmod "$mode" "$temporary" 2>&1 && mv -f "$temporary" "$path" 2>&1) ||
        no "$said"
    tell put
    exit 0
fi
[ -d "$path" ] && [ ! -L "$path" ] && { tell not_a_file folder; exit 0; }
said=$(mkdir -p "$parent" 2>&1) || no "$said"
said=$(
    umask 077
    set -C
    exec 2>&1
    cat >"$temporary"
) || no "$said"
got=$(stat -c %s "$temporary") || no "stat says nothing"
tell got "$got"
"""
)
"""path, temporary name; then the same with a mode, when all of it has arrived."""

DROP = _TELL + 'rm -rf "$1"\ntell dropped "$?"\n'
"""path."""
