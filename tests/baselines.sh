#!/bin/sh
# baselines.sh [--mpi NAME --launcher PATH] PROGRAM: a baseline of usm-bench gives the right answer,
# and the same to the last bit in however many chunks, told by lines on its standard input.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

launch=''
if [ "${1:-}" = --mpi ]; then
    launch="$(dirname "$0")/mpi/launch.sh --mpi $2 --launcher $4"
    shift 4
fi
[ $# -eq 1 ] || {
    echo "usage: $0 [--mpi NAME --launcher PATH] PROGRAM" >&2
    exit 2
}
program=$1
folder=$(mktemp -d "${TMPDIR:-/tmp}/usm-baselines-XXXXXX")
trap 'rm -rf "$folder"' EXIT
STARPU_HOME=$folder STARPU_SILENT=1 STARPU_NCPU=2
export STARPU_HOME STARPU_SILENT STARPU_NCPU

fail()
{
    echo "$program: $1" >&2
    cat "$folder/told" >&2
    exit 1
}

# same OPTION...: all answers of one job are the same, and the first is the right one (--verify).
same()
{
    printf 'go\ngo 4\ngo 16\ngo 256\ngo 1000\ngo 1\n' >"$folder/lines"
    if [ -n "$launch" ]; then
        # shellcheck disable=SC2086  # a command and its options
        $launch --time 50 --input "$folder/lines" --output "$folder/told" \
            2 "$program" --verify --chunks 2 "$@" || fail "$*: failed"
    else
        timeout -k 5 50 "$program" --verify --chunks 2 "$@" <"$folder/lines" >"$folder/told" 2>&1 ||
            fail "$*: failed"
    fi
    [ "$(grep -c '^ready [a-z0-9_]* chunks=2 answer=' "$folder/told")" -eq 1 ] || fail "$*: not ready"
    for chunks in 2 4 16 256 1000 1; do
        grep -q "chunks=$chunks wall_ms=[0-9.]* cpu_ms=[0-9.]* answer=" "$folder/told" ||
            fail "$*: nothing of $chunks chunks"
    done
    answers=$(sed -n 's/.* answer=//p' "$folder/told" | sort -u)
    [ "$(echo "$answers" | wc -w)" -eq 1 ] || fail "$*: the answers differ"
    echo "$*: $answers"
}

case $program in
*idw*)
    same --points 40 --side 128
    same --points 1 --side 64 # one group of pixels for most of the chunks, or none
    ;;
*md5*)
    same --candidates 200000 # nothing is found
    [ "$answers" = ffffffffffffffff ] || fail "found $answers, which is not there"
    for percent in 0 50 99; do
        same --candidates 200000 --hit $percent
    done
    ;;
*)
    fail "what does it compute?"
    ;;
esac
