#!/bin/sh
# check_runner.sh PROGRAM: the conformance runner names each planted defect of planted.c, in its output, in
# the record and by its exit status, and goes on after it.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

work=$(mktemp -d "${TMPDIR:-/tmp}/usm-runner.XXXXXX")
trap 'rm -rf "$work"' EXIT
USM_TEST_TABLE=$work/table.tsv
export USM_TEST_TABLE
unset USM_TEST_NO_SKIP

# runs STATUS ARG...: the program with ARG... exits with STATUS; its lines without what varies are in out.
runs()
{
    status=$1
    shift
    rc=0
    "$program" "$@" >"$work/all" 2>&1 || rc=$?
    sed -n 's/ (.*)$//; s/after [0-9]* s$/in time/; /^ok\|^not ok\|passed/p' "$work/all" >"$work/out"
    [ "$rc" -eq "$status" ] || {
        cat "$work/all"
        echo "FAILED: $program $*: exit status $rc, not $status"
        exit 1
    }
}

program=$1
cat >"$work/want" <<'END'
ok 1 planted/a_passes
not ok 2 planted/b_fails
not ok 3 planted/c_crashes # died: signal 11
ok 4 planted/d_passes
not ok 5 planted/e_exits # died: exit status 0
ok 6 planted/f_skips # SKIP no moon
not ok 7 planted/g_hangs # hangs: no end in time
ok 8 planted/h_has_the_last_tests_memory_taken_back
not ok 9 planted/i_crashes_alone # died: signal 9
ok 10 planted/j_dies_at_its_exit
not ok 10 planted/j_dies_at_its_exit # died: exit status 3
# 3 passed, 6 failed, 1 skipped
END
runs 1
diff "$work/want" "$work/out"

cat >"$work/want" <<'END'
FAILED b_fails
FAILED c_crashes crashed
FAILED e_exits crashed
FAILED g_hangs crashed
FAILED i_crashes_alone crashed
FAILED j_dies_at_its_exit crashed
PASSED a_passes
PASSED d_passes
PASSED h_has_the_last_tests_memory_taken_back
PASSED j_dies_at_its_exit
SKIPPED f_skips
SKIPPED f_skips no moon
END
awk -F '\t' '{ print $1, $3 ($4 == "" ? "" : " " $4) }' "$work/table.tsv" | LC_ALL=C sort >"$work/out"
diff "$work/want" "$work/out"

runs 0 --each-alone 'planted/[adj]*' # a crash at exit is expected of such a driver
runs 77 'planted/f*'
runs 2 'planted/none'
USM_TEST_NO_SKIP=1
export USM_TEST_NO_SKIP
runs 1 'planted/f*' 'planted/a*'
echo "the runner names every planted defect"
