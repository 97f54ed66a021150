#!/bin/sh
# test_usm_run_units.sh USM_RUN CC INCLUDE: usm-run --on, whose units are plain commands on this machine.
# The kernels are native ones.  A unit with DIES_AT=N sends itself SIGNAL in its N-th launch of processData,
# after it has opened the gate, behind which the next unit waits: so the moment of its end, and what it has
# by then, do not depend on how fast anything is.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
tool=$1
cc=$2
include=$3
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-units-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
unset USM_POLICY USM_WATTS DIES_AT GATE
# shellcheck source=tests/tools/says.sh
. "$here/says.sh"
cd "$work" || exit 1

# --- an app whose blocks pass through two expandable nodes -------------------------------------------
# Each launch writes 4096 bytes that depend on every byte that it reads.
cat >kernels.c <<'END'
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <usm/program.h>
#define IN    (*(unsigned char **)args[0])
#define SIZE  (*(unsigned *)args[1])
#define PARTS (*(unsigned *)args[2])
#define USE(f) void f(const usm_range *range, void *const *args); \
    void f(const usm_range *range, void *const *args)
static void mix(unsigned char *out, unsigned size, const unsigned char *in, unsigned in_size, unsigned seed)
{
    unsigned x = seed;
    for (unsigned i = 0; i < in_size; i++)
        x = (x ^ in[i]) * 16777619u;
    for (unsigned i = 0; i < size; i++) {
        x      = x * 1664525u + 1013904223u;
        out[i] = (unsigned char)(x >> 24);
    }
}
static void live(void)
{
    static int  launches;
    const char *at = getenv("DIES_AT");
    if (!at || ++launches != atoi(at))
        return;
    if (getenv("GATE"))
        close(open(getenv("GATE"), O_WRONLY));
    raise(atoi(getenv("SIGNAL")));
}
USE(processData)
{
    if (range->begin[0] == 0) {
        live();
        mix(*(unsigned char **)args[2], *(unsigned *)args[3], IN, SIZE, 1);
    }
}
USE(partitionData)
{
    if (range->begin[0] == 0)
        for (unsigned i = 0; i < PARTS; i++)
            mix(*(unsigned char **)args[3] + i * *(unsigned *)args[4], *(unsigned *)args[4], IN, SIZE, i);
}
USE(mergeData)
{
    if (range->begin[0] == 0)
        mix(*(unsigned char **)args[3], *(unsigned *)args[4], IN, SIZE, PARTS);
}
END
"$cc" -shared -fPIC -I"$root/include" -I"$include" -o kernels.so kernels.c || exit 1
cat >app.json <<'END'
{
    "kernels": {"k": {"library": "kernels.so"}},
    "nodes": [
        {"name": "in", "kind": "input", "data": [{"file": "input.bin"}, {"text": "abc"}]},
        {"name": "cut", "kind": "partition", "kernel": "k", "part_size": 4096, "parts": 24},
        {"name": "first", "kind": "expandable", "kernel": "k", "out_size": 4096},
        {"name": "second", "kind": "expandable", "kernel": "k", "out_size": 4096},
        {"name": "sum", "kind": "merge", "kernel": "k", "out_size": 4096, "output": {"file": "out.bin"}}
    ],
    "edges": [["in", "cut"], ["cut", "first"], ["in", "second"], ["first", "second"], ["second", "sum"]]
}
END
head -c 100000 "$tool" >input.bin
unit="'$tool' --unit"
mkfifo gate
first="DIES_AT=7 GATE=gate"
second="cat gate; $unit"
expect 0 "one machine" app.json
mv out.bin wanted.bin

# same STATUS NAME ARGUMENT...: a run whose output is that of one machine
same()
{
    rm -f out.bin
    expect "$@"
    cmp -s out.bin wanted.bin || fail "other bytes than on one machine"
}

# --- units that live -----------------------------------------------------------------------------------
same 0 "one unit alone" app.json --no-local --on "$unit" --progress
says err "unit 1 ($unit): 50 launches, 100003 bytes sent, 4096 came back"
says err "rescheduled=0"
same 0 "two units alone" app.json --no-local --on "$unit" --on "$unit" --progress
says err "rescheduled=0"
same 0 "two units and this machine" app.json --on "$unit" --on "$unit"
same 0 "a unit that logs" app.json --no-local --on "USM_LOG=debug $unit"
same 0 "a dot text" app.json --no-local --on "$unit" --dot
says out 'xlabel="unit 1"'

# --- units that are lost -------------------------------------------------------------------------------
# Without prefetch it has one launch at a time.
same 0 "one of two is killed" app.json --no-local --no-prefetch --on "$first SIGNAL=9 $unit" --on "$second" \
    --progress
says err "unit 1 ($first SIGNAL=9 $unit): it has ended"
says err "; what it had is done elsewhere"
says err "unit 1 ($first SIGNAL=9 $unit): 7 launches, 100003 bytes sent, 0 came back, lost"
says err "unit 2 ($second): 50 launches, 100003 bytes sent, 4096 came back"
# what it had made, and what it was doing
says err "rescheduled=8"
same 0 "both are killed, and this machine goes on" app.json --on "DIES_AT=1 SIGNAL=9 $unit" \
    --on "DIES_AT=1 SIGNAL=9 $unit"
same 0 "one of two is stopped" app.json --no-local --no-prefetch --silence 2 --on "$first SIGNAL=19 $unit" \
    --on "$second"
says err "it has said nothing for 2 s; what it had is done elsewhere"
says err "rescheduled=8"
rm -f out.bin
expect 1 "the only one is killed" app.json --no-local --on "DIES_AT=7 SIGNAL=9 $unit"
says err "app.json:"
says err "no healthy device"

# --- on after a kill -----------------------------------------------------------------------------------
expect 1 "a run with its blocks in a folder is killed" app.json --resume kept --no-local \
    --on "DIES_AT=9 SIGNAL=9 $unit"
[ -e kept/graph ] || fail "nothing is kept"
same 0 "another one goes on, with another unit" app.json --resume kept --no-local --on "$unit"
says_not err "resumed=0"
says err "resumed="
[ ! -e kept ] || fail "the folder stays"

# --- commands that are no units --------------------------------------------------------------------------
# hello LEAST MOST: the frame HELLO of tools/units/wire.h without a text, as an argument of printf
hello()
{
    zeros='\0\0\0\0'
    printf 'USMU\\1\\0\\0\\0%s' '\0\0\0\0'
    printf '\\%o\\0\\0\\0\\%o\\0\\0\\0' "$1" "$2"
    printf '%s%s%s%s%s%s%s' "$zeros" "$zeros" "$zeros" "$zeros" "$zeros" "$zeros" "$zeros"
}
same 0 "a command that does not exist" app.json --on "nothing-of-the-kind"
same 0 "a command that ends" app.json --on true
same 0 "a greeting in front" app.json --no-local --on "$unit" --on "echo Welcome to this machine; $unit"
says err "it begins with 'Welcome"
same 0 "garbage" app.json --no-local --on "$unit" --on "head -c 5000 '$tool'; cat >/dev/null"
says err "it begins with"
same 0 "another version" app.json --no-local --on "$unit" --on "printf '$(hello 9 9)'; cat >/dev/null"
says err "it speaks versions 9 to 9 of the protocol, and this usm-run 1 to 1: put the same libusm on both"
same 0 "a frame that nobody asked for" app.json --no-local --on "$unit" \
    --on "printf '$(hello 1 1)$(hello 1 1)'; cat >/dev/null"
says err "it answers what it was not asked"
same 0 "one that is silent before it begins is not waited for" app.json --on "cat >/dev/null"

# --- wrong options --------------------------------------------------------------------------------------
expect 2 "nobody" app.json --no-local
says err "--no-local leaves nobody to run it: add --on"
expect 2 "a unit with a file" app.json --unit
says err "--unit runs what the other usm-run says"
expect 2 "watts" app.json --on "$unit" --policy energy:5
says err "--policy energy does not know what units draw"
expect 2 "no time" app.json --on "$unit" --silence 0
says err "--silence wants seconds"
name="a unit whose other side ends"
if "$tool" --unit </dev/null >out 2>err; then fail "exits with 0"; else pass; fi

finish
