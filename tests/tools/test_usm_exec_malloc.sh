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
passed=0 failed=0
cd "$work" || exit 1

pass()
{
    passed=$((passed + 1))
}

fail()
{
    failed=$((failed + 1))
    echo "FAILED: $1"
    sed 's/^/    /' out err | head -n 20
}

# expect STATUS ARGUMENT...: runs usm-exec, its output is in out and err.
expect()
{
    wanted=$1
    shift
    name=$*
    "$tool" "$@" >out 2>err
    status=$?
    if [ $status -eq "$wanted" ]; then pass; else fail "$name: exits with $status, not $wanted"; fi
}

# says FILE TEXT; says_not FILE TEXT; silent: neither output has anything.
says()
{
    if grep -qF -- "$2" "$1"; then pass; else fail "$name: $1 does not say '$2'"; fi
}
says_not()
{
    if grep -qF -- "$2" "$1"; then fail "$name: $1 says '$2'"; else pass; fi
}
silent()
{
    if [ ! -s out ] && [ ! -s err ]; then pass; else fail "$name: says something"; fi
}

# --- the option, and the seam ---
expect 0 -v true
says err 'usm-exec: malloc: not opened: it is off by default, --malloc SIZE asks for it'
# shellcheck disable=SC2016
expect 0 -v --malloc 1M sh -c 'echo "$LD_PRELOAD $USM_INSIDE_MALLOC"'
says err 'usm-exec: malloc: large blocks of malloc'
says out 'libusm_inside_malloc.so 1048576'
# shellcheck disable=SC2016
expect 0 -v --malloc 1M --off malloc sh -c 'echo "$LD_PRELOAD"'
says err 'usm-exec: malloc: left out, as --off says'
says_not out libusm_inside_malloc.so
expect 2 --malloc 4K true
says err '--malloc wants a size of 64K or more'
expect 2 --malloc much true
says err '--malloc wants a size of 64K or more'

# --- the family of malloc: blocks of all sizes, alignments, threads, fork, exit ---
expect 0 --malloc 1M "$app"
silent
expect 0 --malloc 64K "$app"
silent
USM_VALIDATION=1 expect 0 --malloc 1M "$app"
silent
expect 0 --malloc 1M --limit host:16M "$app" limited
silent
expect 0 --malloc 1M --report "$app" keep
says err '1001 allocations'
says err 'the_app_keeps'
expect 0 --malloc 1G --report "$app" keep
says err 'the program allocated nothing through libusm'
expect 0 --malloc 1M --report "$app" child
says err '1 allocation,' # the parent's: the C library serves its child
expect 0 --malloc 1M ls /
[ ! -s err ] || fail 'ls: says something'

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
USM_DEVICE_SELECTOR='host:*' expect 0 --malloc 64K ./own
silent

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
    expect 5 --malloc 1M --report ./vector
    says err '2 allocations'
    says_not err '_Znwm'
    says err 'the_arrayv'
fi
echo 'int mallctl(const char *); void *p = (void *)mallctl;' >own_allocator.c
if "$cc" -w -o keep "$root/tests/tools/malloc_app.c" -D_GNU_SOURCE -pthread own_allocator.c -ljemalloc 2>/dev/null; then
    expect 0 --malloc 1M --report ./keep keep
    says err 'the program allocated nothing through libusm'
fi
if command -v python3 >/dev/null; then
    expect 0 --malloc 1M python3 -c 'print(len(bytes(3 << 20)) + len(list(range(3000000)) * 2))'
    says out 9145728
    [ ! -s err ] || fail 'python3: says something'
fi

echo "$passed checks passed, $failed failed"
[ "$failed" -eq 0 ]
