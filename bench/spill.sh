#!/bin/sh
# spill.sh BUILD [OPTION...]: `usm-bench spill` as an ordinary user, who may lock 8 MiB of memory.
#
# Root becomes `nobody` for it, and leaves it a memory control group to run workers in.  SYCL's rows come
# from a second run as the caller when nobody cannot read SYCL's folder: they lock nothing.  Others run
# it as they are.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -ge 1 ] || {
    echo "usage: $0 BUILD [OPTION...]" >&2
    exit 2
}
build=$(cd "$1" && pwd)
shift
bench=$build/bin/usm-bench
group=
home=

# A folder of control groups that nobody may make groups in; nothing where there is none.
delegate()
{
    if [ -e /sys/fs/cgroup/memory/cgroup.procs ]; then
        group=/sys/fs/cgroup/memory/usm-bench-$$
    elif [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        group=/sys/fs/cgroup/usm-bench-$$
        echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || :
    fi
    [ -n "$group" ] && mkdir "$group" 2>/dev/null || {
        group=
        return 0
    }
    chown -R nobody "$group"
    USM_BENCH_CGROUP=$group
    export USM_BENCH_CGROUP
}

# Drivers keep what they compile below the home, and some fail without one.
give_home()
{
    home=$(mktemp -d)
    chown nobody "$home"
}

clean_up()
{
    [ -z "$home" ] || rm -rf "$home"
    [ -z "$group" ] || rmdir "$group" 2>/dev/null || :
}

as_nobody()
{
    HOME=$home setpriv --reuid nobody --regid nogroup --clear-groups \
        prlimit --memlock=8388608:8388608 "$@"
}

if [ "$(id -u)" -ne 0 ]; then
    "$bench" spill "$@"
    exit
fi
trap clean_up EXIT
delegate
give_home
as_nobody "$bench" spill "$@"
case " $* " in
*' --only '* | *' --json '*) ;;
*)
    sycl=${USM_BENCH_SYCL_DIR:-$(sed -n 's/^USM_BENCH_SYCL_DIR:PATH=//p' "$build/CMakeCache.txt")}
    [ ! -e "$sycl/lib/libsycl.so" ] ||
        as_nobody test -r "$sycl/lib/libsycl.so" || {
        echo
        "$bench" spill "$@" --only lives
    }
    ;;
esac
