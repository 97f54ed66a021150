# says.sh: what tests of the tools say and count; sourced by them, who set `tool` and, unless they begin, the
# folder `work`.
#
#   begin                            enters a folder of the test's own, $work, which goes when the test ends;
#                                    $here is the folder of the test, $root that of the repository
#   expect STATUS NAME ARGUMENT...   runs the tool; its output is in $work/out and $work/err
#   says FILE TEXT, says_not, silent FILE   FILE: out, err or another one in $work
#   pass; fail TEXT                  of the last NAME
#   finish                           the exit status of the test
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh disable=SC2154
passed=0 failed=0 name=''

begin()
{
    here=$(cd "$(dirname "$0")" && pwd)
    # shellcheck disable=SC2034  # not every test uses it
    root=$(dirname "$(dirname "$here")")
    work=$(mktemp -d "${TMPDIR:-/tmp}/usm-test.XXXXXX") || exit 1
    trap 'rm -rf "$work"' EXIT
    trap 'exit 143' HUP INT TERM
    unset USM_POLICY USM_WATTS
    cd "$work" || exit 1
}

pass()
{
    passed=$((passed + 1))
}

fail()
{
    failed=$((failed + 1))
    echo "FAILED: $name: $1"
}

expect()
{
    wanted=$1 name=$2
    shift 2
    "$tool" "$@" >"$work/out" 2>"$work/err"
    status=$?
    if [ $status -eq "$wanted" ]; then
        pass
    else
        fail "exits with $status, not $wanted"
        sed 's/^/    /' "$work/out" "$work/err" | head -n 20
    fi
}

says()
{
    if grep -qF -- "$2" "$work/$1"; then
        pass
    else
        fail "$1 does not say '$2'"
        sed 's/^/    /' "$work/$1" | head -n 20
    fi
}

says_not()
{
    if grep -qF -- "$2" "$work/$1"; then
        fail "$1 says '$2'"
        sed 's/^/    /' "$work/$1" | head -n 20
    else
        pass
    fi
}

silent()
{
    if [ ! -s "$work/$1" ]; then
        pass
    else
        fail "$1 is not empty"
        sed 's/^/    /' "$work/$1" | head -n 20
    fi
}

finish()
{
    echo "$passed checks passed, $failed failed"
    [ "$failed" -eq 0 ]
}
