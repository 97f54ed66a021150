#!/bin/bash
# valkey.sh PROGRAM: the sample out_of_core with its data in Valkey or Redis servers of the test: one server;
# one that is full soon, and the rest on disk; one by TLS, where hiredis has that; two copies, and one of the
# servers is killed, as one of two tiers, as one of two servers of a tier, and as a master of a cluster.  What
# ends leaves no keys.
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

# try NAME [LINE OF ITS CONFIGURATION...]: sets $pid; its socket is $folder/NAME.  False: it has ended.
try()
{
    socket=$folder/$1
    printf '%s\n' "port 0" "unixsocket $socket" 'save ""' "dir $folder" "logfile /dev/null" \
        "${@:2}" >"$folder/$1.conf"
    (exec -a redis-server "$server" "$folder/$1.conf") &
    pid=$!
    pids="$pids $pid"
    for _ in $(seq 1000); do
        [ ! -S "$socket" ] || return 0
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.01
    done
    return 1
}

start()
{
    try "$@" || fail "the server $1 does not start"
}

# start_at NAME LINE...: the same at a port that nobody has: $port.  In the lines PORT stands for it, and BUS for
# one more.
start_at()
{
    name=$1
    shift
    for _ in $(seq 20); do
        port=$((16384 + RANDOM % 8192 * 2)) # below those that the system gives to clients
        lines=("${@//PORT/$port}")
        ! try "$name" "bind 127.0.0.1" "${lines[@]//BUS/$((port + 1))}" || return 0
    done
    fail "the server $name does not start at any port"
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

# --- TLS ------------------------------------------------------------------------------------------------------
# certify NAME OPTION...: makes NAME.key and NAME.crt.
certify()
{
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout "$folder/$1.key" \
        -out "$folder/$1.crt" "${@:2}" 2>"$folder/told" || fail "openssl makes no certificate"
}

if ! USM_SPILL=valkey:127.0.0.1:1,tls "$program" transpose --size 64M --limit 24M --quiet >"$folder/told" 2>&1 &&
    grep -q "hiredis has from version 1.0 on" "$folder/told"; then
    echo "not by TLS, which hiredis does not have here"
elif ! command -v openssl >/dev/null; then
    echo "not by TLS, because there is no program openssl here to make certificates"
else
    certify ours -subj /CN=ours
    certify good -CA "$folder/ours.crt" -CAkey "$folder/ours.key" -subj /CN=good -addext subjectAltName=IP:127.0.0.1
    start_at safe "tls-port PORT" "tls-cert-file $folder/good.crt" "tls-key-file $folder/good.key" \
        "tls-ca-cert-file $folder/ours.crt" "tls-auth-clients no"
    SSL_CERT_FILE=$folder/ours.crt sample "valkey:127.0.0.1:$port,tls" 1 || fail "a server by TLS"
    grep -q "tier valkey:" "$folder/told" || fail "nothing went to the server by TLS"
fi

# --- a server is killed ---------------------------------------------------------------------------------------
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

# --- a master of a cluster is killed --------------------------------------------------------------------------
first=0 nodes=''
for n in 0 1 2; do
    start_at "n$n" "port PORT" "cluster-enabled yes" "cluster-config-file n$n.nodes" "cluster-port BUS" \
        "cluster-node-timeout 1000" "cluster-require-full-coverage no"
    nodes="$nodes $port"
    [ $n -ne 1 ] || master=$pid
    "$cli" -s "$folder/n$n" cluster addslotsrange "$first" $((n == 2 ? 16383 : first + 5460)) >/dev/null
    first=$((first + 5461))
done
for other in $nodes; do
    "$cli" -s "$folder/n0" cluster meet 127.0.0.1 "$other" $((other + 1)) >/dev/null
done
for n in 0 1 2; do
    for _ in $(seq 1000); do
        ! "$cli" -s "$folder/n$n" cluster info | grep -q cluster_state:ok || break
        sleep 0.01
    done
done
for _ in $(seq 10); do
    (USM_LOG=info USM_SPILL=valkey:127.0.0.1:${nodes##* },timeout=2000 USM_SPILL_REPLICAS=2 exec "$program" transpose \
        --size 64M --limit 24M --quiet >"$folder/told" 2>&1) &
    run=$!
    while kill -0 "$run" 2>/dev/null && [ "$(left n1)" -lt 20 ]; do
        sleep 0.002
    done
    ! kill -STOP "$run" 2>/dev/null || break # else it has ended already
    wait "$run" || fail "copies in a cluster"
done
{ kill -9 "$master"; wait "$master"; } 2>/dev/null || true
kill -CONT "$run" 2>/dev/null || fail "the sample never had 20 blocks on a master"
wait "$run" || fail "a master of a cluster was killed, and each block had a copy on another"
grep -q "is lost: receiving" "$folder/told" || fail "nothing is said of the dead master"
for n in 0 2; do
    [ "$(left n$n)" = 0 ] || fail "$(left n$n) keys are left on a master of the cluster"
done
