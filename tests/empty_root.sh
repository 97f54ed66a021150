#!/bin/sh
# empty_root.sh [-v FROM:TO]... COMMAND...: runs COMMAND in a Debian 12 in which nothing is installed but what every
# Debian has, as root, in /root, which nobody else can enter: what a new user finds.
#
# A root is made once by debootstrap and kept in ${USM_CI_CACHE}/debian12; COMMAND works in a copy, which is
# removed.  -v shows the folder FROM as TO in there, read-only.  Mounts and processes are gone when this
# script is, however it ends.  Needs root, and Debian's mirror.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

tests=$(cd "$(dirname "$0")" && pwd)
cache=${USM_CI_CACHE:-${HOME:-/root}/.cache/usm-ci}

die()
{
    echo "empty_root.sh: $*" >&2
    exit 1
}
. "$tests/debian_root.sh"

if [ "${1:-}" = --inside ]; then # this script calls itself
    root=$2
    shift 2
    debian_root_mount "$root"
    while [ "$1" = -v ]; do
        mkdir -p "$root${2#*:}"
        mount --bind "${2%%:*}" "$root${2#*:}"
        mount -o remount,bind,ro "$root${2#*:}"
        shift 2
    done
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        TERM="${TERM:-dumb}" ${CI:+"CI=$CI"} sh -c 'cd && exec "$@"' sh "$@"
fi

[ "$(id -u)" -eq 0 ] || die "needs root (chroot, mount)"
[ $# -gt 0 ] || die "which command?"
mkdir -p "$cache"
exec 9>"$cache/debian12.lock"
flock 9
if [ ! -e "$cache/debian12/.usm-ready" ]; then
    command -v debootstrap >/dev/null || die "needs debootstrap (the package of that name)"
    echo "making a Debian 12 root in $cache/debian12 (once, about two minutes)"
    debian_root_make bookworm "$cache/debian12" "$cache/debian12.log"
fi
work=$(mktemp -d "$cache/empty.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
cp -a "$cache/debian12" "$work/root"
exec 9>&-
debian_root_machine "$work/root"

unshare --mount --propagation private --pid --fork --kill-child=KILL "$0" --inside "$work/root" "$@" &
child=$!
trap 'kill -KILL $child; exit 143' HUP INT TERM
rc=0
wait "$child" || rc=$?
exit "$rc"
