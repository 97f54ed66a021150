#!/bin/sh
# far_memory.sh MPI LAUNCHER FAR_MEMORY [USM_MEMD]: the sample far_memory, small, as a job of MPI
# (openmpi or mpich): the right result with three lenders; with a lender that is killed in the middle,
# where MPI lets a job go on; with usm-memd in the same mpirun, if there is one.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -ge 3 ] || {
    echo "usage: $0 MPI LAUNCHER FAR_MEMORY [USM_MEMD]" >&2
    exit 2
}
mpi=$1
launcher=$2
sample=$3
memd=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
told=$(mktemp "${TMPDIR:-/tmp}/usm-far_memory-XXXXXX")
trap 'rm -f "$told"' EXIT

fail()
{
    echo "$1" >&2
    cat "$told" >&2
    exit 1
}

# job WHAT [OPTION OF launch.sh...] RANKS PROGRAM...: it ends by itself, with the right result.
job()
{
    what=$1
    shift
    rc=0
    "$here/mpi/launch.sh" --mpi "$mpi" --launcher "$launcher" --time 60 --output "$told" "$@" || rc=$?
    [ $rc -ne 77 ] || {
        cat "$told"
        exit 77
    }
    # Open MPI's launcher may end with other figures than 0 after a rank was killed.
    case $what in
    killed*) [ $rc -ne 124 ] || fail "far_memory, $what: it did not end" ;;
    *) [ $rc -eq 0 ] || fail "far_memory, $what: failed with $rc" ;;
    esac
    grep -q '^Right: 4096 of 4096 rows' "$told" || fail "far_memory, $what: no right result"
    # The grid was where it should be: 64 MiB do not fit into 8.
    grep -Eq '^  fill .* [0-9]{2,} MiB  ' "$told" || fail "far_memory, $what: nothing was lent"
}

small='--limit 8M --times 8 --steps 3'
patient='env USM_JOB_LEASE=20000' # nobody dies, however busy the machine is
# shellcheck disable=SC2086  # lists
{
    job 'three lenders' 4 $patient "$sample" $small
    if [ "$mpi" = openmpi ]; then
        job 'killed in the middle' --recovery 4 "$sample" $small --kill 2
        grep -q 'rank 2 was killed .* no access failed' "$told" || fail "far_memory: who was killed?"
    fi
    if [ -n "$memd" ]; then
        job 'memory servers' 1 $patient "$sample" $small --memd \
            : 1 $patient USM_SPILL_DOMAIN=a "$memd" --lend 80M \
            : 1 $patient USM_SPILL_DOMAIN=b "$memd" --lend 80M
    fi
}
