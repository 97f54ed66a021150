#!/bin/sh
# run.sh VENV BUILD [DEVICE]: builds the SYCL programs of this folder and runs them.
#
# USM_TEST_EXEC=1: the programs, which do not know of it, are started by usm-exec.
#
# VENV is a virtual environment with PyPI's intel-sycl-rt, intel-opencl-rt and intel-cmplr-lib-rt; BUILD
# a build of libusm with the software Level Zero driver.  DEVICE:
#   level_zero   (the default) the software driver: nothing may be absent, and the programs run over
#                both of the runtime's Level Zero adapters, the older and the newer (v2)
#   opencl       Intel's OpenCL CPU device, which shows whether the programs themselves are right
#
# Intel's adapter needs a Level Zero loader newer than Debian 12's: tests/debian13.sh has one.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -ge 2 ] || {
    echo "usage: $0 VENV BUILD [level_zero|opencl]" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
device=${3:-level_zero}
out=$build/sycl
failed=0

[ "$device" = opencl ] || [ -e "$build/lib/libze_soft.so" ] || {
    echo "$build/lib/libze_soft.so was not built (it needs libze-dev)" >&2
    exit 1
}
[ -e "$venv/lib/libsycl.so" ] || {
    echo "$venv has no libsycl.so (PyPI: intel-sycl-rt)" >&2
    exit 1
}

cmake -S "$here" -B "$out" -G Ninja -DUSM_SYCL="$venv" -DUSM_BUILD="$build" >"$out.log" 2>&1 &&
    cmake --build "$out" >>"$out.log" 2>&1 || {
    cat "$out.log" >&2
    exit 1
}

# The kernel that comes as SPIR-V.
major=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
if [ -n "$major" ] && command -v "llvm-spirv-$major" >/dev/null; then
    clang -c -target spir64 -O2 -emit-llvm -Xclang -finclude-default-header -cl-std=CL2.0 \
        -o "$out/add.bc" "$here/add.cl"
    "llvm-spirv-$major" "$out/add.bc" -o "$out/add.spv"
    USM_TEST_SPIRV=$out/add.spv
    export USM_TEST_SPIRV
fi

mkdir -p "$out/icd"
echo "$venv/lib/libintelocl.so" >"$out/icd/intel.icd"
LD_LIBRARY_PATH=$venv/lib
OCL_ICD_VENDORS=$out/icd
USM_PLUGIN_PATH=$build/lib
export LD_LIBRARY_PATH OCL_ICD_VENDORS USM_PLUGIN_PATH
unset USM_DEVICE_SELECTOR ZE_AFFINITY_MASK ZE_FLAT_DEVICE_HIERARCHY OCL_ICD_FILENAMES

# run_sample NAME: samples/interop/sycl_pool.cpp, which checks its numbers.
run_sample()
{
    echo "== sycl_pool, $1"
    timeout -k 5 120 ${USM_TEST_EXEC:+"$build/bin/usm-exec"} "$out/bin/sycl_pool" --size 65536 --rounds 200 || {
        echo "FAILED: sycl_pool, $1"
        failed=$((failed + 1))
    }
}

# run_all NAME [OPTION...]: every program.
run_all()
{
    name=$1
    shift
    for program in devices memory queues buffers pools ipc kernels native; do
        echo "== $program, $name"
        rc=0
        batch=
        [ "$program" != devices ] || batch=UR_L0_BATCH_SIZE=1 # see below
        env $batch timeout -k 5 120 ${USM_TEST_EXEC:+"$build/bin/usm-exec"} "$out/bin/$program" "$@" || rc=$?
        if [ "$rc" -ne 0 ]; then
            echo "FAILED: $program, $name: exit status $rc"
            failed=$((failed + 1))
        fi
    done
    run_sample "$name"
}

case $device in
opencl)
    ONEAPI_DEVICE_SELECTOR='opencl:cpu'
    export ONEAPI_DEVICE_SELECTOR
    run_all "Intel's OpenCL CPU device"
    ;;
level_zero)
    ONEAPI_DEVICE_SELECTOR='level_zero:*'
    ZE_ENABLE_ALT_DRIVERS=$build/lib/libze_soft.so
    export ONEAPI_DEVICE_SELECTOR ZE_ENABLE_ALT_DRIVERS
    # The older adapter: copies of rows only when asked.  Where one device's queue waits for another's
    # it forgets to submit a batch that it began, so there every command is a batch.
    SYCL_UR_USE_LEVEL_ZERO_V2=0 UR_L0_USE_NATIVE_USM_MEMCPY2D=1
    export SYCL_UR_USE_LEVEL_ZERO_V2 UR_L0_USE_NATIVE_USM_MEMCPY2D
    run_all 'software Level Zero driver, older adapter' --all
    unset UR_L0_USE_NATIVE_USM_MEMCPY2D
    # The newer one has copies of rows as a kernel, which would take a SYCL compiler.
    SYCL_UR_USE_LEVEL_ZERO_V2=1 USM_TEST_MAY_LACK=rows_are_copied_with_pitches
    export SYCL_UR_USE_LEVEL_ZERO_V2 USM_TEST_MAY_LACK
    run_all 'software Level Zero driver, newer adapter' --all
    ;;
*)
    echo "$0: there is no device '$device'" >&2
    exit 2
    ;;
esac
[ "$failed" -eq 0 ] || {
    echo "$failed programs failed"
    exit 1
}
echo "all SYCL programs passed"
