#!/bin/sh
# test_usm_exec_managed.sh USM_EXEC APP: usm-exec --malloc SIZE --managed, with programs that know nothing of libusm and need more
# memory than the limit (APP is malloc_app.c).
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
app=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-exec-managed.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
unset LD_PRELOAD OPENCL_LAYERS USM_MEMORY_LIMIT USM_TRACE USM_TRACE_STACKS USM_POOL USM_MANAGED USM_SPILL_BLOCK
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

# --- the option ---
runs 2 --managed true
says err '--managed wants --malloc SIZE besides'
# shellcheck disable=SC2016
runs 0 --malloc 1M --managed sh -c 'echo "$USM_INSIDE_MALLOC $USM_INSIDE_MANAGED"'
says out '1048576 1'
USM_MANAGED=off runs 0 --malloc 1M --managed "$app" keep
says err 'the C library serves large blocks itself: managed memory is off'

"$tool" --malloc 1M --managed "$app" keep 2>err
if grep 'the C library serves' err; then
    echo "# SKIP $(cat err)"
    exit 77
fi

# --- the family of malloc, threads, fork(), exit ---
export USM_LOG=error
for way in '' keep child; do
    # shellcheck disable=SC2086
    runs 0 --malloc 1M --managed --limit host:16M "$app" $way
    silent out
    silent err
done

# --- programs that need 4 to 8 times the limit ---
cat >sort.cpp <<'C'
#include <algorithm>
#include <cstdint>
#include <vector>
int main()
{
    std::vector<std::uint64_t> x(16 << 20); /* 128 MiB */
    std::uint64_t s = 1, sum = 0;
    for (auto &e : x)
        sum += e = (s = s * 6364136223846793005u + 1442695040888963407u) >> 8;
    std::sort(x.begin(), x.end());
    for (auto e : x)
        sum -= e;
    return sum != 0 || !std::is_sorted(x.begin(), x.end());
}
C
if command -v c++ >/dev/null && c++ -std=c++17 -O2 -o sort sort.cpp; then
    runs 0 --malloc 1M --managed --limit host:32M ./sort
    silent err
fi
if command -v python3 >/dev/null; then
    cat >pass.py <<'P'
import os
def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0])
before = peak()
a = bytearray(64 << 20)
for i in range(0, len(a), 4096):
    a[i] = i // 4096 % 251
b = bytes(a)                     # 128 MiB now
with open("file", "wb") as f:    # by a system call
    f.write(b)
with open("file", "rb") as f:
    f.readinto(a)
assert peak() - before < 24 << 10, (before, peak())
pid = os.fork()
if pid == 0:                     # it has all of it, and what it writes is its own
    a[0] = 77
    os._exit(0 if sum(a) - 77 == sum(b) else 1)
assert os.waitpid(pid, 0)[1] == 0
assert a == b and a[0] == 0 and a[4096 * 250] == 250
P
    runs 0 --malloc 1M --managed --limit host:16M python3 pass.py
    silent err
    silent out
    [ "$(find "$work" -name 'tmp*' | wc -l)" -eq 0 ] && pass || fail 'the file of fork() has no name'
fi

finish
