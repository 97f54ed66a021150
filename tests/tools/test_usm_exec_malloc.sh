#!/bin/sh
# test_usm_exec_malloc.sh USM_EXEC CC INCLUDE LIBRARY APP: usm-exec --malloc, with programs that know nothing of libusm (APP is
# malloc_app.c) and with one that uses libusm itself.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
cc=$2
include=$3
library=$4
app=$5
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-exec-malloc.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
unset LD_PRELOAD OPENCL_LAYERS USM_MEMORY_LIMIT USM_TRACE USM_TRACE_STACKS USM_POOL
# shellcheck source=tests/tools/says.sh
. "$root/tests/tools/says.sh"
cd "$work" || exit 1

# runs STATUS ARGUMENT...
runs()
{
    wanted=$1
    shift
    expect "$wanted" "$*" "$@"
}

# --- the option, and the seam ---
runs 0 -v true
says err 'usm-exec: malloc: not opened: it is off by default, --malloc SIZE asks for it'
# shellcheck disable=SC2016
runs 0 -v --malloc 1M sh -c 'echo "$LD_PRELOAD $USM_INSIDE_MALLOC"'
says err 'usm-exec: malloc: large blocks of malloc'
says out 'libusm_inside_malloc.so 1048576'
# shellcheck disable=SC2016
runs 0 -v --malloc 1M --off malloc sh -c 'echo "$LD_PRELOAD"'
says err 'usm-exec: malloc: left out, as --off says'
says_not out libusm_inside_malloc.so
runs 2 --malloc 4K true
says err '--malloc wants a size of 64K or more'
runs 2 --malloc much true
says err '--malloc wants a size of 64K or more'

# --- the family of malloc: blocks of all sizes, alignments, threads, fork, exit ---
runs 0 --malloc 1M "$app"
silent out
silent err
runs 0 --malloc 64K "$app"
silent out
silent err
USM_VALIDATION=1 runs 0 --malloc 1M "$app"
silent out
silent err
runs 0 --malloc 1M --limit host:16M "$app" limited
silent out
says err 'usm: warning: out of memory (USM_E_BUDGET): 3 MiB of host memory on source:0'
says err 'remedy: USM_MEMORY_LIMIT (usm-exec --limit) allows 16 MiB for host'
says err 'by call site: usm-exec --report'
[ "$(wc -l <"$work/err")" -le 12 ] && pass || fail 'the report has more than 12 lines'
USM_LOG=error runs 0 --malloc 1M --limit host:16M "$app" limited
silent err
runs 0 --malloc 1M --limit host:16M --report "$app" limited
says err 'the trace knows by call site who holds it'
says err 'Held when memory was first refused: 3 MiB of host memory of source:0'
sed -n '/^Held when/,/^$/p' "$work/err" >"$work/held"
says held limited
runs 0 --malloc 1M --report "$app" keep
says err '1001 allocations'
says err 'the_app_keeps'
runs 0 --malloc 1G --report "$app" keep
says err 'the program allocated nothing through libusm'
runs 0 --malloc 1M --report "$app" child
says err '1 allocation,' # the parent's: the C library serves its child
runs 0 --malloc 1M ls /
silent err

# --- a program that uses libusm itself: its pools, messages and end are its own ---
cat >own.c <<'C'
#include <stdlib.h>
#include <string.h>
#include <usm/usm.h>
int main(void)
{
    char *mine = malloc(3 << 20), *theirs = usm_alloc_host(3 << 20), *aligned = aligned_alloc(4096, 4096);
    if (!mine || !theirs || !aligned || usm_copy(mine, theirs, 3 << 20) != USM_OK)
        return 1;
    if (usm_copy(theirs, mine, 3 << 20) != USM_OK || usm_alloc_host((size_t)1 << 48))
        return 2;
    free(aligned); /* is no pointer that libusm is asked about */
    if (usm_last_status() == USM_E_INVALID_POINTER)
        return 3;
    usm_free(theirs);
    usm_shutdown();
    mine = realloc(mine, 5 << 20);
    if (!mine)
        return 4;
    memset(mine, 1, 5 << 20);
    free(mine);
    free(malloc(3 << 20));
    return 0;
}
C
"$cc" -I"$root/include" -I"$include" -o own own.c "$library" -Wl,-rpath,"$(dirname "$library")" || fail 'own.c compiles'
USM_DEVICE_SELECTOR='host:*' runs 0 --malloc 64K ./own
silent out
silent err

# --- programs of others ---
cat >vector.cpp <<'C'
#include <cstdio>
#include <new>
#include <vector>
struct alignas(64) big { char bytes[4 << 20]; };
__attribute__((noinline)) double *the_array() { return new double[1000000]; }
int main()
{
    big *b = new big;
    the_array();
    delete b;
    try {
        std::vector<char> all(size_t(1) << 48);
    } catch (const std::bad_alloc &) {
        return 5;
    }
    return 0;
}
C
if command -v c++ >/dev/null && c++ -std=c++17 -O0 -o vector vector.cpp; then
    runs 5 --malloc 1M --report ./vector
    says err '2 allocations'
    says_not err '_Znwm'
    says err 'the_arrayv'
fi
echo 'int mallctl(const char *); void *p = (void *)mallctl;' >own_allocator.c
if "$cc" -w -o keep "$root/tests/tools/malloc_app.c" -D_GNU_SOURCE -pthread own_allocator.c -ljemalloc 2>/dev/null; then
    runs 0 --malloc 1M --report ./keep keep
    says err 'the program allocated nothing through libusm'
fi
if command -v python3 >/dev/null; then
    runs 0 --malloc 1M python3 -c 'print(len(bytes(3 << 20)) + len(list(range(3000000)) * 2))'
    says out 9145728
    silent err
fi

finish
