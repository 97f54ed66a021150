#!/bin/sh
# debian13.sh [COMMAND...]: runs COMMAND (default: ./run test) in a fresh clone of this checkout, in root's
# home, inside a Debian 13 root.  A second distribution, a second compiler, PoCL 6 with USM; and as in
# most homes nobody else can enter the clone.
#
# The root is made once by debootstrap, from the mirror that this machine uses itself, and kept in
# ${USM_CI_CACHE}/debian13 with what the command installed there, so that a second run starts in
# seconds.  All mounts are made in a mount namespace of their own, and processes live in a PID
# namespace: both are gone when this script is, however it ends.  Needs root; on Debian only, unless
# USM_DEBIAN_MIRROR names a mirror.
#
# USM_DEBIAN13_TREE says which tree COMMAND sees in /root/libusm:
#   clone    (the default) a fresh clone of HEAD; what is not committed is not tested
#   keep     the one that is there, with what was built in it, if it is of the same HEAD; else a clone
#   working  the same, brought to the state of the working tree, new files included
#
# Where `./run ci` has fetched Intel's runtimes, ${USM_CI_CACHE}/intel, they are /opt/intel in there,
# read-only.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

suite=trixie
top=$(cd "$(dirname "$0")/.." && pwd)
cache=${USM_CI_CACHE:-${HOME:-/root}/.cache/usm-ci}
root=$cache/debian13

die()
{
    echo "debian13.sh: $*" >&2
    exit 1
}

. "$top/tests/debian_root.sh"

# --- inside the namespaces (this script calls itself) ----------------------------------------------
if [ "${1:-}" = --make ]; then
    echo "making a Debian 13 root in $root (once, about two minutes)"
    debian_root_make "$suite" "$root" "$cache/debian13.log"
    exit
fi
if [ "${1:-}" = --inside ]; then
    shift
    debian_root_mount "$root"
    ci_cache=
    if [ -d "$cache/intel/lib" ]; then
        mkdir -p "$root/opt/intel"
        mount --bind "$cache/intel" "$root/opt/intel"
        mount -o remount,bind,ro "$root/opt/intel"
        ci_cache=/opt
    fi
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive TERM="${TERM:-dumb}" \
        ${CI:+"CI=$CI"} ${USM_TEST_NO_SKIP:+"USM_TEST_NO_SKIP=$USM_TEST_NO_SKIP"} \
        ${ci_cache:+"USM_CI_CACHE=$ci_cache"} \
        sh -c 'cd /root/libusm && exec "$@"' sh "$@"
fi

# --- outside ----------------------------------------------------------------------------------------
[ "$(id -u)" -eq 0 ] || die "needs root (chroot, mount)"
command -v unshare >/dev/null || die "needs unshare (the package util-linux)"
command -v debootstrap >/dev/null || [ -e "$root/.usm-ready" ] ||
    die "needs debootstrap (the package of that name)"

mkdir -p "$cache"
exec 9>"$cache/debian13.lock"
flock -n 9 || {
    echo "another run uses $root, waiting"
    flock 9
}

# Everything in there ends when unshare does, and unshare when this script is told to.
in_namespaces()
{
    unshare --mount --propagation private --pid --fork --kill-child=KILL "$0" "$@" 9>&- &
    child=$!
    trap 'kill -KILL $child; exit 143' HUP INT TERM
    rc=0
    wait "$child" || rc=$?
    return "$rc"
}

[ -e "$root/.usm-ready" ] || in_namespaces --make

debian_root_machine "$root"

# --- the tree -----------------------------------------------------------------------------------------
tree=$root/root/libusm

in_tree()
{
    where=$1
    shift
    git -c safe.directory='*' -C "$where" "$@"
}

fresh_clone()
{
    rm -rf "$tree"
    git -c safe.directory='*' clone -q --no-hardlinks "$top" "$tree"
}

# The files of tree $1 that are not as committed, or not committed at all.
changed_files()
{
    in_tree "$1" diff --name-only --no-renames HEAD
    in_tree "$1" ls-files --others --exclude-standard
}

# Only what differs is written, so that a build in there has little to do.  Without the times of the
# files: a build must see them as new.
take_working_tree()
{
    { changed_files "$top"; changed_files "$tree"; } | sort -u | while read -r file; do
        if [ ! -e "$top/$file" ]; then
            rm -f "$tree/$file"
        elif ! cmp -s "$top/$file" "$tree/$file"; then
            mkdir -p "$(dirname "$tree/$file")"
            cp --preserve=mode "$top/$file" "$tree/$file"
        fi
    done
}

how=${USM_DEBIAN13_TREE:-clone}
case $how in clone | keep | working) ;; *) die "USM_DEBIAN13_TREE is '$how'" ;; esac
if [ "$how" = clone ] || [ ! -d "$tree/.git" ] ||
    [ "$(in_tree "$tree" rev-parse HEAD)" != "$(in_tree "$top" rev-parse HEAD)" ]; then
    fresh_clone
fi
if [ "$how" = working ]; then
    take_working_tree
elif [ -n "$(in_tree "$top" status --porcelain)" ]; then
    echo "note: what is not committed is not in there"
fi

[ $# -gt 0 ] || set -- ./run test
in_namespaces --inside "$@"
