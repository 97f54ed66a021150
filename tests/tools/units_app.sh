# units_app.sh: an app for tests of usm-run --on; sourced by them, after says.sh, in the folder `work`.
#
#   app.json, kernels.so, input.bin   blocks pass through two expandable nodes; native kernels
#   wanted.bin                        what it gives on one machine
#   same STATUS NAME ARGUMENT...      a run whose output is that of one machine
#   $unit                             the command of a unit on this machine
#   $first, $second                   a unit's environment, and a unit behind the gate
#
# A unit with DIES_AT=N sends itself SIGNAL in its N-th launch of processData, after it has opened the gate,
# behind which the next unit waits: so the moment of its end, and what it has by then, do not depend on how
# fast anything is.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh disable=SC2154,SC2034
unset USM_POLICY USM_WATTS DIES_AT GATE

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
    says_not err Sanitizer
}
