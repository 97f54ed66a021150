# The runtimes libusm is tested on, for sourcing by sh: what each needs, and how one is chosen.
#
#   usm_runtime_names              all of them, in the order of reports
#   usm_runtime_why NAME           nothing and 0 when it can run here, else 1 and the reason
#   usm_runtime_env NAME FOLDER    exports its environment; FOLDER is an empty folder of the caller's,
#                                  for the .icd file, that must live as long as the environment
#
# A runtime is: the OpenCL and Level Zero drivers that exist (a folder of our own with one .icd file,
# ZE_ENABLE_ALT_DRIVERS; so that what else the machine has installed plays no part), a selector, and
# for Intel's GPU drivers the switches that make them run without a GPU (they then write .aub files
# into the working directory: run them in a temporary one; no data moves, see `moves_data` in the
# documentation).
#
#   host           no driver                       pocl            PoCL, OpenCL on the CPU
#   pocl-coarse    the same as NVIDIA's driver offers it (tests/cl_coarse)
#   intel          Intel's OpenCL CPU runtime      neo-<product>   Intel's OpenCL GPU driver, no GPU
#   ze-soft        Level Zero's loader over the software driver of tests/ze_soft, whose SPIR-V goes
#                  through PoCL                    ze-soft-intel   the same through Intel's CPU runtime
#   neo-ze-<p>     Intel's Level Zero GPU driver   neo-pair-<p>    both of its drivers in one process
#   null           the null backend, whose memory is not there: for tests of what is refused then
#
# Intel's OpenCL CPU runtime comes from PyPI; `./run ci` fetches it into ${USM_CI_CACHE}/intel.  The
# software driver is lib/libze_soft.so in ${USM_TEST_BINARY_DIR} (set by ctest), else in build/release,
# and so is PoCL's layer, lib/libcl_coarse.so.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh

USM_CI_CACHE=${USM_CI_CACHE:-${HOME:-/tmp}/.cache/usm-ci}

usm_runtime_names()
{
    echo host pocl pocl-coarse intel neo-skl neo-tgllp neo-dg2 ze-soft ze-soft-intel neo-ze-tgllp neo-ze-dg2 \
        neo-pair-dg2 null
}

# The line of a system .icd file whose name matches $1, or nothing.
usm__system_icd()
{
    for usm__icd in /etc/OpenCL/vendors/$1; do
        [ -r "$usm__icd" ] && head -n 1 "$usm__icd" && return 0
    done
    return 1
}

# The library that NAME's .icd file has to name.
usm__runtime_library()
{
    case $1 in
    pocl* | ze-soft) usm__system_icd 'pocl*.icd' ;;
    neo-*) usm__system_icd 'intel*.icd' ;;
    intel | ze-soft-intel)
        usm__lib=$USM_CI_CACHE/intel/lib/libintelocl.so
        [ -e "$usm__lib" ] && echo "$usm__lib"
        ;;
    esac
}

# Is there a library $1, whatever provides it?
usm__have_library()
{
    for usm__dir in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /lib64 /lib; do
        [ -e "$usm__dir/$1" ] && return 0
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -qF "$1"
}

usm__soft_driver()
{
    echo "${USM_TEST_BINARY_DIR:-$(pwd)/build/release}/lib/libze_soft.so"
}

usm__coarse_layer()
{
    echo "${USM_TEST_BINARY_DIR:-$(pwd)/build/release}/lib/libcl_coarse.so"
}

# What the Level Zero runtime $1 lacks, or nothing.
usm__level_zero_lacks()
{
    if ! usm__have_library libze_loader.so.1; then
        echo "no Level Zero loader, libze_loader.so.1 (the package libze1)"
    fi
    case $1 in
    ze-soft*)
        [ -e "$(usm__soft_driver)" ] || echo "$(usm__soft_driver) was not built (it needs libze-dev)"
        ;;
    *)
        usm__have_library libze_intel_gpu.so.1 ||
            echo "no libze_intel_gpu.so.1 (the package intel-opencl-icd)"
        ;;
    esac
}

usm_runtime_why()
{
    case $1 in
    none | host | null) return 0 ;;
    pocl* | ze-soft) usm__how='the package pocl-opencl-icd' ;;
    intel | ze-soft-intel) usm__how="\`./run ci\` fetches it into $USM_CI_CACHE/intel" ;;
    neo-*) usm__how='the package intel-opencl-icd' ;;
    *)
        echo "there is no runtime '$1'; there are: $(usm_runtime_names)"
        return 1
        ;;
    esac
    if [ "$1" = pocl-coarse ] && [ ! -e "$(usm__coarse_layer)" ]; then
        echo "$(usm__coarse_layer) was not built (it needs opencl-c-headers)"
        return 1
    fi
    case $1 in ze-* | neo-ze-* | neo-pair-*)
        usm__lacks=$(usm__level_zero_lacks "$1")
        if [ -n "$usm__lacks" ]; then
            echo "$usm__lacks"
            return 1
        fi
        ;;
    esac
    if ! usm__have_library libOpenCL.so.1; then
        echo "no OpenCL loader, libOpenCL.so.1 (the package ocl-icd-libopencl1)"
        return 1
    fi
    if [ -z "$(usm__runtime_library "$1")" ]; then
        echo "$1 is not installed ($usm__how)"
        return 1
    fi
}

usm_runtime_env()
{
    OCL_ICD_VENDORS=$2
    ZE_ENABLE_ALT_DRIVERS=none.so # there is no such library: Level Zero has no driver
    export OCL_ICD_VENDORS ZE_ENABLE_ALT_DRIVERS
    unset USM_DEVICE_SELECTOR ONEAPI_DEVICE_SELECTOR OCL_ICD_FILENAMES OPENCL_VENDOR_PATH \
        OPENCL_LAYERS ZE_FLAT_DEVICE_HIERARCHY ZE_AFFINITY_MASK
    [ "$1" != none ] || return 0
    usm__runtime_library "$1" >"$2/$1.icd"
    case $1 in
    host | null) USM_DEVICE_SELECTOR="$1:*" ;;
    ze-soft*)
        ZE_ENABLE_ALT_DRIVERS=$(usm__soft_driver)
        USM_DEVICE_SELECTOR='level_zero:*'
        ;;
    neo-ze-*)
        unset ZE_ENABLE_ALT_DRIVERS
        USM_DEVICE_SELECTOR='level_zero:*'
        ;;
    neo-pair-*)
        unset ZE_ENABLE_ALT_DRIVERS
        USM_DEVICE_SELECTOR='opencl:*;level_zero:*'
        ;;
    *) USM_DEVICE_SELECTOR='opencl:*' ;;
    esac
    if [ "$1" = pocl-coarse ]; then
        OPENCL_LAYERS=$(usm__coarse_layer)
        export OPENCL_LAYERS
    fi
    export USM_DEVICE_SELECTOR
    case $1 in neo-*)
        NEOReadDebugKeys=1
        SetCommandStreamReceiver=1
        ProductFamilyOverride=${1##*-}
        export NEOReadDebugKeys SetCommandStreamReceiver ProductFamilyOverride
        ;;
    esac
}
