#!/bin/sh
# ipc_samples.sh PIPELINE GRADIENTS: the samples ipc_pipeline and ipc_gradients, small: right results;
# a worker that is killed is named, and the rest go on or stop; nobody outlives the first process.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -eq 2 ] || {
    echo "usage: $0 PIPELINE GRADIENTS" >&2
    exit 2
}
pipeline=$1
gradients=$2
told=$(mktemp "${TMPDIR:-/tmp}/usm-ipc_samples-XXXXXX")
trap 'rm -f "$told"' EXIT

# limited COMMAND...: its standard streams end with it, whatever becomes of its children.
limited()
{
    timeout -k 5 60 "$@" </dev/null >"$told" 2>&1
}

fail()
{
    echo "$1" >&2
    cat "$told" >&2
    exit 1
}

# Right results, with the fewest workers and with more than there are slots.
for workers in 1 4; do
    limited "$pipeline" --workers $workers --batches 5 --size 20000 --steps 8 ||
        fail "ipc_pipeline, $workers workers: failed"
    grep -q 'bit by bit' "$told" || fail "ipc_pipeline, $workers workers: no verdict"
done
for workers in 1 2 5; do
    limited "$gradients" --workers $workers --size 1000 --size 300K --rounds 2 --no-mpi ||
        fail "ipc_gradients, $workers workers: failed"
    grep -q "to the last bit in $workers workers" "$told" ||
        fail "ipc_gradients, $workers workers: no verdict"
done

# Killed in the middle of each way; the first rank too, who tells the results.
for way in star all-to-all ring; do
    limited "$gradients" --workers 4 --size 64K --rounds 4 --way $way --kill 2@1 --kill 0@2 --no-mpi ||
        fail "ipc_gradients, $way, two killed: failed"
    for rank in 0 2; do
        grep -Eq "(rank|member|worker)s? [0-9, and]*\\b$rank\\b.* go on" "$told" ||
            fail "ipc_gradients, $way: rank $rank is not named"
    done
    grep -q 'to the last bit in 2 workers' "$told" || fail "ipc_gradients, $way: no sum of the rest"
done
if limited "$pipeline" --workers 3 --batches 6 --size 20000 --kill 2; then
    fail "ipc_pipeline: right without worker 2?"
fi
grep -Eq '^owner: .*\b2\b' "$told" || fail "ipc_pipeline: worker 2 is not named"
grep -q 'process 2 was killed by signal 9' "$told" || fail "ipc_pipeline: who died?"

# Their parent is killed: nobody is left.
"$gradients" --workers 3 --size 1M --rounds 64 --size 8M --no-mpi </dev/null >"$told" 2>&1 &
parent=$!
sleep 0.5
children=$(cat "/proc/$parent/task/$parent/children")
[ -n "$children" ] || fail "it ended before it could be killed"
kill -9 "$parent"
wait "$parent" 2>/dev/null || :
for tries in 1 2 3 4 5 6 7 8 9 10; do
    left=
    for child in $children; do
        # A process that is a zombie waits for init alone.
        grep -Eq '^State:.*[RSDT] ' "/proc/$child/status" 2>/dev/null && left="$left $child"
    done
    [ -n "$left" ] || exit 0
    sleep 0.$tries
done
fail "left over:$left"
