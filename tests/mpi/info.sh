#!/bin/sh
# info.sh MPI LAUNCHER USM_INFO PROGRAM: what is told of a job of three ranks: the table of "usm-info
# --job", its JSON, and the launcher that would survive more, in the log of PROGRAM (far_cases).
#
# The last line is "ok ..." or "not ok ...".  Called by tests/mpi/CMakeLists.txt, and people.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

here=$(cd "$(dirname "$0")" && pwd)
mpi=$1 launcher=$2 tool=$3 program=$4
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-job-info.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM

fail()
{
    echo "not ok info: $1"
    sed 's/^/    /' "$work/out" "$work/said"
    exit 1
}

# start [NAME=VALUE...] COMMAND...: what the ranks write is in $work/out
start()
{
    env "$@" </dev/null >"$work/said" 2>&1
    rc=$?
    [ $rc -ne 77 ] || {
        cat "$work/said"
        exit 77
    }
    [ $rc -eq 0 ] || fail "it ended with status $rc: $*"
}
launch="$here/launch.sh --mpi $mpi --launcher $launcher --time 60 --output $work/out"

# shellcheck disable=SC2086  # it has words
start USM_SPILL_LEND=64M $launch 3 "$tool" --job
[ "$(grep -c '^  server [ *]  *up  .* 64 MiB  *0 B' "$work/out")" -eq 3 ] || fail 'a table of three rows'
grep -q '^this launch survives no death' "$work/out" || fail 'it says what it survives'

# shellcheck disable=SC2086
start USM_SPILL_LEND=64M $launch 3 "$tool" --job --json
if command -v python3 >/dev/null; then
    python3 -c "import json, sys
job = json.load(open(sys.argv[1], encoding='utf-8'))['job']
sys.exit(not (job['size'] == 3 and [m['lends'] for m in job['members']] == [64 << 20] * 3))" \
        "$work/out" 2>>"$work/said" || fail 'JSON with three members'
fi

# shellcheck disable=SC2086
start $launch 3 "$program" content
case $mpi in
openmpi)
    more='mpirun --enable-recovery'
    "$launcher" --version 2>/dev/null </dev/null | grep -q 'Open MPI) 5\|prterun' && more='mpirun --with-ft ulfm'
    ;;
*) more='srun --mpi=pmi2 --kill-on-bad-exit=0' ;;
esac
grep -qF "this launch survives no death" "$work/out" || fail 'a warning that it survives no death'
grep -qF "to survive more: $more ..." "$work/out" || fail "a warning with the launcher: $more"
echo "ok info $mpi"
