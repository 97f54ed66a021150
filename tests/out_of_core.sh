#!/bin/sh
# out_of_core.sh PROGRAM: the sample out_of_core, small: right results with a limit that a fraction of the
# data fits into; in a file; from the file that the run before left.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -eq 1 ] || {
    echo "usage: $0 PROGRAM" >&2
    exit 2
}
program=$1
# Not /tmp: that may be memory, which libusm refuses to spill to.
folder=$(mktemp -d "/var/tmp/${USM_TEST_ID:-usm}-out_of_core.XXXXXX")
trap 'rm -rf "$folder"' EXIT

"$program" --size 96M --limit 24M --quiet --compare mmap
for task in wave transpose difference; do
    "$program" "$task" --size 64M --limit 24M --quiet --no-statistics --file "$folder/$task.raw"
    "$program" "$task" --size 64M --limit 24M --quiet --no-statistics --file "$folder/$task.raw" \
        2>"$folder/told"
    grep -q 'going on at stage' "$folder/told" || {
        echo "$task: the second run did not go on" >&2
        cat "$folder/told" >&2
        exit 1
    }
done
# Another task's file is left alone.
if "$program" wave --size 64M --limit 24M --quiet --file "$folder/transpose.raw" 2>"$folder/told"; then
    echo "wave took transpose's file" >&2
    exit 1
fi
grep -q 'holds' "$folder/told"
