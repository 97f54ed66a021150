#!/bin/sh
# with-runtime.sh NAME COMMAND...: runs COMMAND where one runtime of tests/runtimes.sh is all there is, and
# sees to it that COMMAND leaves nothing behind (tests/leftovers.sh).
#
# Exits as COMMAND does; 77 (skipped) when the runtime is not here or COMMAND skips; 1 when all went well
# but files or processes are left, which it names.  With USM_TEST_NO_SKIP=1 a skip is a failure, unless a
# line of tests/allowed_skips.txt names the test (USM_TEST_NAME, set by ctest).
#
# COMMAND sees: the name of the runtime in USM_TEST_RUNTIME; folders of its own in TMPDIR, USM_CACHE_DIR
# XDG_CACHE_HOME and XDG_RUNTIME_DIR (below the caller's TMPDIR); USM_TEST_ID, unique, for the names of what it has to
# make elsewhere; and for a program of a build folder, build/release/bin/test_x, the folders that CTest
# names: USM_PLUGIN_PATH, USM_TEST_BINARY_DIR, USM_TEST_SOURCE_DIR.  From a terminal COMMAND runs in the
# foreground, so that it may be a debugger.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/runtimes.sh"
. "$tests/leftovers.sh"

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

# run COMMAND...: its exit status in rc.  What it leaves running is ended, so that nothing holds its output.
run()
{
    if [ -t 0 ]; then
        TMPDIR=$work/tmp USM_TEST_ID=$id "$@"
        rc=$?
    else
        TMPDIR=$work/tmp USM_TEST_ID=$id "$@" &
        child=$!
        wait "$child"
        rc=$?
        child=
    fi
    usm_leftovers_processes "$id" || left=1
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
    [ -e "$work/output" ] && ! grep '^not ok' "$work/output" | grep -qv '# died: signal 6 ' &&
        grep -m 1 'PTHREAD ERROR in pocl_' "$work/output"
}

# By hand, with a program of a build folder: what CTest would say of the folders.
[ -n "${USM_TEST_BINARY_DIR:-}" ] || for word in "$@"; do
    [ -e "${word%/bin/*}/CMakeCache.txt" ] || continue
    USM_TEST_BINARY_DIR=$(cd "${word%/bin/*}" && pwd)
    USM_TEST_SOURCE_DIR=${tests%/*}
    USM_PLUGIN_PATH=${USM_PLUGIN_PATH:-$USM_TEST_BINARY_DIR/lib}
    export USM_TEST_BINARY_DIR USM_TEST_SOURCE_DIR USM_PLUGIN_PATH
    break
done

why=$(usm_runtime_why "$runtime") || skipped "$why"

work=$(mktemp -d "${TMPDIR:-/tmp}/usm-test.XXXXXX") || exit 1
id=${work##*/}
echo "$$ ${USM_TEST_NAME:--} ${USM_TEST_BINARY_DIR:--}" >"$work/owner"
trap 'rm -rf "$work"' EXIT
child=''
left=0
# A signal to us is passed on; processes and files go away all the same.
ended()
{
    [ -n "$child" ] && kill "$child" 2>/dev/null
    usm_leftovers_processes "$id"
    usm_leftovers_files "$work"
    exit 143
}
trap 'ended >/dev/null' HUP INT TERM
# Tests that become another user get to their files, as in /tmp.
chmod 755 "$work"
mkdir -m 755 "$work/icd" "$work/cwd" "$work/cache" "$work/tmp" "$work/xdg"
mkdir -m 700 "$work/run"
usm_runtime_env "$runtime" "$work/icd"
USM_TEST_RUNTIME=$runtime
USM_CACHE_DIR=$work/cache # not what an earlier build left in the user's
XDG_CACHE_HOME=$work/xdg
XDG_RUNTIME_DIR=$work/run # monitor pages of processes that are killed
export USM_TEST_RUNTIME USM_CACHE_DIR XDG_CACHE_HOME XDG_RUNTIME_DIR
# PoCL compiles a kernel for a second, so its cache outlives the test: build/pocl-cache, for all presets, or
# in a build folder elsewhere.
if [ -z "${POCL_CACHE_DIR:-}" ]; then
    POCL_CACHE_DIR=${USM_TEST_BINARY_DIR:-${tests%/*}/build/release}
    case $POCL_CACHE_DIR in "${tests%/*}"/build/*) POCL_CACHE_DIR=${tests%/*}/build ;; esac
    POCL_CACHE_DIR=$POCL_CACHE_DIR/pocl-cache
    export POCL_CACHE_DIR
fi
case $runtime in
neo-*) # leaves .aub files where it runs
    case $1 in
    /*) ;;
    */*)
        path=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
        shift
        set -- "$path" "$@"
        ;;
    esac
    cd "$work/cwd" || exit 1
    ;;
esac
usm_leftovers_before
case $runtime in
pocl* | ze-soft)
    if [ -t 0 ]; then
        run "$@"
    else
        run_on_pocl "$@"
    fi
    ;;
*) run "$@" ;;
esac
usm_leftovers_files "$work" || left=1
if [ "$rc" -ne 0 ] && why=$(pocl_stopped); then
    skipped "PoCL stopped the program: $why" allowed
fi
if [ "$left" -ne 0 ]; then
    echo "FAILED: ${USM_TEST_NAME:-$*} left behind what is named above"
    [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ] || exit 1
fi
[ "$rc" -eq 77 ] && skipped "the program says so, above"
exit "$rc"
