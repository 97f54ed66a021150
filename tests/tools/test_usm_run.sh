#!/bin/sh
# test_usm_run.sh USM_RUN CC INCLUDE: usm-run as users meet it: mistakes with their lines and words,
# results, the dot text, a run that is killed and goes on.  Where the runtime is the host, kernels are
# native ones of a library that is compiled here; elsewhere the samples' OpenCL C.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
cc=$2
include=$3
# shellcheck source=tests/tools/says.sh
. "$(dirname "$0")/says.sh"
begin

# --- kernels ----------------------------------------------------------------------------------------
# processData sums its bytes; with SLOW it takes its time over it, so that a run can be killed in the middle.
if [ "${USM_TEST_RUNTIME:-host}" = host ]; then
    cat >kernels.c <<'END'
#include <stdio.h>
#include <time.h>
#include <usm/program.h>
#define IN   (*(unsigned char **)args[0])
#define SIZE (*(unsigned *)args[1])
#define USE(f) void f(const usm_range *range, void *const *args); \
    void f(const usm_range *range, void *const *args)
USE(processData)
{
    unsigned sum = 0;
    if (range->begin[0] == 0) {
        for (unsigned i = 0; i < SIZE; i++)
            sum += IN[i];
#ifdef SLOW
        nanosleep(&(struct timespec){0, 40000000}, NULL);
#endif
#ifdef COUNTER /* the package has drawn 4 J, at the end of each launch */
        FILE *counter = fopen(COUNTER, "r+"); /* never empty: it may be read now */

        fputs("5000000\n", counter);
        fclose(counter);
#endif
        **(unsigned **)args[2] = sum;
    }
}
USE(partitionData)
{
    unsigned parts = *(unsigned *)args[2], size = *(unsigned *)args[4];
    unsigned char *out = *(unsigned char **)args[3];
    if (range->begin[0] == 0)
        for (unsigned i = 0; i < parts * size; i++)
            out[i] = IN[i % SIZE];
}
USE(mergeData)
{
    unsigned *out = *(unsigned **)args[3];
    if (range->begin[0] == 0) {
        *out = 0;
        for (unsigned i = 0; i < SIZE / 4; i++)
            *out += ((unsigned *)IN)[i];
    }
}
END
    "$cc" -shared -fPIC -I"$root/include" -I"$include" -o kernels.so kernels.c || exit 1
    "$cc" -DSLOW -shared -fPIC -I"$root/include" -I"$include" -o slow.so kernels.c || exit 1
    "$cc" -DCOUNTER='"powercap/intel-rapl:0/energy_uj"' -shared -fPIC -I"$root/include" -I"$include" \
        -o draws.so kernels.c || exit 1
    code='"library": "kernels.so"'
    slow_code='"library": "slow.so"'
    is_native=1
else
    cat >kernels.cl <<'END'
__kernel void processData(__global const uchar *in, uint in_size, __global uint *out, uint out_size)
{
    uint sum = 0, x = in_size;
#ifdef SLOW
    for (uint i = 0; i < 30000000; i++)
        x = x * 1664525u + 1013904223u;
#endif
    for (uint i = 0; i < in_size; i++)
        sum += in[i];
    *out = x == 1 ? sum + 1 : sum;
}
__kernel void partitionData(__global const uchar *in, uint in_size, uint parts, __global uchar *out,
                            uint part_size)
{
    for (uint i = 0; i < parts * part_size; i++)
        out[i] = in[i % in_size];
}
__kernel void mergeData(__global const uint *in, uint in_size, uint parts, __global uint *out,
                        uint out_size)
{
    uint sum = 0;
    for (uint i = 0; i < in_size / 4; i++)
        sum += in[i];
    *out = sum;
}
END
    code='"file": "kernels.cl"'
    slow_code='"file": "kernels.cl", "options": "-DSLOW"'
    is_native=0
fi

# app NAME CODE: a right one, in lines that are counted on below.
app()
{
    cat >"$1" <<END
{
    "kernels": {"k": {$2}},
    "nodes": [
        {"name": "in", "kind": "input", "data": [{"text": "abc"}, {"hex": "01 02"},
            {"numbers": [1, -1], "type": "i16"}]},
        {"name": "cut", "kind": "partition", "kernel": "k", "part_size": 9, "parts": 30},
        {"name": "each", "kind": "expandable", "kernel": "k", "out_size": 4},
        {"name": "sum", "kind": "merge", "kernel": "k", "out_size": 4, "output": {"print": "u32"}}
    ],
    "edges": [
        ["in", "cut"],
        ["cut", "each"],
        ["each", "sum"]
    ]
}
END
}

app good.json "$code"
app slow.json "$slow_code"

# --- mistakes: sed expression | line | words --------------------------------------------------------
table()
{
    cat <<'END'
s/"kind": "merge"/"kind": "merger"/|8|a kind is input, process, partition, merge or expandable
s/"name": "each"/"name": "cut"/|7|two nodes with the name 'cut'; the other is in line 6
s/"out_size": 4}/"out_sizes": 4}/|7|has no field 'out_sizes'; there are name, kind, kernel
s/"out_size": 4}/"out_size": 0}/|7|'out_size' must be a whole number from 1 to 4294967295
s/"out_size": 4}/"out_size": "4"}/|7|whole number from 1 to 4294967295, not a text
s/"out_size": 4}/"work": 1}/|7|node 'each' has no 'out_size'
s/"parts": 30/"parts": 2.5/|6|'parts' must be a whole number
s/"parts": 30/"parts": 30, "local": 8, "global": [3, 3]/|6|'local' has 1 numbers and 'global' 2
s/"parts": 30/"parts": 30, "global": [3, 3, 3, 3]/|6|'global' must have 1 to 3 numbers, not 4
s/"kernel": "k", "part_size"/"kernel": "q", "part_size"/|6|there is no kernel 'q'
s/"kernel": "k", "part_size"/"part_size"/|6|node 'cut' has no 'kernel'
s/"hex": "01 02"/"hex": "01 0"/|4|'hex' has 3 digits: two make a byte
s/"hex": "01 02"/"hex": "0x"/|4|'x' is not a hexadecimal digit
s/"hex": "01 02"/"file": "nowhere"/|4|'nowhere' cannot be read: No such file
s/\[1, -1\]/[1, 40000]/|5|this is no i16
s/"i16"/"i17"/|5|there is no type 'i17'
s/, "type": "i16"//|5|'numbers' needs a 'type'
s/\["cut", "each"\]/["cut", "eahc"]/|12|there is no node 'eahc'
s/\["cut", "each"\]/["cut"]/|12|an edge must be
s/\["cut", "each"\]/["cut", "each"], ["each", "cut"]/|12|makes a cycle: cut -> each -> cut
s/\["cut", "each"\]/["cut", "each"], ["cut", "each"]/|12|two edges from 'cut' to 'each'
s/\["cut", "each"\]/["cut", "each"], ["each", "in"]/|12|'in' is an input
s/\["cut", "each"\]/["in", "each"]/|7|nothing to unroll it by
s/\["each", "sum"\]/["sum", "each"]/|13|node 'sum' has an output, so nobody can read it
s/\["in", "cut"\],//|6|nobody gives input to node 'cut'
s/{"print": "u32"}/{"print": "u31"}/|8|'print' is text, hex, or a type of numbers
s/{"print": "u32"}/{}/|8|an output needs a 'file', 'to' or 'print'
s/"name": "sum", //|8|a node has no 'name'
s/"edges"/"egdes"/|10|an app has no field 'egdes'; there are name, kernels, stores, nodes, edges
s/"kernels[.][a-z]*"/"nothing"/|2|'nothing' cannot be read: No such file
s/"k": {.*}}/"k": {"options": "-w"}}/|2|kernel 'k' has no code
s/"parts": 30/"parts": 30, "parts": 31/|6|duplicate object key
s/"parts": 30}/"parts": 30/|7|expected
s/"out_size": 4}/"out_size": 4, "function": "nothing"}/|2|nothing
END
}

table >mistakes
while IFS='|' read -r change line words <&3; do
    sed "$change" good.json >bad.json
    cmp -s good.json bad.json && fail "'$change' changes nothing"
    expect 1 "$change" bad.json --dry-run
    says err "bad.json:$line: "
    says err "$words"
    says_not out digraph
done 3<mistakes

expect 1 "no such file" nowhere.json
says err "usm-run: 'nowhere.json' cannot be read: No such file"
printf '[1]' >bad.json
expect 1 "no object" bad.json
says err "bad.json:1: an app must be an object, not an array"
sed 's/"merge"/"merger"/; s/"hex": "01 02"/"hex": "zz"/' good.json >bad.json
expect 1 "two mistakes" bad.json
says err "bad.json:4: 'z' is not a hexadecimal digit"
says err "bad.json:8: node 'sum' is of kind 'merger'"
expect 2 "no file"
says err "which file is to be run?"
expect 2 "a wrong option" good.json --quick
expect 1 "a wrong policy" good.json --policy quickest
says err "adaptive, fastest, static, energy"
expect 2 "a policy without its number" good.json --policy energy:
expect 2 "a cap without watts" good.json --policy energy
says err "energy:300"
USM_WATTS='*=50' expect 1 "a cap that nobody keeps" good.json --policy energy:20
says err "no member keeps under the cap of 20 W: the least draws 50 W"
expect 1 "a wrong device" good.json --device nothing:7
expect 0 "help" --help
says out "usage: usm-run"

# --- results ----------------------------------------------------------------------------------------
expect 0 "a dry run" good.json --dry-run --dot
says out '"cut" -> "each.29"'
says_not out xlabel
expect 0 "a run" good.json --progress
# 9 bytes: 97 98 99 1 2 1 0 255 255, thirty times
says out 24240
says err "100 %"
says err "rescheduled=0"
expect 0 "a run with its dot text" good.json --dot --policy fastest --no-prefetch
says err 24240
says_not out 24240
says out xlabel
[ "$(head -c 7 out)" = digraph ] || fail "--dot writes more than the graph"
USM_WATTS='*=50' USM_LOG=info expect 0 "a run under a cap" good.json --policy energy:60
says out 24240
says err "draws 50.0 W, as USM_WATTS says"
sed 's/{"print": "u32"}/{"file": "sum.bin", "print": ["u16", "hex"]}/' good.json >file.json
expect 0 "outputs" file.json
says out "24240 0000"
[ "$(od -An -tu4 sum.bin | tr -d ' ')" = 24240 ] || fail "sum.bin"

# --- kinds of nodes that users add ---
mkdir types
cat >types/cut_and_join.json <<'END'
{"kernels": ["work", "cut", "join"], "inputs": 1, "outputs": 1,
 "partition": {"kernel": "cut", "part_size": 9, "parts": 30},
 "process": {"kernel": "work", "out_size": 4},
 "merge": {"kernel": "join", "out_size": 4}}
END
cat >typed.json <<END
{
    "kernels": {"k": {$code}, "p": {$code, "function": "processData"}}, "types": "types",
    "nodes": [
        {"name": "in", "kind": "input", "data": [{"text": "abc"}, {"hex": "01 02"},
            {"numbers": [1, -1], "type": "i16"}]},
        {"name": "sum", "kind": "cut_and_join", "kernels": ["p", "k", "k"]},
        {"name": "half", "kind": "process", "kernel": "k", "out_size": 4, "output": {"print": "u32"}}
    ],
    "edges": [["in", "sum"], ["sum", "half"]]
}
END
expect 0 "a type of the user" typed.json
says out 270 # the bytes of 24240, added up by processData
expect 0 "what it becomes" typed.json --dry-run --dot
says out '"sum.partition" -> "sum.process.29"'
says out '"sum.merge" -> "half"'
sed 's/"p", "k", "k"/"k", "k"/' typed.json >bad.json
expect 1 "too few kernels" bad.json --dry-run
says err "bad.json:6: node 'sum' has 2 kernels; the type 'cut_and_join' needs 3"
sed 's/\["in", "sum"\], //' typed.json >bad.json
expect 1 "too few inputs" bad.json --dry-run
says err "bad.json:6: node 'sum' has 0 inputs; its type says 1"
sed 's/cut_and_join/cut_and_jion/' typed.json >bad.json
expect 1 "a type that is not there" bad.json --dry-run
says err "bad.json:6: 'types/cut_and_jion.json' cannot be read: No such file"
sed 's/"kernel": "work"/"kernel": "wrok"/' types/cut_and_join.json >types/wrong.json
sed 's/cut_and_join/wrong/' typed.json >bad.json
expect 1 "a type without its kernel" bad.json --dry-run
says err "bad.json:6: type 'wrong': the 'kernel' of its process is none of its 'kernels'"
printf '{"kernels": ["a"],' >types/wrong.json
expect 1 "a type that is no JSON" bad.json --dry-run
says err "bad.json:6: type 'wrong': line 1 of types/wrong.json: "

# --- folders to resume from ---
expect 0 "a run that keeps its blocks" good.json --resume made/for/it
: >no_folder
expect 1 "a folder that cannot be made" good.json --resume no_folder/in/it
says err "usm-run: "
says_not err "good.json"
[ ! -e made ] || fail "folders that were made stay"
mkdir mine
USM_HOOKS='fault:launch@1+' expect 1 "a run in vain" good.json --resume mine/for/it
[ ! -e mine/for ] && [ -d mine ] || fail "folders made in vain stay"

# --- killed, and on again ---------------------------------------------------------------------------
# On a machine that is busy a run may end before this script has its turn: then another one is begun.
tries=0
while [ ! -d kept ] && [ $tries -lt 10 ]; do
    "$tool" slow.json --resume kept >out 2>err &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(find kept -name '2.*' 2>/dev/null | wc -l)" -lt 3 ]; do
        sleep 0.05
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    tries=$((tries + 1))
done
name="a run that is killed"
if [ -d kept ]; then
    sed 's/"text": "abc"/"text": "abd"/' slow.json >other.json
    expect 1 "another graph in its folder" other.json --resume kept
    says err "another graph"
    expect 0 "the run goes on" slow.json --resume kept
    says out 24240
    says_not err "resumed=0"
    says err "resumed="
    [ ! -e kept ] || fail "the folder stays"
else
    fail "the run ended, or never began, before it was killed"
    sed 's/^/    /' out err
fi

# --- energy: a folder stands for /sys/class/powercap ------------------------------------------------------
# counter UJ
counter()
{
    echo "$1" >powercap/intel-rapl:0/energy_uj
}

expect 0 "energy without counters" good.json --progress --powercap none
says err "energy: /sys/class/powercap has no counters of packages; USM_WATTS tells what devices draw"
says_not err "energy of nodes"
USM_WATTS='*=50' expect 0 "energy by USM_WATTS" good.json --progress --powercap none
says err " J (USM_WATTS)"
says err "energy of nodes: cut "
says_not err "USM_WATTS tells"
says_not err idle
mkdir -p powercap/intel-rapl:0/energy_uj
echo package-0 >powercap/intel-rapl:0/name
echo 65532610987 >powercap/intel-rapl:0/max_energy_range_uj
expect 0 "a counter that cannot be read" good.json --progress --powercap powercap
says err "energy: /sys/class/powercap cannot be read by this user; USM_WATTS tells what devices draw"
rmdir powercap/intel-rapl:0/energy_uj
counter 1000000
expect 0 "a counter at rest" good.json --progress --powercap powercap
says err " 0.000 J (powercap), idle 0.000 J"
expect 0 "no energy unless it is asked for" good.json --powercap powercap
says_not err energy
expect 0 "energy as JSON" good.json --progress=json --powercap powercap
[ "$(grep -c '"energy":{"packages":1,"idle":0,"why":"","members":\[{"name":' err)" = 1 ] ||
    fail "the last line alone has the energy: $(cat err)"
grep '"energy"' err | grep -q '"from":"powercap"}\],"nodes":\[0,0,0,0\]}}$' || fail "its end: $(cat err)"
if [ $is_native = 1 ]; then
    app draws.json '"library": "draws.so"'
    counter 1000000
    USM_TRACE=energy.trace expect 0 "a package that draws" draws.json --progress --powercap powercap
    # energy: host:0 3.141 J (powercap), idle 0.859 J
    sed -n 's/.* energy: host:0 \([0-9.]*\) J (powercap), idle \([0-9.]*\) J$/\1 \2/p' err |
        awk '{ n++; sum = $1 + $2; none = $1 <= 0 } END { exit !(n == 1 && sum > 3.998 && sum < 4.002 && !none) }' ||
        fail "host and idle are not 4 J: $(cat err)"
    says err "energy of nodes: "
    says err " each "
    prof=$(dirname "$tool")/usm-prof
    if [ -x "$prof" ]; then
        name="the trace of energy"
        "$prof" report --json energy.trace >out 2>err || fail "usm-prof ends with $?"
        says out '"device": "host:0"'
        says out '"is_measured": true'
    fi
    sed 's/fputs("5000000/fputs("/' kernels.c >loses.c
    "$cc" -DCOUNTER='"powercap/intel-rapl:0/energy_uj"' -shared -fPIC -I"$root/include" -I"$include" \
        -o loses.so loses.c || exit 1
    app loses.json '"library": "loses.so"'
    counter 1000000
    expect 0 "a counter that is lost in the middle" loses.json --progress --powercap powercap
    says err "could not be read for some time, whose joules are missing"
fi

# --- for programs that show runs ------------------------------------------------------------------------
expect 0 "progress as JSON" good.json --progress=json
says err '"fraction":1,'
says err '"nodes":['
says err '"is_well":true'
expect 2 "another form of progress" good.json --progress=xml
says err "--progress is followed by nothing or by =json"
mkdir -p sub && cp good.json sub/good.json
name="the standard input"
if "$tool" - --within . <good.json >out 2>err; then pass; else fail "it is not run"; fi
sed '1s/{/{"view": {"in": [1, 2]},/' good.json >viewed.json
expect 0 "places of an editor" viewed.json --dry-run
expect 0 "within a folder" good.json --within "$work"
expect 1 "a file outside of the folder" good.json --within sub
says err "it lies outside of the folder of --within"
ln -s "$work" sub/up
sed 's,"kernels\.,"sub/up/kernels.,' good.json >linked.json
expect 1 "a link out of the folder" linked.json --within sub
says err "it lies outside of the folder of --within"
expect 1 "no such folder" good.json --within none
says err "--within none: No such file or directory"

# --- the samples --------------------------------------------------------------------------------------
if [ $is_native = 0 ]; then
    expect 0 "samples/graphs/md5.json" "$root/samples/graphs/md5.json"
    says out "3 abc"
    expect 0 "samples/graphs/integral.json" "$root/samples/graphs/integral.json"
    says out "3.1415"
    expect 0 "samples/graphs/idw.json" "$root/samples/graphs/idw.json"
    says out "12.667"
else
    expect 1 "OpenCL C on the host" "$root/samples/graphs/md5.json"
    says err "md5.json:4: kernel 'md5':"
fi

finish
