#!/bin/sh
# level_zero.sh VENV BUILD: python/usm beside dpctl on the software Level Zero driver, over both of the
# runtime's Level Zero adapters, the older and the newer (v2).
#
# VENV is the virtual environment that `./run --step step_intel` makes, BUILD a build of libusm with the
# software driver.  Intel's adapters need a Level Zero loader newer than Debian 12's: tests/debian13.sh
# has one, and VENV/python3.13 is dpctl for the Python that is there.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -eq 2 ] || {
    echo "usage: $0 VENV BUILD" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
packages=$venv/python$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')

[ -e "$build/lib/libze_soft.so" ] || {
    echo "$build/lib/libze_soft.so was not built (it needs libze-dev)" >&2
    exit 1
}
[ -d "$packages/dpctl" ] || {
    echo "there is no dpctl in $packages" >&2
    exit 1
}

PYTHONPATH=$here/../../python:$packages
PYTHONDONTWRITEBYTECODE=1
LD_LIBRARY_PATH=$venv/lib
USM_LIBRARY=$build/lib/libusm.so
ZE_ENABLE_ALT_DRIVERS=$build/lib/libze_soft.so
ONEAPI_DEVICE_SELECTOR='level_zero:*'
export PYTHONPATH PYTHONDONTWRITEBYTECODE LD_LIBRARY_PATH USM_LIBRARY ZE_ENABLE_ALT_DRIVERS \
    ONEAPI_DEVICE_SELECTOR
unset USM_DEVICE_SELECTOR ZE_AFFINITY_MASK ZE_FLAT_DEVICE_HIERARCHY
for v2 in 0 1; do
    echo "== dpctl, SYCL_UR_USE_LEVEL_ZERO_V2=$v2"
    SYCL_UR_USE_LEVEL_ZERO_V2=$v2 timeout -k 5 120 python3 "$here/test_usm_level_zero.py"
done
