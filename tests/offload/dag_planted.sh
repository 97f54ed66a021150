#!/bin/sh
# dag_planted.sh PROGRAM: a dependency that is forgotten is found, and the smallest part that shows it is
# printed.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

output=$("$1" --seeds 400 --planted 2>&1)
rc=$?
if [ "$rc" -ne 1 ] || ! printf '%s\n' "$output" | grep -q '^# the smallest part of seed'; then
    printf '%s\n' "$output" | tail -n 20
    echo "the planted defect was not found"
    exit 1
fi
printf '%s\n' "$output"
