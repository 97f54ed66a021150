# The runtimes libusm is tested on, for sourcing by sh: what each needs, and how one is chosen.
#
#   usm_runtime_names              all of them, in the order of reports
#   usm_runtime_why NAME           nothing and 0 when it can run here, else 1 and the reason
#   usm_runtime_env NAME FOLDER    exports its environment; FOLDER is an empty folder of the caller's,
#                                  for the .icd file, that must live as long as the environment
#
# A runtime is: the OpenCL drivers that exist (a folder of our own with one .icd file, so that what
# else the machine has installed plays no part), a selector, and for Intel's GPU driver the switches
# that make it run without a GPU (it then writes .aub files into the working directory: run it in a
# temporary one; no data moves, see `moves_data` in the documentation).
#
# Intel's OpenCL CPU runtime comes from PyPI; `./run ci` fetches it into ${USM_CI_CACHE}/intel.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh

USM_CI_CACHE=${USM_CI_CACHE:-${HOME:-/tmp}/.cache/usm-ci}

usm_runtime_names()
{
    echo host pocl intel neo-skl neo-tgllp neo-dg2
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
    pocl) usm__system_icd 'pocl*.icd' ;;
    neo-*) usm__system_icd 'intel*.icd' ;;
    intel)
        usm__lib=$USM_CI_CACHE/intel/lib/libintelocl.so
        [ -e "$usm__lib" ] && echo "$usm__lib"
        ;;
    esac
}

# Is there a libOpenCL.so.1, whatever provides it?
usm__have_loader()
{
    for usm__dir in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /lib64 /lib; do
        [ -e "$usm__dir/libOpenCL.so.1" ] && return 0
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q 'libOpenCL\.so\.1'
}

usm_runtime_why()
{
    case $1 in
    none | host) return 0 ;;
    pocl) usm__how='the package pocl-opencl-icd' ;;
    intel) usm__how="\`./run ci\` fetches it into $USM_CI_CACHE/intel" ;;
    neo-skl | neo-tgllp | neo-dg2) usm__how='the package intel-opencl-icd' ;;
    *)
        echo "there is no runtime '$1'; there are: $(usm_runtime_names)"
        return 1
        ;;
    esac
    if ! usm__have_loader; then
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
    export OCL_ICD_VENDORS
    unset USM_DEVICE_SELECTOR ONEAPI_DEVICE_SELECTOR OCL_ICD_FILENAMES OPENCL_VENDOR_PATH
    case $1 in
    none) return 0 ;;
    host)
        USM_DEVICE_SELECTOR='host:*'
        export USM_DEVICE_SELECTOR
        return 0
        ;;
    neo-*)
        NEOReadDebugKeys=1
        SetCommandStreamReceiver=1
        ProductFamilyOverride=${1#neo-}
        export NEOReadDebugKeys SetCommandStreamReceiver ProductFamilyOverride
        ;;
    esac
    usm__runtime_library "$1" >"$2/$1.icd"
    USM_DEVICE_SELECTOR='opencl:*'
    export USM_DEVICE_SELECTOR
}
