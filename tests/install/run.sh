#!/bin/sh
# run.sh BUILD: installs the tree built in BUILD into a temporary prefix, moves the prefix, and builds
# and runs a consumer through find_package, pkg-config and add_subdirectory.  Looks at what was
# installed: needed libraries, no RUNPATH, modules found beside libusm.so.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

build=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset USM_PLUGIN_PATH LD_LIBRARY_PATH
USM_DEVICE_SELECTOR='host:*'
export USM_DEVICE_SELECTOR

cache_value()
{
    sed -n "s/^$1:[^=]*=//p" "$build/CMakeCache.txt"
}
CC=$(cache_value CMAKE_C_COMPILER)
export CC
CMAKE_GENERATOR=$(cache_value CMAKE_GENERATOR)
export CMAKE_GENERATOR

fail()
{
    echo "FAILED: $*" >&2
    exit 1
}

# quietly COMMAND...: its output only when it fails.
quietly()
{
    "$@" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "$*"
    }
}

# --- install, and move: nothing may remember where it was installed ----------------------------------
quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
library=$(find "$prefix" -name 'libusm.so.*' -type f -o -name libusm.a)
libdir=$(dirname "$library")
[ -n "$library" ] || fail "no libusm was installed"

find "$prefix" -type f | while read -r file; do
    [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
    if readelf -d "$file" | grep -E 'RPATH|RUNPATH'; then
        fail "${file#"$prefix"/} has a RUNPATH"
    fi
done
if [ "${library##*.}" != a ]; then
    readelf -d "$library" | grep -q 'SONAME.*\[libusm\.so\.0\.1\]' || fail "wrong SONAME"
    readelf -d "$library" | grep -q 'NODELETE' || fail "libusm.so is not linked with -z nodelete"
    unwanted=$(ldd "$library" | awk '{print $1}' |
        grep -vE '^(linux-vdso|linux-gate|libc|libm|libpthread|libdl)\.so|ld-linux|ld64' || :)
    [ -z "$unwanted" ] || fail "libusm.so needs $unwanted"
fi
if grep -rlF "$work/first" "$prefix" >/dev/null 2>&1 || grep -rlF "$root/" "$prefix" --include='*.pc' \
    --include='*.cmake' --include='*.h' >/dev/null 2>&1; then
    fail "an installed file names the folder it was built in or installed to"
fi
echo "installed: $(find "$prefix" -type f | wc -l) files; the library needs libc, libm, pthread at most"

# --- find_package --------------------------------------------------------------------------------------
quietly cmake -S "$here/find_package" -B "$work/fp" "-DCMAKE_PREFIX_PATH=$prefix"
quietly cmake --build "$work/fp"
printf 'find_package: '
"$work/fp/consumer"
# The next minor version may have another ABI.
mkdir "$work/newer"
sed 's/usm 0\.1 REQUIRED/usm 0.2 REQUIRED/; s,\.\./,'"$here"'/,' "$here/find_package/CMakeLists.txt" \
    >"$work/newer/CMakeLists.txt"
if cmake -S "$work/newer" -B "$work/fp2" "-DCMAKE_PREFIX_PATH=$prefix" >/dev/null 2>&1; then
    fail "find_package(usm 0.2) accepted version 0.1"
fi

# --- pkg-config ----------------------------------------------------------------------------------------
if command -v pkg-config >/dev/null 2>&1; then
    PKG_CONFIG_PATH=$libdir/pkgconfig
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046  # flags
    quietly "$CC" -std=c11 "$here/main.c" -o "$work/pc" $(pkg-config --cflags --libs libusm)
    printf 'pkg-config: '
    LD_LIBRARY_PATH=$libdir "$work/pc"
else
    echo "pkg-config: not installed, not tried"
fi

# --- add_subdirectory ----------------------------------------------------------------------------------
# All rules, links and maps are those of a project that embeds libusm; of some 230 sources five are compiled, and
# of the others it gets the objects of BUILD (reuse.sh).  With USM_TEST_LONG=1 (soak) all are compiled.
REUSE_BUILD=$build
REUSE_ROOT=$root
export REUSE_BUILD REUSE_ROOT
launcher=-DCMAKE_C_COMPILER_LAUNCHER=$here/reuse.sh
[ -z "${USM_TEST_LONG:-}" ] || launcher=-DCMAKE_C_COMPILER_LAUNCHER=
quietly cmake -S "$here/add_subdirectory" -B "$work/as" "-DUSM_SOURCE_DIR=$root" "$launcher"
quietly cmake --build "$work/as" --target consumer
printf 'add_subdirectory: '
"$work/as/consumer"

# --- modules -------------------------------------------------------------------------------------------
# The loader's own trace, as there may be no driver here that would make the module useful.
module=$(find "$libdir" -path '*/usm-*/*' -name 'libusm_backend_opencl.so')
if [ -n "$module" ]; then
    (
        unset USM_DEVICE_SELECTOR
        # A program that holds the archive has no libusm.so beside which to look.
        [ "${library##*.}" != a ] || export USM_PLUGIN_PATH="${module%/*}"
        LD_DEBUG=files LD_DEBUG_OUTPUT=$work/ld "$work/fp/consumer" >/dev/null 2>&1 || :
    )
    cat "$work"/ld.* | grep -q "usm-[0-9]*/libusm_backend_opencl\.so.*generating link map" ||
        fail "the consumer did not load ${module#"$prefix"/}"
    echo "modules: ${module#"$prefix"/} is found from the installed library"
    # The tool that looks for devices when it is just started.
    tool=$prefix/bin/usm-info
    if [ -x "$tool" ]; then
        rm -f "$work"/ld.*
        (
            unset USM_DEVICE_SELECTOR
            LD_DEBUG=files LD_DEBUG_OUTPUT=$work/ld "$tool" >/dev/null 2>&1 || :
        )
        cat "$work"/ld.* | grep -q "usm-[0-9]*/libusm_backend_opencl\.so.*generating link map" ||
            fail "${tool##*/}, installed, did not load the module"
        echo "modules: found by ${tool##*/}"
    fi
fi
echo "3 consumers passed"
