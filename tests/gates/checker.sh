#!/bin/sh
# checker.sh PROGRAM PLANTED...: checker.c under valgrind, which must be silent as it is, and must see
# each planted defect.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

if ! command -v valgrind >/dev/null 2>&1; then
    echo "SKIPPED: valgrind is not installed (the package valgrind)"
    exit 77
fi
program=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/run_gate.sh" valgrind -q --error-exitcode=9 --fair-sched=yes "$program" -- \
    'Invalid (read|write) of size 1|depends on uninitialised value' "$@"
