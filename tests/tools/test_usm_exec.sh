#!/bin/sh
# test_usm_exec.sh USM_EXEC CC INCLUDE LIBRARY: usm-exec as users meet it, with programs that know nothing of libusm: what
# is preloaded, exit statuses and signals, programs into which nothing can be preloaded.  Programs that
# gain from it are in tests/inside and tests/sycl.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
cc=$2
include=$3
library=$4
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-exec-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
unset LD_PRELOAD OPENCL_LAYERS ZE_ENABLE_ALT_DRIVERS USM_INSIDE_LEVEL_ZERO USM_MEMORY_LIMIT USM_TRACE
# shellcheck source=tests/tools/says.sh
. "$root/tests/tools/says.sh"
cd "$work" || exit 1

expect 0 'a program that does nothing' true
silent err
# shellcheck disable=SC2016
expect 7 'its exit status' sh -c 'echo "$LD_PRELOAD"; exit 7'
says out libusm_inside_umf.so
silent err
# shellcheck disable=SC2016
expect 0 'a child of a child' sh -c 'sh -c "echo \$LD_PRELOAD"'
says out libusm_inside_umf.so
# shellcheck disable=SC2016
LD_PRELOAD=libc.so.6:libm.so.6 expect 0 'preloads of its own' sh -c 'echo "$LD_PRELOAD"'
says out libc.so.6:libm.so.6:/
says out libusm_inside_umf.so
silent err
expect 0 'what is opened' -v true
says err 'usm-exec: umf: device, host and shared memory of SYCL over Level Zero'
says err 'usm-exec: opencl: ' # not opened where OpenCL's headers were not
# shellcheck disable=SC2016
OPENCL_LAYERS=/mine.so:/theirs.so expect 0 'layers of its own' -v sh -c 'echo "$OPENCL_LAYERS"'
says out /mine.so:/theirs.so
if grep -q 'opencl: USM and SVM of OpenCL' err; then
    says out /theirs.so:/
    says out libusm_inside_opencl.so
fi
# shellcheck disable=SC2016
expect 0 'a seam left out' -v --off umf sh -c 'echo "[${LD_PRELOAD:-}]"'
says out '[]'
says err 'left out, as --off says'
# shellcheck disable=SC2016
drivers='echo "[${USM_INSIDE_LEVEL_ZERO:-}] [${ZE_ENABLE_ALT_DRIVERS:-}]"'
expect 0 'a seam that nobody asked for' -v sh -c "$drivers"
says out '[] []'
says err 'level-zero: not opened: it is off by default, --level-zero asks for it'
expect 0 "Level Zero's driver" -v --level-zero sh -c "$drivers"
if ! grep -q 'level-zero: not opened' err; then # as where Level Zero's headers were not
    says out '[libze_intel_gpu.so.1] [/'
    says out 'libusm_inside_level_zero.so]'
    ZE_ENABLE_ALT_DRIVERS=/mine.so,/theirs.so expect 0 'drivers of its own' -v --level-zero sh -c "$drivers"
    says out '[/mine.so] [/'
    says out 'libusm_inside_level_zero.so,/theirs.so]'
    says err 'the first driver of ZE_ENABLE_ALT_DRIVERS is served, the others are not'
    ZE_ENABLE_ALT_DRIVERS=/mine.so expect 0 'usm-exec twice' --level-zero "$tool" --level-zero sh -c "$drivers"
    says out '[/mine.so] [/'
fi
expect 2 'a seam that there is not' --off nosuch true
says err 'usm-exec: --off wants the name of a seam: umf, opencl, malloc, level-zero'
expect 2 'no program' -v
expect 127 'a program that there is not' ./nosuch
says err 'usm-exec: ./nosuch cannot be run: No such file or directory'
: >plain
expect 126 'a file that is no program' ./plain
says err 'cannot be run: Permission denied'
# shellcheck disable=SC2016
expect 0 'a limit' --limit device:4G sh -c 'echo "$USM_MEMORY_LIMIT"'
says out device:4G
expect 2 'a limit that is none' --limit much true
says err 'usm-exec: --limit much: setting memory_limit cannot be "much"'
# shellcheck disable=SC2016
expect 143 'a signal' sh -c 'kill -TERM $$'
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "$LD_PRELOAD"; exit 3\n' >script
chmod +x script
expect 3 'a script' ./script
says out libusm_inside_umf.so

# A program with UMF linked in, as an executable and inside a library that binds to itself.
cat >umf.c <<'C'
int umfDisjointPoolOps(void) { return 6; }
int pool_of_library(void) { return umfDisjointPoolOps(); }
C
echo 'int pool_of_library(void); int main(void) { return pool_of_library(); }' >umf_app.c
if "$cc" -o umf_inside umf.c umf_app.c && "$cc" -shared -fPIC -Wl,-Bsymbolic -o libumf_app.so umf.c &&
    "$cc" -o umf_beside umf_app.c ./libumf_app.so -Wl,-rpath,"$work"; then
    expect 6 'UMF in the program' ./umf_inside
    silent err
    expect 6 'UMF in a library of the program' ./umf_beside
    silent err
else
    fail 'umf.c compiles'
fi

echo 'int main(void) { return 9; }' >static.c
if "$cc" -static -o static static.c 2>/dev/null; then
    expect 9 'a static program' ./static
    says err 'usm-exec: ./static runs as it is: it is linked statically'
fi
cp /bin/true ours
if [ "$(id -u)" -eq 0 ] && chown 65534 ours 2>/dev/null && chmod u+s ours; then
    expect 0 'a setuid program' ./ours
    says err 'it runs with the rights of its owner or group'
fi

expect 5 'a report of nothing' --report sh -c 'exit 5'
says err 'the program allocated nothing through libusm'
# shellcheck disable=SC2016
expect 137 'a report of a killed program' --report sh -c 'kill -KILL $$'
[ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'usm-exec.*' -newer "$work" 2>/dev/null)" ] ||
    fail 'a scratch folder is left'

cp "$tool" alone && with=$tool tool=$work/alone
expect 5 'a report without usm-prof' --report sh -c 'exit 5'
says err 'usm-exec: there will be no report: it needs'
tool=$with

# A runtime that allocates for its program: the report names the program's function.
cat >runtime.c <<'C'
#include <usm/usm.h>
void *runtime_alloc(size_t size) { return usm_alloc_device(size); }
void runtime_free(void *p) { usm_free(p); }
C
cat >app.c <<'C'
#include <stddef.h>
void *runtime_alloc(size_t size);
void runtime_free(void *p);
void *the_app_allocates(size_t size) { return runtime_alloc(size); }
int main(void)
{
    for (int i = 0; i < 1000; i++)
        runtime_free(the_app_allocates(1000));
    return 4;
}
C
"$cc" -shared -fPIC -I"$root/include" -I"$include" -o libsycl-test.so runtime.c "$library" &&
    "$cc" -O0 -o app app.c ./libsycl-test.so -Wl,-rpath,"$work:$(dirname "$library")" || fail "app.c does not compile"
USM_TRACE_STACKS=all USM_DEVICE_SELECTOR='host:*' expect 4 'a report' --report ./app
says err '1000 allocations'
says err 'the_app_allocates'

finish
