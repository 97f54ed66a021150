# units_app.sh: an app for tests of usm-run --on; sourced by them, after says.sh, in the folder `work`.
#
#   app.json, kernels.so, input.bin   blocks pass through two expandable nodes; native kernels
#   mixed.json                        the same in a type of users, with templates before and after it
#   wanted.bin, mixed.bin             what they give on one machine
#   same STATUS NAME ARGUMENT...      a run whose output is that of one machine
#   $unit                             the command of a unit on this machine
#   $first, $second                   a unit's environment, and a unit behind the gate
#
# A unit with DIES_AT=N sends itself SIGNAL in its N-th launch of processData, after it has opened the gate,
# behind which the next unit waits: so the moment of its end, and what it has by then, do not depend on how
# fast anything is.  One with AWAITS=gate waits in its first launch of processData until another one has
# opened the gate.  With RAN=FILE each launch of processData writes WHO there, or its rank; with TAKES_US=N
# each takes so many microseconds.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh disable=SC2154,SC2034
unset USM_POLICY USM_WATTS DIES_AT GATE AWAITS RAN WHO TAKES_US

# Each launch writes 4096 bytes that depend on every byte that it reads.
cat >kernels.c <<'END'
#define _DEFAULT_SOURCE
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
static void note(const char *file)
{
    static const char *const names[] = {"WHO", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PATH"};
    const char *who = NULL;
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (int i = 0; !who; i++)
        who = getenv(names[i]);
    if (write(fd, who, strlen(who)) < 0 || write(fd, "\n", 1) < 0)
        abort();
    close(fd);
}
static void await(const char *gate)
{
    char c;
    int  fd = open(gate, O_RDONLY);
    if (read(fd, &c, 1) < 0)
        abort();
    close(fd);
}
static void live(void)
{
    static int  launches;
    const char *at = getenv("DIES_AT");
    launches++;
    if (getenv("RAN"))
        note(getenv("RAN"));
    if (getenv("TAKES_US"))
        usleep((unsigned)atoi(getenv("TAKES_US")));
    if (launches == 1 && getenv("AWAITS"))
        await(getenv("AWAITS"));
    if (!at || launches != atoi(at))
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
cat >bodies.c <<'END'
#include <usm/template.h>
USM_MAP(twice, uint32_t, uint32_t, usm_nothing, return 2u * x;)
USM_MAP_REDUCE(sum, uint32_t, uint64_t, usm_nothing, (return x;), (return a + b;))
USM_TEMPLATE_EXPORT(twice)
USM_TEMPLATE_EXPORT(sum)
END
"$cc" -shared -fPIC -I"$root/include" -I"$include" -o bodies.so bodies.c || exit 1
mkdir types
cat >types/cut_and_join.json <<'END'
{"kernels": ["k"], "inputs": 1, "outputs": 2,
 "partition": {"kernel": "k", "parts": 24, "part_size": 4096},
 "process": {"kernel": "k", "out_size": 4096}, "merge": {"kernel": "k", "out_size": 4096}}
END
cat >mixed.json <<'END'
{
    "kernels": {"k": {"library": "kernels.so"}}, "types": "types",
    "nodes": [
        {"name": "in", "kind": "input", "data": {"file": "input.bin"}},
        {"name": "before", "kind": "map", "library": "bodies.so", "template": "twice"},
        {"name": "work", "kind": "cut_and_join", "kernels": ["k"]},
        {"name": "after", "kind": "map", "library": "bodies.so", "template": "twice"},
        {"name": "last", "kind": "process", "kernel": "k", "out_size": 4096, "output": {"file": "out.bin"}},
        {"name": "sum", "kind": "map_reduce", "library": "bodies.so", "template": "sum",
         "output": {"file": "sum.bin"}}
    ],
    "edges": [["in", "before"], ["before", "work"], ["work", "after"], ["after", "last"], ["work", "sum"]]
}
END
head -c 100000 "$tool" >input.bin
unit="'$tool' --unit"
mkfifo gate
first="DIES_AT=7 GATE=gate"
second="cat gate; $unit"
expect 0 "one machine" app.json
mv out.bin wanted.bin
expect 0 "templates and a type on one machine" mixed.json
cat out.bin sum.bin >mixed.bin

# same STATUS NAME ARGUMENT...: a run whose output is that of one machine
same()
{
    rm -f out.bin
    expect "$@"
    cmp -s out.bin wanted.bin || fail "other bytes than on one machine"
    says_not err Sanitizer
}
