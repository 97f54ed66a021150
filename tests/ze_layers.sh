#!/bin/sh
# ze_layers.sh BUILD: libusm's programs on the software Level Zero driver, watched by the layers of the
# Level Zero loader that is installed here.
#
#   parameter validation   refuses bad arguments before the driver sees them (all loaders): the
#                          conformance suite passes with it as without
#   leak checker           counts creations and destructions, and prints a balance at exit (from 1.20.3):
#                          programs that end properly have none, a planted leak must show
#   events checker         prints a warning when events wait for each other in a circle, or are used
#                          after their end (from 1.18)
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -eq 1 ] || {
    echo "usage: $0 BUILD" >&2
    exit 2
}
tests=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
bin=$build/bin
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-layers.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

USM_TEST_BINARY_DIR=$build
USM_PLUGIN_PATH=$build/lib
USM_TEST_SOURCE_DIR=$(dirname "$tests")
USM_TEST_NO_SKIP=1 # what has to be here is here
USM_TEST_NAME=conformance@ze-soft # whose skips are allowed as in ctest,
USM_TEST_TABLE=$work/table.tsv    # and whose record stays
export USM_TEST_BINARY_DIR USM_PLUGIN_PATH USM_TEST_SOURCE_DIR USM_TEST_NO_SKIP
export USM_TEST_NAME USM_TEST_TABLE

complain()
{
    echo "FAILED: $*"
    failed=$((failed + 1))
}

# watched LAYER PROGRAM [ARG...]: its output is in $work/out, its status is ours.
watched()
{
    layer=$1
    shift
    env ZE_ENABLE_VALIDATION_LAYER=1 "$layer=1" \
        "$tests/with-runtime.sh" ze-soft timeout -k 5 240 "$@" >"$work/out" 2>&1
}

passes()
{
    rc=0
    watched "$@" || rc=$?
    name=$1
    shift
    program=$1
    shift
    if [ "$rc" -ne 0 ]; then
        tail -n 40 "$work/out"
        complain "${program##*/} $* with $name: exit status $rc"
        return 1
    fi
    echo "ok      ${program##*/} $* with $name"
}

# The balance of what is created and destroyed is printed, and is even.
balanced()
{
    passes ZEL_ENABLE_BASIC_LEAK_CHECKER "$@" || return 0
    if ! grep -q 'zeContextCreate = *[1-9]' "$work/out"; then
        tail -n 40 "$work/out"
        complain "$* printed no balance, or used no context"
    elif grep 'LEAK = ' "$work/out"; then
        complain "$* leaves things behind"
    fi
}

quiet_events()
{
    passes ZEL_ENABLE_EVENTS_CHECKER "$@" || return 0
    if grep -A 3 '^Warning: ' "$work/out" | head -n 20 | grep .; then
        complain "$*: the events checker warns"
    fi
}

loader=$(for dir in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib; do
    [ ! -e "$dir/libze_loader.so.1" ] || readlink -f "$dir/libze_loader.so.1"
done | head -n 1)
echo "loader: ${loader##*/}"

# --- is the layer there at all? ------------------------------------------------------------------------
rc=0
LD_DEBUG=files LD_DEBUG_OUTPUT=$work/ld watched ZE_ENABLE_PARAMETER_VALIDATION \
    "$bin/usm-info" --list || rc=$?
[ "$rc" -eq 0 ] || complain "usm-info --list: exit status $rc"
cat "$work/out"
cat "$work"/ld.* | grep -q 'libze_validation_layer.*generating link map' ||
    complain "the validation layer was not loaded"

# --- parameter validation ------------------------------------------------------------------------------
for program in conformance leaks malloc_to_usm_after; do
    passes ZE_ENABLE_PARAMETER_VALIDATION "$bin/$program" || :
done
passes ZE_ENABLE_PARAMETER_VALIDATION "$bin/idw" --size 128 --check=full --quiet --out none || :

# --- leaks -----------------------------------------------------------------------------------------------
case ${loader##*.so.} in
1.[0-9] | 1.[0-9].* | 1.1[0-9].*) echo "no leak checker, no events checker in this loader" ;;
*)
    balanced "$bin/leaks"
    balanced "$bin/stress"
    balanced "$bin/idw" --size 128 --check=full --quiet --out none
    watched ZEL_ENABLE_BASIC_LEAK_CHECKER "$bin/leaks" --planted=context || :
    if grep -q 'LEAK = ' "$work/out"; then
        echo "ok      a context that is not destroyed is caught: $(grep -m1 'LEAK = ' "$work/out")"
    else
        complain "a context that is not destroyed was not caught"
    fi

    # It keeps its own tables without a lock: programs of one thread only.
    quiet_events "$bin/leaks"
    quiet_events "$bin/malloc_to_usm_after"
    quiet_events "$bin/idw" --size 128 --check=full --quiet --out none
    ;;
esac

[ "$failed" -eq 0 ] || {
    echo "$failed failed"
    exit 1
}
echo "the layers have nothing to say"
