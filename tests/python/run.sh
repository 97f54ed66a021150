#!/bin/sh
# run.sh LIBUSM SCRIPT [ARGUMENT...]: a Python program beside dpctl, dpnp and PyOpenCL, in the virtual
# environment that `./run ci` makes (${USM_CI_CACHE}/intel).  Under tests/with-runtime.sh, which sets
# the drivers.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

venv=${USM_CI_CACHE:-${HOME:-/tmp}/.cache/usm-ci}/intel
top=$(cd "$(dirname "$0")/../.." && pwd)
for package in dpctl dpnp pyopencl; do
    # Asked of the files: an import takes a second.
    [ -n "$(ls -d "$venv"/lib/python3*/site-packages/$package 2>/dev/null)" ] || {
        echo "$venv has no $package: \`./run --step step_intel\` fetches it"
        exit 77
    }
done
USM_LIBRARY=$1
shift
# The wheels' libOpenCL.so.1 finds its own libraries only so.
LD_LIBRARY_PATH=$venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PYTHONPATH=$top/python
PYTHONDONTWRITEBYTECODE=1
export USM_LIBRARY LD_LIBRARY_PATH PYTHONPATH PYTHONDONTWRITEBYTECODE
exec "$venv/bin/python" "$@"
