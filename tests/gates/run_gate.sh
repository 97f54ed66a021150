#!/bin/sh
# run_gate.sh PROGRAM [ARG...] -- PATTERN PLANTED...: a gate that proves itself.
#
# PROGRAM ARG... must pass.  Then, with each PLANTED argument, it must fail, and what it prints must
# match PATTERN (an extended regular expression): a gate that lets its planted defect through, or that
# fails for another reason, catches nothing.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

command=
quote()
{
    printf "'%s' " "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    command="$command$(quote "$1")"
    shift
done
if [ $# -lt 3 ]; then
    echo "usage: $0 PROGRAM [ARG...] -- PATTERN PLANTED..." >&2
    exit 2
fi
pattern=$2
shift 2

echo "== as it is"
eval "$command"
rc=$?
if [ $rc -ne 0 ]; then
    echo "FAILED: exit status $rc"
    exit 1
fi
for planted; do
    echo "== with $planted, which must be caught"
    output=$(eval "$command $(quote "$planted")" 2>&1)
    rc=$?
    if [ $rc -eq 0 ]; then
        printf '%s\n' "$output" | tail -n 20
        echo "FAILED: $planted was not caught"
        exit 1
    fi
    if ! printf '%s\n' "$output" | grep -Eq -- "$pattern"; then
        printf '%s\n' "$output" | head -n 40
        echo "FAILED: $planted ended with status $rc, but nothing matches: $pattern"
        exit 1
    fi
    echo "caught, exit status $rc: $(printf '%s\n' "$output" | grep -E -m1 -- "$pattern")"
done
