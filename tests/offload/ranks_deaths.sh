#!/bin/sh
# ranks_deaths.sh MPI LAUNCHER PROGRAM LAUNCHES: launches over ranks that lose one in the middle
# (ranks_deaths.c), as many jobs as it takes; each has a seed of its own, which is printed.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u
mpi=$1 launcher=$2 program=$3 launches=$4
launch=$(dirname "$0")/../mpi/launch.sh
ranks=7 each=5 how=die recovery=--recovery
# MPICH's jobs end with the first rank that dies; there one stands still, and comes back.
[ "$mpi" = openmpi ] || ranks=4 how=stop recovery=
export USM_HOST_THREADS=1

seed=${USM_TEST_SEED:-$(date +%s)}
done=0
while [ "$done" -lt "$launches" ]; do
    # shellcheck disable=SC2086  # an option, or none
    "$launch" --mpi "$mpi" --launcher "$launcher" --yield --verdict $recovery --time 80 \
        "$ranks" "$program" "$how" "$seed" "$each" || exit
    done=$((done + each))
    seed=$((seed + 1))
done
