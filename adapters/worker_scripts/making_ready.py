# SPDX-License-Identifier: Apache-2.0
"""What a shell does in a sandbox before anything else of ours runs there.

It finds the user's ids, makes the working folder and the scratch, sets the mark from
which a lifetime counts where one is wanted, tells all that in one line, and turns
into the program that it was given. Its words are the folder, the user, the scratch,
the mark, when the sandbox expires (empty: no mark), and the program.

And how a shell finds out whether the kernel has killed for memory.
"""

MAKE_READY = r"""
workdir=$1 user=$2 scratch=$3 mark=$4 expires=$5; shift 5
fault() { printf 'fault %s %s\n' "$1" "$(printf %s "$2" | tr '\n' ' ')"; exit 0; }

name=${user%%:*} group= uid= gid= passwd=/etc/passwd groups=/etc/group
case $user in *:*) group=${user#*:} ;; esac
[ -r "$passwd" ] || passwd=/dev/null
[ -r "$groups" ] || groups=/dev/null
while IFS=: read -r n _ u g _ || [ -n "$n" ]; do
    [ "$n" = "$name" ] && { uid=$u gid=$g; break; }
done <"$passwd"
if [ -z "$uid" ]; then
    case $name in '' | *[!0-9]*) fault user "there is no user $name" ;; esac
    uid=$name gid=0
    while IFS=: read -r _ _ u g _ || [ -n "$u" ]; do
        [ "$u" = "$name" ] && { gid=$g; break; }
    done <"$passwd"
fi
if [ -n "$group" ]; then
    gid=
    while IFS=: read -r n _ g _ || [ -n "$n" ]; do
        [ "$n" = "$group" ] && { gid=$g; break; }
    done <"$groups"
    if [ -z "$gid" ]; then
        case $group in *[!0-9]*) fault user "there is no group $group" ;; esac
        gid=$group
    fi
fi

give() { [ "$uid:$gid" = 0:0 ] || chown "$uid:$gid" -- "$1"; }
if [ ! -d "$workdir" ]; then
    told=$({ mkdir -p -- "$workdir" && give "$workdir"; } 2>&1) || fault workdir "$told"
fi
[ -d /tmp ] || { mkdir -p /tmp && chmod 1777 /tmp; }
if [ ! -d "$scratch" ]; then
    # Another one may make it at the same time; what a link leads to is not given away.
    make() { mkdir -m 700 -- "$1" || { [ -d "$1" ] && [ ! -L "$1" ]; }; }
    told=$({ make "$scratch" && give "$scratch"; } 2>&1) || fault scratch "$told"
fi
[ ! -L "$scratch" ] || fault scratch "$scratch is a link"

if [ -n "$expires" ]; then
    [ -s "$mark" ] || printf '%s\n' "$expires" 2>/dev/null >"$mark"
    [ -s "$mark" ] || fault mark "$mark cannot be written"
    read -r expires <"$mark"
fi
printf 'ready %s %s %s\n' "$uid" "$gid" "$expires"
command -v "$1" >/dev/null 2>&1 || { echo "plain there is no $1"; exit 0; }
exec "$@"
"""

COUNT_OOM_KILLS = """\
cd /sys/fs/cgroup && grep -qs '^oom_kill [1-9]' memory.events memory/memory.oom_control
"""
"""Of the second and of the first version of control groups."""
