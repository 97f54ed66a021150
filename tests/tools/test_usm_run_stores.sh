#!/bin/bash
# test_usm_run_stores.sh USM_RUN CC INCLUDE: graphs of usm-run whose inputs come from a Valkey or Redis
# server of the test, and whose results go there; servers that are down, want a password, or have
# something else under the key.  Where the runtime is not the host: the sample.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
cc=$2
include=$3
server=
for program in valkey-server redis-server valkey-check-rdb redis-check-rdb; do
    [ -n "$server" ] || server=$(command -v "$program" || true)
done
cli=$(command -v valkey-cli || command -v redis-cli || true)
if [ -z "$server" ] || [ -z "$cli" ]; then
    echo "skipped: there is neither valkey-server nor redis-server here (Debian: redis-tools)"
    exit 77
fi
unset USM_VALKEY_PASSWORD USM_VALKEY_PASSWORD_FILE
# shellcheck source=tests/tools/says.sh
. "$(dirname "$0")/says.sh"
begin
pid=
trap '[ -z "$pid" ] || kill -9 $pid 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT

start()
{
    printf '%s\n' "port 0" "unixsocket $work/s" 'save ""' "dir $work" "logfile /dev/null" >s.conf
    (exec -a redis-server "$server" "$work/s.conf") &
    pid=$!
    for _ in $(seq 1000); do
        [ ! -S "$work/s" ] || return 0
        sleep 0.01
    done
    fail "the server does not start"
    finish
    exit 1
}

stop()
{
    { kill -9 "$pid"; wait "$pid"; } 2>/dev/null
    rm -f "$work/s"
}

say()
{
    "$cli" -s "$work/s" "$@"
}

# --- the sample: its kernels are OpenCL C ------------------------------------------------------------------
if [ "${USM_TEST_RUNTIME:-host}" != host ]; then
    start
    printf '\220\001\120\230\074\322\117\260\326\226\077\175\050\341\177\162' | say -x set md5:digest >/dev/null
    expect 0 "samples/graphs/md5_server.json" "$root/samples/graphs/md5_server.json" --store "valkey:$work/s"
    says out "3 abc"
    [ "$(say getrange md5:found 4 6)" = abc ] || fail "the result is not in the server"
    finish
    exit
fi

# processData copies its bytes, the last one first; two inputs are read one behind the other.  With DIES it
# ends its process.
cat >kernels.c <<'END'
#include <signal.h>
#include <stdlib.h>
#include <usm/program.h>
void processData(const usm_range *range, void *const *args);
void processData(const usm_range *range, void *const *args)
{
    const unsigned char *in = *(const unsigned char **)args[0];
    unsigned char *out = *(unsigned char **)args[2];
    unsigned size = *(unsigned *)args[1];
    if (getenv("DIES"))
        raise(SIGKILL);
    for (unsigned i = 0; range->begin[0] == 0 && i < size; i++)
        out[i] = in[size - 1 - i];
}
END
"$cc" -shared -fPIC -I"$root/include" -I"$include" -o kernels.so kernels.c || exit 1

# app SIZE: lines are counted on below.
app()
{
    cat <<END
{
    "kernels": {"k": {"library": "kernels.so"}},
    "stores": {"valkey": "$work/s,timeout=500"},
    "nodes": [
        {"name": "in", "kind": "input", "data": [
            {"from": "valkey:job:in"},
            {"text": "!"}]},
        {"name": "turn", "kind": "process", "kernel": "k", "out_size": $1,
         "output": {"to": "valkey:job:out"}}
    ],
    "edges": [["in", "turn"]]
}
END
}

# --- values ------------------------------------------------------------------------------------------
start
app 4 >good.json
say set job:in abc >/dev/null
say config resetstat >/dev/null
expect 0 "a dry run" good.json --dry-run
say info commandstats | grep -q getrange && fail "a dry run reads the value"
[ "$(say exists job:out)" = 0 ] || fail "a dry run writes"
expect 0 "a run" good.json
[ "$(say get job:out)" = '!cba' ] || fail "the result is $(say get job:out)"
[ "$(say ttl job:out)" = -1 ] || fail "the result does not stay"
[ "$(say dbsize)" = 2 ] || fail "something else is left: $(say keys '*')"
# Units have neither the servers nor their passwords: values are read and written here.
say del job:out >/dev/null
expect 0 "a unit, and values in a server" good.json --no-local --on "'$tool' --unit"
[ "$(say get job:out)" = '!cba' ] || fail "the result is $(say get job:out)"
say del job:out >/dev/null
expect 1 "the only unit is killed" good.json --no-local --on "DIES=1 '$tool' --unit"
[ "$(say exists job:out)" = 0 ] || fail "a run that failed writes"
expect 0 "a unit, and servers of the command line" good.json --store valkey:/nowhere --store "valkey:$work/s" \
    --no-local --on "'$tool' --unit"
expect 0 "another place, by the command line" good.json --store valkey:/nowhere --store "valkey:$work/s"

# Several pieces of 1 MiB, and a part of one.
name="a large value"
head -c 5300000 /dev/urandom >large
say -x set job:in <large >/dev/null
app 5300001 >large.json
expect 0 "a large value" large.json
say get job:out | head -c 5300001 >result
python3 -c '
import sys
sys.exit(open("result", "rb").read() != b"!" + open("large", "rb").read()[::-1])' ||
    fail "it is not the input, the last byte first"
[ "$(say dbsize)" = 2 ] || fail "something else is left: $(say keys '*')"
say set job:in abc >/dev/null

# --- mistakes: sed expression | line | words ------------------------------------------------------------
table()
{
    cat <<'END'
s/valkey:job:in"/valkey:job:on"/|6|has no key 'job:on'
s/valkey:job:in"/valkey:job:in", "size": 4/|6|there are 3 bytes, and 'size' says 4
s/valkey:job:in"/valkey:job:list"/|6|WRONGTYPE
s/valkey:job:in"/valkey:job:empty", "size": 1/|6|there are 0 bytes, and 'size' says 1
s/valkey:job:in"/valkey:"/|6|a value of a data server is written as "valkey:KEY"
s/"valkey:job:in"/7/|6|a value of a data server is written as "valkey:KEY"
s/valkey:job:in"/nowhere:job:in"/|6|there is no transport "nowhere"
s/valkey:job:in"/file:job:in"/|6|the transport file keeps no values by name
s/valkey:job:out"/nowhere:job:out"/|9|there is no transport "nowhere"
s/valkey:job:in"/valkey:job:in", "hex": "00"/|6|data is one of file, from, hex, text and numbers, not 2
s,/s\,timeout=500,/none,|6|/none cannot be used: No such file
s/timeout=500/timeout=5/|6|cannot take "timeout=5"
s/"stores": {.*}/"stores": {"valkey": 6379}/|3|'valkey' must be a text
s/"stores": {.*}/"stores": []/|3|'stores' must be an object
END
}

say rpush job:list a >/dev/null
say set job:empty "" >/dev/null
table >mistakes
while IFS='|' read -r change line words <&3; do
    sed "$change" good.json >bad.json
    cmp -s good.json bad.json && fail "'$change' changes nothing"
    expect 1 "$change" bad.json --dry-run
    says err "bad.json:$line: "
    says err "$words"
done 3<mistakes
expect 2 "an option without a name" good.json --store cache1
says err "NAME:SERVERS"
expect 1 "servers that the app names, within a folder" good.json --within "$work"
says err "good.json:6: with --within the servers of 'valkey' must be named on the command line"
expect 0 "servers of the command line, within a folder" good.json --within "$work" --store "valkey:$work/s"

# --- servers that refuse --------------------------------------------------------------------------------
say config set requirepass horse >/dev/null
expect 1 "a password that is missing" good.json --dry-run
says err "good.json:6: "
says err "Set USM_VALKEY_PASSWORD"
USM_VALKEY_PASSWORD=mule expect 1 "a wrong password" good.json --dry-run
says err "good.json:6: "
says err WRONGPASS
says_not err mule
USM_VALKEY_PASSWORD=horse expect 0 "the password" good.json
say -a horse --no-auth-warning acl setuser reader on '>horse' '~job:*' +@read +watch +multi +exec +ping >/dev/null
USM_VALKEY_PASSWORD=horse expect 1 "a user who may only read" good.json --store "valkey:$work/s,user=reader"
says err "good.json:9: "
says err NOPERM
stop
expect 1 "a server that is down" good.json --dry-run
says err "good.json:6: the server $work/s cannot be used: No such file"
[ "$(wc -l <err)" = 2 ] || fail "a line for each place that names the server: $(cat err)"

finish
