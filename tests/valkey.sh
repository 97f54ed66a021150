#!/bin/bash
# valkey.sh PROGRAM: the sample out_of_core with its data in Valkey or Redis servers of the test: one server;
# one that is full soon, and the rest on disk; two copies, and one of the servers is killed, once as one of
# two tiers and once as one of two servers of a tier.  What ends leaves no keys.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -eq 1 ] || {
    echo "usage: $0 PROGRAM" >&2
    exit 2
}
program=$1
server=
for name in valkey-server redis-server valkey-check-rdb redis-check-rdb; do
    [ -n "$server" ] || server=$(command -v "$name" || true)
done
cli=$(command -v valkey-cli || command -v redis-cli || true)
if [ -z "$server" ] || [ -z "$cli" ]; then
    echo "skipped: there is neither valkey-server nor redis-server here (Debian: redis-tools)"
    exit 77
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/${USM_TEST_ID:-usm}-valkey.XXXXXX")
pids=
trap 'kill -9 $pids 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT

fail()
{
    echo "valkey.sh: $1" >&2
    cat "$folder/told" >&2
    exit 1
}

# start NAME [LINE OF ITS CONFIGURATION...]: sets $pid; its socket is $folder/NAME.
start()
{
    socket=$folder/$1
    printf '%s\n' "port 0" "unixsocket $socket" 'save ""' "dir $folder" "logfile /dev/null" \
        "${@:2}" >"$folder/$1.conf"
    (exec -a redis-server "$server" "$folder/$1.conf") &
    pid=$!
    pids="$pids $pid"
    for _ in $(seq 1000); do
        [ ! -S "$socket" ] || return 0
        sleep 0.01
    done
    fail "the server $1 does not start"
}

# sample SPILL REPLICAS: its result is right, or it fails.
sample()
{
    USM_SPILL=$1 USM_SPILL_REPLICAS=$2 "$program" transpose --size 64M --limit 24M --quiet \
        >"$folder/told" 2>&1
}

start a
a=$pid
sample "valkey:$folder/a" 1 || fail "one server"
grep -q "tier valkey:" "$folder/told" || fail "nothing went to the server"

start full "maxmemory 16mb"
sample "valkey:$folder/full,quota=1G;file:/var/tmp" 1 || fail "a server that is full soon"
grep -q 'tier file:/var/tmp' "$folder/told" || fail "what found no room did not go to the disk"

left()
{
    "$cli" -s "$folder/$1" dbsize
}

[ "$(left a)" = 0 ] || fail "$(left a) keys are left of a program that has ended"
[ "$(left full)" = 0 ] || fail "$(left full) keys are left on the server that was full"

# spill_and_kill SPILL: the server a dies while the sample is spilling, which is stopped for that.  On a
# machine that is busy the sample may have ended before this script has its turn: then there is another one.
spill_and_kill()
{
    for _ in $(seq 10); do
        rm -f "$folder/a"
        start a
        a=$pid
        (USM_SPILL=$1 USM_SPILL_REPLICAS=2 exec "$program" transpose --size 64M --limit 24M --quiet \
            >"$folder/told" 2>&1) &
        run=$!
        while kill -0 "$run" 2>/dev/null && [ "$(left a)" -lt 40 ]; do
            sleep 0.002
        done
        kill -STOP "$run" 2>/dev/null || true
        { kill -9 "$a"; wait "$a"; } 2>/dev/null || true
        kill -CONT "$run" 2>/dev/null || true
        wait "$run" || fail "a server was killed, and each block had a copy elsewhere: $1"
        [ "$(left b)" = 0 ] || fail "$(left b) keys are left of a program that has ended: $1"
        ! grep -q "the server $folder/a cannot be reached" "$folder/told" || return 0
    done
    fail "nothing is said of the dead server: $1"
}

kill -9 "$a"
start b
spill_and_kill "valkey:$folder/a,timeout=500;valkey:$folder/b,timeout=500"
spill_and_kill "valkey:$folder/a,$folder/b,timeout=500"
