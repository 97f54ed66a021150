# Debian in a folder, for sourcing by sh: tests/debian13.sh and tests/empty_root.sh.  The caller has die().
#
#   debian_root_make SUITE ROOT LOG      debootstrap, from the mirror that this machine uses itself, or
#                                        USM_DEBIAN_MIRROR; ROOT is there when all went well, and only then
#   debian_root_machine ROOT             what the machine's apt needs to reach its mirror, and its resolver
#   debian_root_mount ROOT               what programs expect there; the caller is in a mount namespace of its own
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh

# The mirror this machine's own packages come from.
debian_mirror()
{
    if [ -n "${USM_DEBIAN_MIRROR:-}" ]; then
        echo "$USM_DEBIAN_MIRROR"
        return
    fi
    mirror=
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
    echo "$mirror"
}

debian_root_make()
{
    debian_from=$(debian_mirror)
    rm -rf --one-file-system "$2" "$2.new"
    debootstrap --variant=minbase --include=ca-certificates "$1" "$2.new" "$debian_from" >"$3" 2>&1 || {
        tail -n 20 "$3" >&2
        die "debootstrap failed, $3 tells more"
    }
    : >"$2.new/.usm-ready"
    mv "$2.new" "$2"
}

debian_root_machine()
{
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
    apt-config dump 2>/dev/null |
        grep -E '^Acquire::(https?::Proxy|Check-Valid-Until|Check-Date|Retries)' \
            >"$1/etc/apt/apt.conf.d/90machine" || :
}

debian_root_mount()
{
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs tmpfs "$1/tmp"
}
