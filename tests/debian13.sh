#!/bin/sh
# debian13.sh [COMMAND...]: runs COMMAND (default: ./run test) in a fresh clone of this checkout inside
# a Debian 13 root.  A second distribution, a second compiler, PoCL 6 with USM.
#
# The root is made once by debootstrap, from the mirror that this machine uses itself, and kept in
# ${USM_CI_CACHE}/debian13 with what the command installed there, so that a second run starts in
# seconds.  All mounts are made in a mount namespace of their own, and processes live in a PID
# namespace: both are gone when this script is, however it ends.  Needs root; on Debian only, unless
# USM_DEBIAN_MIRROR names a mirror.  What is not committed is not tested.
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

# --- inside the namespaces (this script calls itself) ----------------------------------------------
if [ "${1:-}" = --make ]; then
    echo "making a Debian 13 root in $root (once, about two minutes)"
    rm -rf --one-file-system "$root" "$root.new"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$root.new" "$2" \
        >"$cache/debian13.log" 2>&1 || {
        tail -n 20 "$cache/debian13.log" >&2
        die "debootstrap failed, $cache/debian13.log tells more"
    }
    : >"$root.new/.usm-ready"
    mv "$root.new" "$root"
    exit
fi
if [ "${1:-}" = --inside ]; then
    shift
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/tmp"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive TERM="${TERM:-dumb}" \
        ${CI:+"CI=$CI"} ${USM_TEST_NO_SKIP:+"USM_TEST_NO_SKIP=$USM_TEST_NO_SKIP"} \
        sh -c 'cd /libusm && exec "$@"' sh "$@"
fi

# --- outside ----------------------------------------------------------------------------------------
[ "$(id -u)" -eq 0 ] || die "needs root (chroot, mount)"
command -v unshare >/dev/null || die "needs unshare (the package util-linux)"
command -v debootstrap >/dev/null || [ -e "$root/.usm-ready" ] ||
    die "needs debootstrap (the package of that name)"

# The mirror this machine's own packages come from.
mirror=${USM_DEBIAN_MIRROR:-}
if [ -z "$mirror" ]; then
    # shellcheck disable=SC1091
    (. /etc/os-release && [ "$ID" = debian ]) || die "not on Debian: set USM_DEBIAN_MIRROR"
    for list in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/*.sources; do
        [ -r "$list" ] && mirror=$(sed -n 's/^URIs:[[:space:]]*\([^[:space:]]*\).*/\1/p;' "$list" |
            head -n 1)
        [ -n "$mirror" ] && break
    done
    [ -n "$mirror" ] || mirror=$(sed 's/\[[^]]*\]//' /etc/apt/sources.list 2>/dev/null |
        awk '$1 == "deb" { print $2; exit }')
    [ -n "$mirror" ] || die "no mirror in /etc/apt: set USM_DEBIAN_MIRROR"
fi

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

[ -e "$root/.usm-ready" ] || in_namespaces --make "$mirror"

# What the machine's own apt needs to reach its mirror, and its resolver.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
apt-config dump 2>/dev/null |
    grep -E '^Acquire::(https?::Proxy|Check-Valid-Until|Check-Date|Retries)' \
        >"$root/etc/apt/apt.conf.d/90machine" || :

rm -rf "$root/libusm"
git -c safe.directory='*' clone -q --no-hardlinks "$top" "$root/libusm"
[ -z "$(git -C "$top" status --porcelain)" ] || echo "note: what is not committed is not in there"

[ $# -gt 0 ] || set -- ./run test
in_namespaces --inside "$@"
