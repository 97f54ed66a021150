#!/bin/sh
# check_leftovers.sh: does tests/with-runtime.sh find what a test leaves behind, and remove it?  Each kind
# is planted.  Also: PoCL's own words skip a test, and a failure beside them does not.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/runtimes.sh"
. "$tests/leftovers.sh"
USM_TEST_NAME=planted
export USM_TEST_NAME
USM_TEST_LEFTOVER_POLLS=5 # what is planted does not end by itself
export USM_TEST_LEFTOVER_POLLS
checks=0

# expect STATUS PATTERN RUNTIME SCRIPT: with-runtime.sh ends with STATUS and prints PATTERN ('' : nothing).
expect()
{
    output=$("$tests/with-runtime.sh" "$3" sh -c "$4" 2>&1 </dev/null)
    rc=$?
    checks=$((checks + 1))
    if [ -z "$2" ]; then
        [ -z "$output" ] && found=yes || found=no
    else
        printf '%s\n' "$output" | grep -q -e "$2" && found=yes || found=no
    fi
    if [ "$rc" -ne "$1" ] || [ "$found" = no ]; then
        printf 'with-runtime.sh %s sh -c "%s"\nstatus %d, expected %d; output, expected "%s":\n%s\n' \
            "$3" "$4" "$rc" "$1" "$2" "$output"
        exit 1
    fi
}

expect 0 '' none 'true'
expect 3 '' none 'exit 3'
expect 1 'LEFT BEHIND: .*/tmp/one' none ': >"$TMPDIR/one"'
expect 1 'LEFT BEHIND: .*/tmp/[.]two (a folder: three' none 'mkdir "$TMPDIR/.two"; : >"$TMPDIR/.two/three"'
expect 1 'LEFT BEHIND: .*/xdg/usm' none 'mkdir "$XDG_CACHE_HOME/usm"'
expect 1 'LEFT BEHIND: /var/tmp/usm-test' none ': >"/var/tmp/$USM_TEST_ID.disk"'
expect 3 'planted left behind' none ': >"$TMPDIR/one"; exit 3'
expect 1 'planted left behind' none ': >"$TMPDIR/one"; exit 77'
# A process that is about to become another program has no environment for a moment.
expect 1 'LEFT BEHIND: process [0-9]*: sleep 1001' none 'setsid sleep 1001 >/dev/null 2>&1 & sleep 0.2'
expect 0 '' none 'setsid sleep 0.3 >/dev/null 2>&1 &'
# Not in /dev/shm itself: a test that ends at this moment would be told to have left it.
USM_TEST_SHM=$(mktemp -d "${TMPDIR:-/tmp}/shm.XXXXXX")
export USM_TEST_SHM
trap 'rm -rf "$USM_TEST_SHM"' EXIT
shm=$USM_TEST_SHM
expect 1 "LEFT BEHIND: $shm/vader_segment.planted" none ": >$shm/vader_segment.planted"
[ ! -e "$shm/vader_segment.planted" ] || exit 1
# What another program has made meanwhile is its own business, whatever it is.
expect 0 '' none "mkdir $shm/other; : >$shm/other.file"
[ -d "$shm/other" ] && [ -e "$shm/other.file" ] || exit 1
expect 0 '' none ": >$shm/vader_segment.planted; rm $shm/vader_segment.planted"

# A test that is killed together with its with-runtime.sh, as CTest does at a timeout.
USM_TEST_BINARY_DIR=/nowhere/$$ "$tests/with-runtime.sh" none \
    sh -c 'setsid sleep 1002 & : >"$TMPDIR/one"; kill -KILL "$PPID"; exec sleep 1003' >/dev/null 2>&1 </dev/null
output=$(usm_leftovers_of_killed "/nowhere/$$")
for part in 'planted was killed' 'sleep 1002' 'sleep 1003' 'tmp/one'; do
    checks=$((checks + 1))
    printf '%s\n' "$output" | grep -qF "$part" || {
        printf 'of a test that was killed, "%s" is not named:\n%s\n' "$part" "$output"
        exit 1
    }
done
usm_leftovers_of_killed "/nowhere/$$" || exit 1

if usm_runtime_why pocl >/dev/null; then
    USM_TEST_NO_SKIP=1
    export USM_TEST_NO_SKIP
    words='PTHREAD ERROR in pocl_update_event_finished():'
    expect 77 "SKIPPED: PoCL stopped the program: $words" pocl "echo '$words'; exit 134"
    expect 134 'not ok' pocl "echo 'not ok 1 planted'; echo '$words'; exit 134"
    expect 0 "$words" pocl "echo '$words'"
fi
echo "$checks checks passed"
