#!/bin/sh
# with-runtime.sh NAME COMMAND...: runs COMMAND where one runtime of tests/runtimes.sh is all there is.
#
# Exits as COMMAND does; 77 (skipped) when the runtime is not here or COMMAND skips.  With
# USM_TEST_NO_SKIP=1 a skip is a failure, unless a line of tests/allowed_skips.txt names the test
# (USM_TEST_NAME, set by ctest).  COMMAND sees the name of the runtime in USM_TEST_RUNTIME.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/runtimes.sh"

usage()
{
    echo "usage: $0 NAME COMMAND...   (NAME: none $(usm_runtime_names))" >&2
    exit 2
}

[ $# -ge 2 ] || usage
runtime=$1
shift
case " none $(usm_runtime_names) " in *" $runtime "*) ;; *) usage ;; esac

# The reason why this test may be skipped, or 1.
allowed_skip()
{
    while read -r pattern why; do
        case $pattern in '' | '#'*) continue ;; esac
        # shellcheck disable=SC2254  # it is a pattern
        case ${USM_TEST_NAME:-} in $pattern)
            echo "$why"
            return 0
            ;;
        esac
    done <"$tests/allowed_skips.txt"
    return 1
}

# skipped REASON [allowed]
skipped()
{
    echo "SKIPPED: $1"
    if [ "${USM_TEST_NO_SKIP:-0}" = 1 ] && [ "${2:-}" != allowed ]; then
        if why=$(allowed_skip); then
            echo "allowed: $why"
        else
            echo "USM_TEST_NO_SKIP=1 and tests/allowed_skips.txt has no line for '${USM_TEST_NAME:-}'"
            exit 1
        fi
    fi
    exit 77
}

run()
{
    "$@" &
    child=$!
    wait "$child"
    rc=$?
    child=
}

# PoCL 6 stops the program now and then, in about one run of a hundred with many events ("PTHREAD ERROR in
# pocl_...", docs/decisions.md).  What it said is kept for pocl_stopped.
run_on_pocl()
{
    mkfifo "$work/pipe"
    tee "$work/output" <"$work/pipe" &
    tee=$!
    run "$@" >"$work/pipe" 2>&1
    wait "$tee"
}

# PoCL's words, when it stopped a program in which nothing else had failed; or 1.
pocl_stopped()
{
    [ -e "$work/output" ] && ! grep -qE '^not ok|\[FAIL\] [^ ]*: \(' "$work/output" &&
        grep -m 1 'PTHREAD ERROR in pocl_' "$work/output"
}

why=$(usm_runtime_why "$runtime") || skipped "$why"

work=$(mktemp -d "${TMPDIR:-/tmp}/usm-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
child=
# A signal to us is passed on; the folder goes away all the same.
trap '[ -n "$child" ] && kill "$child" 2>/dev/null; exit 143' HUP INT TERM
mkdir "$work/icd" "$work/cwd" "$work/cache"
usm_runtime_env "$runtime" "$work/icd"
USM_TEST_RUNTIME=$runtime
USM_CACHE_DIR=$work/cache # not what an earlier build left in the user's
export USM_TEST_RUNTIME USM_CACHE_DIR
case $runtime in
neo-*) # leaves .aub files where it runs
    case $1 in
    /*) ;;
    */*)
        program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
        shift
        set -- "$program" "$@"
        ;;
    esac
    cd "$work/cwd" || exit 1
    ;;
esac
case $runtime in
pocl | ze-soft) run_on_pocl "$@" ;;
*) run "$@" ;;
esac
if [ "$rc" -ne 0 ] && why=$(pocl_stopped); then
    skipped "PoCL stopped the program: $why" allowed
fi
[ "$rc" -eq 77 ] && skipped "the program says so, above"
exit "$rc"
