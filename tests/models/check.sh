#!/bin/sh
# check.sh: Spin verifies the models of this folder, and finds what each -DPLANTED=N plants.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

if ! command -v spin >/dev/null 2>&1; then
    echo "SKIPPED: spin is not installed (the package spin)"
    exit 77
fi
here=$(cd "$(dirname "$0")" && pwd)
cd "${TMPDIR:-/tmp}" || exit 1
work=$(mktemp -d ./models.XXXXXX) || exit 1
trap 'cd .. && rm -rf "$work"' EXIT
cd "$work" || exit 1

# verify MODEL OPTION...: the number of errors, in $errors.
verify()
{
    model=$1
    shift
    spin "$@" -a "$here/$model.pml" >spin.log 2>&1 && "${CC:-cc}" -O2 -DSAFETY -DCOLLAPSE -o pan pan.c >cc.log 2>&1 ||
        { cat spin.log cc.log; exit 1; }
    ./pan -m100000 >pan.log 2>&1
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
    if grep -q 'max search depth too small\|out of memory' pan.log || [ -z "$errors" ]; then
        cat pan.log
        exit 1
    fi
}

for file in "$here"/*.pml; do
    name=$(basename "$file" .pml)
    verify "$name"
    if [ "$errors" -ne 0 ]; then
        cat pan.log
        echo "FAILED: $name"
        exit 1
    fi
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
    for planted in $(sed -n 's/^ \* -DPLANTED=\([0-9]*\):.*/\1/p' "$file"); do
        verify "$name" -DPLANTED="$planted"
        if [ "$errors" -eq 0 ]; then
            echo "FAILED: $name: what -DPLANTED=$planted plants was not found"
            exit 1
        fi
    done
    echo "$name: $states states, no error; what is planted is found"
done
