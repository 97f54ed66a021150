#!/bin/sh
# valgrind.sh LEAKS PROGRAM...: valgrind over plain programs on the host backend, and the proof that it
# catches what is planted in LEAKS (leaks.c): heap memory that is lost, a read behind a block.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

if ! command -v valgrind >/dev/null 2>&1; then
    echo "SKIPPED: valgrind is not installed (the package valgrind)"
    exit 77
fi
leaks=$1
here=$(cd "$(dirname "$0")" && pwd)
# Blocks that the library keeps for its life are reachable: only what is lost counts.
check="valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
--errors-for-leak-kinds=definite --fair-sched=yes"

for program; do
    echo "== $(basename "$program")"
    $check "$program" || {
        echo "FAILED: exit status $?"
        exit 1
    }
done
# shellcheck disable=SC2086
exec "$here/run_gate.sh" $check "$leaks" -- 'definitely lost|Invalid read' --planted=heap --planted=overrun
