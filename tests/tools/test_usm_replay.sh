#!/bin/sh
# test_usm_replay.sh USM_REPLAY PYTHON: usm-replay as users and programs meet it, over the null
# device.  Counts are checked, times are not.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

here=$(cd "$(dirname "$0")" && pwd)
tool=$1
python=$2
data=$(dirname "$here")/data/replay
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-replay-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
unset USM_DEVICE_SELECTOR USM_POOL USM_NULL_MEMORY
# shellcheck source=tests/tools/says.sh
. "$here/says.sh"

# json EXPRESSION: true of the JSON in $work/out, as `o`; `p` is its first pool, `q` its last.
json()
{
    if "$python" -c "
import json, sys
o = json.load(open(sys.argv[1])); p = o['pools'][0]; q = o['pools'][-1]
sys.exit(not ($1))" "$work/out"; then
        pass
    else
        fail "not $1 in"
        sed 's/^/    /' "$work/out" | head -n 60
    fi
}

# --- formats --------------------------------------------------------------------------------------

expect 0 rmm "$data/rmm.csv" --pool direct --pool arena --json
json "o['log']['format'] == 'RMM log' and o['log']['threads'] == 2 and o['log']['failed'] == 1"
json "p['allocations'] == 5 and p['live_peak'] == 4096 + 524288 + 2097152 and p['failed'] == 0"
json "p['driver_allocs'] == 5 and p['driver_frees'] == 5 and p['reuse'] == 0"
json "q['pool'] == 'arena' and q['driver_allocs'] < 5 and p['ns_pair'] > 0"
json "o['log']['live_peak'] == p['live_peak'] and o['log']['damage'] is None"

expect 0 'rmm, threads' "$data/rmm.csv" --pool direct --threads --json
json "p['allocations'] == 5 and p['driver_allocs'] == 5 and p['ns_pair'] > 0"

if ldd "$tool" 2>/dev/null | grep -q libjansson; then
    expect 0 umpire "$data/umpire_events.json" --pool direct --json
    json "o['log']['format'] == 'Umpire log' and p['allocations'] == 2 and p['live_peak'] == 66560"
    expect 0 'umpire until 2021' "$data/umpire_replay.json" --pool direct --json
    json "p['allocations'] == 3 and p['live_peak'] == 134217728 + 774 and o['log']['unmatched'] == 0"
    "$python" - "$data/umpire_events.json" "$work/cut.json" <<'END'
import sys
text = open(sys.argv[1]).read()
open(sys.argv[2], "w").write(text[:text.index('"pointer":"0x7f0000020000"},') + 20])
END
    expect 0 'umpire, cut' "$work/cut.json" --pool direct --json
    says err 'line 8: it is no JSON'
    json "p['allocations'] == 2 and o['log']['left_out'] == 1"
else
    expect 1 'umpire without jansson' "$data/umpire_events.json" --pool direct
    says err 'libjansson-dev'
fi

"$python" "$here/make_trace.py" small "$work/small.trace"
expect 0 trace "$work/small.trace" --pool direct --json
json "o['log']['format'] == 'libusm trace' and p['allocations'] == 4"
json "p['live_peak'] == 3 * 1048576 + 4096 and o['log']['failed'] == 1"
says err '5 events were lost'
expect 0 'trace, one pool' "$work/small.trace" --pool direct --only-pool 1 --json
json "p['allocations'] == 3 and p['live_peak'] == 3 * 1048576"

"$python" "$here/make_trace.py" many "$work/many.trace"
expect 0 'trace, many' "$work/many.trace" --pool arena --pool direct --repeat 1 --json
json "p['allocations'] == 300000 and p['driver_allocs'] < 1000 and q['driver_allocs'] == 300000"

# --- out of memory ------------------------------------------------------------------------------------

expect 3 'a small device' "$data/rmm.csv" --pool direct --device-mem 2M
says out 'direct: out of memory at line 9: 2 MiB wanted, 516 KiB live'
expect 3 'a small device, JSON' "$data/rmm.csv" --pool direct --device-mem 2M --json
json "p['failed'] == 1 and p['out_of_memory']['at'] == 9 and p['out_of_memory']['size'] == 2097152"
json "p['out_of_memory']['live'] == 4096 + 524288"
expect 0 'just enough' "$data/rmm.csv" --pool direct --device-mem 2564K

# --- a budget, nothing is replayed ---------------------------------------------------------------------

expect 0 'within the budget' "$work/small.trace" --budget 4M --fail
says out 'device memory of gpu "0" stays within the budget of 4 MiB: at most 3.0 MiB live'
expect 1 'over the budget' "$work/small.trace" --budget 2M --fail
says out 'device memory of gpu "0" exceeds the budget of 2 MiB by 1.0 MiB: 3.0 MiB live at event 2'
says out '3.0 MiB in 2 blocks: 0x401000 < 0x402000'
expect 0 'over the budget, without --fail' "$work/small.trace" --budget 2M
expect 1 'over the budget, JSON' "$work/small.trace" --budget 1M --fail --json
if "$python" -c "
import json, sys
o = json.load(open(sys.argv[1])); m, = o['memories']
sys.exit(not (not o['fits'] and m['live_peak'] == 3 * 1048576 + 1024 and m['reserved_peak'] == 8 << 20
              and m['holders'] == [{'name': '0x401000 < 0x402000', 'bytes': m['live_peak'], 'blocks': 2}]))" \
    "$work/out"; then
    pass
else
    fail "the peak and who held it"
fi
"$python" - "$work/small.trace" "$work/sampled.trace" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[48:56] = (1 << 20).to_bytes(8, "little") # a stack for each MiB on average, instead of all
open(sys.argv[2], "wb").write(data)
END
expect 1 'sampled stacks' "$work/sampled.trace" --budget 2M --fail
says out '3.9 MiB in 3 blocks: 0x401000 < 0x402000' # 1 MiB / 0.632 + 2 MiB / 0.865
expect 1 'host memory' "$work/small.trace" --budget 4095 --fail --kind host
says out '4 KiB in 1 block: (no call site: usm-prof record --stacks=all has them)'
expect 0 'one pool' "$work/small.trace" --budget 1 --fail --only-pool 2
says out 'there is no device memory in it'
expect 1 'a log of others' "$data/rmm.csv" --budget 2M --fail
says out 'exceeds the budget of 2 MiB'
expect 0 'a log of others that fits' "$data/rmm.csv" --budget 2564K --fail
expect 1 'a budget for no log' "$work/none.csv" --budget 2M
says err 'No such file'
expect 2 'a bad budget' "$data/rmm.csv" --budget lots
expect 2 '--fail alone' "$data/rmm.csv" --fail
expect 2 'a budget and a pool' "$data/rmm.csv" --budget 2M --pool slab

# --- bad input -------------------------------------------------------------------------------------

{
    cat "$data/rmm.csv"
    echo '1201,10:32:16:403160,allocate,0x7f2a00400000,xyz,0x0'
    echo '1201,10:32:16:403170,grow,0x7f2a00400000,1,0x0'
    echo '1201,10:32:16:403180,free,0x7f2aff000000,1,0x0'
    printf '1201,10:32:16:403190,allo'
} >"$work/bad.csv"
expect 0 'bad lines' "$work/bad.csv" --pool direct --json
says err 'line 13: the size is not a number; replayed is what can be read (more lines are left out)'
json "p['allocations'] == 5 and o['log']['left_out'] == 3 and o['log']['unmatched'] == 1"

head -c 700 "$work/small.trace" >"$work/cut.trace"
"$tool" "$work/cut.trace" --pool direct >"$work/out" 2>"$work/err"
name='a trace that is cut'
says err 'cut.trace'

echo 'hello' >"$work/text"
expect 1 'no log' "$work/text"
says err 'is not a log known here'
: >"$work/nothing"
expect 1 'an empty file' "$work/nothing"
expect 1 'no file' "$work/none.csv"
says err 'No such file'
echo 'Thread,Time,Action,Pointer,Size,Stream' >"$work/names.csv"
expect 1 'names only' "$work/names.csv"
says err 'there is no allocation in it'
expect 1 'no such pool' "$data/rmm.csv" --pool nosuch
says out 'nosuch could not be tried'
# --- buffers larger than memory: policies are checked by their hits, not by time -----------------------

# spill EXPRESSION: true of the JSON in $work/out; `a` are the policies of the last phase, by name.
spill()
{
    if "$python" -c "
import json, sys
o = json.load(open(sys.argv[1]))
a = {p['policy']: p for p in o['phases'][-1]['policies']}
l, n = a['libusm'], a['no_guesses']
sys.exit(not ($1))" "$work/out"; then
        pass
    else
        fail "not $1 in"
        sed 's/^/    /' "$work/out" | head -n 60
    fi
}

expect 0 'a pass' --spill seq --frames 64 --blocks 512 --json
spill "l['accesses'] == 512 and l['reads'] == 512 and l['wasted'] == 0 and l['guessed'] >= 505"
spill "all(p['hits'] == 0 for p in a.values()) and n['reads'] == 512"
expect 0 'a cyclic pass' --spill R+R+R+R --frames 64 --blocks 512 --json
spill "a['lru']['hits'] == 0 and a['opt']['hits'] in (63, 64) and a['mru']['hits'] in (63, 64)"
spill "0.7 * 64 <= l['hits'] <= 64 and n['hits'] >= 0.85 * 64 and l['wasted'] <= 5"
expect 0 'random' --spill random --frames 64 --blocks 512 --json
spill "l['reads'] <= 1.02 * n['reads'] and l['hits'] <= a['opt']['hits']"
expect 0 'zipf' --spill zipf --frames 64 --blocks 512 --json
spill "l['hits'] >= a['clock']['hits'] and l['reads'] <= 1.02 * n['reads']"
expect 0 'a scan beside a hot set' --spill hot+scan --frames 64 --blocks 1024 --json
spill "l['hits'] >= 0.9 * a['opt']['hits'] and l['hits'] > 1.1 * a['lru']['hits']"
expect 0 'what is overwritten is not read' --spill W1+W2 --frames 64 --blocks 512 --json
spill "l['reads'] == 0 and 512 - 64 <= l['writes'] <= 512"
expect 0 'the suite' --spill W1+R+X+W2+M+S --frames 16 --blocks 128
says out 'OPT'
says out 'W2'
for one in reverse strided streams tour rmw; do
    expect 0 "$one" --spill $one --frames 16 --blocks 128 --json
    spill "l['accesses'] == l['hits'] + l['guessed'] + l['misses'] and l['reads'] >= l['reads_ahead']"
    spill "a['opt']['hits'] >= max(p['hits'] for p in a.values())"
done
expect 0 'tiny memory' --spill cyclic --frames 1 --blocks 8 --json
spill "o['frames'] == 1"
expect 0 'names of workloads' --spill list
says out 'hot+scan'
expect 1 'neither a name nor a trace' --spill nosuch
says err 'not a name of a workload'
expect 1 'a trace without spilling' --spill "$work/small.trace"
says err 'nothing in it is about spilling'
expect 2 'a bad number of frames' --spill seq --frames none
expect 2 'a log beside a workload' --spill seq "$data/rmm.csv"

expect 2 'two logs' "$data/rmm.csv" "$data/rmm.csv"
expect 2 'no log named'
expect 2 'a bad size' "$data/rmm.csv" --device-mem lots
expect 2 'a bad kind' "$data/rmm.csv" --kind stack
expect 2 'a bad option' --frobnicate
expect 0 help --help
says out 'usage: usm-replay'
expect 0 version --version

finish
