#!/bin/sh
# planted.sh PROGRAM OPTION...: with each OPTION the program has a planted defect, which it must find:
# it exits with 1 and says by which seed.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

program=$1
shift
found=0
for defect in "$@"; do
    output=$("$program" --seed 7 --seeds 20 "$defect" 2>&1)
    if [ $? -ne 1 ] || ! printf '%s\n' "$output" | grep -q '# seed [0-9]*, operation'; then
        printf '%s\n' "$output" | tail -n 20
        echo "$defect was not found"
        exit 1
    fi
    found=$((found + 1))
done
echo "$found planted defects found"
[ "$found" -gt 0 ]
