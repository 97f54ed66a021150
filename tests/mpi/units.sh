#!/bin/sh
# units.sh MPI LAUNCHER USM_RUN CC INCLUDE: usm-run --on a real MPI job of two ranks, which are one unit.
# Without MPI, and with ranks that are killed: tests/tools/test_usm_run_units.sh.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
mpi=$1
launcher=$2
tool=$3
cc=$4
include=$5
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-mpi-units.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
# shellcheck source=tests/tools/says.sh
. "$root/tests/tools/says.sh"
cd "$work" || exit 1
# shellcheck source=tests/tools/units_app.sh
. "$root/tests/tools/units_app.sh"

options=
if [ "$mpi" = openmpi ]; then
    options="--oversubscribe --bind-to none"
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    OMPI_MCA_btl_vader_backing_directory=$work OMPI_MCA_btl_sm_backing_directory=$work
    OMPI_MCA_mpi_yield_when_idle=1
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM PRTE_MCA_rmaps_default_mapping_policy
    export OMPI_MCA_btl_vader_backing_directory OMPI_MCA_btl_sm_backing_directory OMPI_MCA_mpi_yield_when_idle
fi
# Each waits for the other: rank 0 for a launch of rank 1.
job="timeout -k 5 60 '$launcher' $options -n 1 env AWAITS=gate RAN=ran $unit"
job="$job : -n 1 env DIES_AT=1 SIGNAL=0 GATE=gate RAN=ran $unit"
same 0 "a job of two ranks" app.json --no-local --on "$job" --progress
says err ": 50 launches, 100003 bytes sent, 4096 came back"
says err "rescheduled=0"
says_not err "--unit: rank"
says ran 0
says ran 1

finish
