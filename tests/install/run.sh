#!/bin/sh
# run.sh BUILD: installs the tree built in BUILD into a temporary prefix, moves the prefix, and builds
# and runs a consumer through find_package, pkg-config and add_subdirectory.  Looks at what was
# installed: needed libraries, no RUNPATH of a machine, modules found beside libusm.so, from an embedded
# libusm too; a sample that was installed is built and run.  A tree of which a part is built, as after
# `./run demo`, installs that part, and uninstalls it.
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
# What the user has installed from there is still what `uninstall` removes.
manifest=$build/install_manifest.txt
[ ! -e "$manifest" ] || cp "$manifest" "$work/manifest"
quietly cmake --install "$build" --prefix "$work/first"
rm "$manifest"
[ ! -e "$work/manifest" ] || cp "$work/manifest" "$manifest"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
library=$(find "$prefix" -name 'libusm.so.*' -type f -o -name libusm.a)
libdir=$(dirname "$library")
[ -n "$library" ] || fail "no libusm was installed"

find "$prefix" -type f | while read -r file; do
    [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
    # usm-bench finds its library from where it lies itself.
    if readelf -d "$file" | grep -E 'RPATH|RUNPATH' | grep -v '\[$ORIGIN\(/[^:]*\)*\]'; then
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
if [ -x "$prefix/bin/usm-bench" ] && ldd "$prefix/bin/usm-bench" | grep 'not found'; then
    fail "usm-bench, installed, does not find its library"
fi
echo "installed: $(find "$prefix" -type f | wc -l) files; the library needs libc, libm, pthread at most"

# --- find_package --------------------------------------------------------------------------------------
quietly cmake -S "$here/find_package" -B "$work/fp" "-DCMAKE_PREFIX_PATH=$prefix"
quietly cmake --build "$work/fp"
printf 'find_package: '
"$work/fp/consumer"
umf=$libdir/libusm_umf.so
[ ! -e "$umf" ] || "$work/fp/umf_consumer"
# The next minor version may have another ABI.
mkdir "$work/newer"
sed 's/usm 0\.1 REQUIRED/usm 0.2 REQUIRED/; s,\.\./,'"$here"'/,' "$here/find_package/CMakeLists.txt" \
    >"$work/newer/CMakeLists.txt"
if cmake -S "$work/newer" -B "$work/fp2" "-DCMAKE_PREFIX_PATH=$prefix" >/dev/null 2>&1; then
    fail "find_package(usm 0.2) accepted version 0.1"
fi

# --- a sample ------------------------------------------------------------------------------------------
sample=$prefix/share/doc/usm/samples/pool_reuse
quietly cmake -S "$sample" -B "$work/sample" "-DCMAKE_PREFIX_PATH=$prefix"
quietly cmake --build "$work/sample"
quietly "$work/sample/pool_reuse" --side 16 --steps 2 --rounds 1
echo "pool_reuse, installed as source: built and run"
[ -e "$prefix/share/doc/usm/docs/settings.md" ] || fail "no documents were installed"

# --- pkg-config ----------------------------------------------------------------------------------------
if command -v pkg-config >/dev/null 2>&1; then
    PKG_CONFIG_PATH=$libdir/pkgconfig
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046  # flags
    quietly "$CC" -std=c11 "$here/main.c" -o "$work/pc" $(pkg-config --cflags --libs libusm)
    printf 'pkg-config: '
    LD_LIBRARY_PATH=$libdir "$work/pc"
    if [ -e "$umf" ]; then
        # shellcheck disable=SC2046  # flags
        quietly "$CC" -std=c11 "$here/umf.c" -o "$work/pcu" $(pkg-config --cflags --libs libusm_umf)
        LD_LIBRARY_PATH=$libdir "$work/pcu"
    fi
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

# --- a part --------------------------------------------------------------------------------------------
# The same, with install rules: its tools are not built.
quietly cmake -S "$here/add_subdirectory" -B "$work/as" -DCONSUMER_INSTALLS=ON -DUSM_INSTALL=ON \
    -DUSM_TOOLS=ON
quietly cmake --build "$work/as" --target consumer # libraries that are installed may be linked differently
quietly cmake --install "$work/as" --prefix "$work/part"
grep -q 'Left out, not built: usm-memd$' "$work/log" || fail "nothing tells that usm-memd is left out"
[ -n "$(find "$work/part" -name 'libusm.so' -o -name libusm.a)" ] || fail "a part was not installed"
[ -z "$(find "$work/part" -name usm-memd)" ] || fail "what was not built was installed"
quietly cmake "-DBUILD=$work/as" -P "$root/cmake/UsmUninstall.cmake"
left=$(find "$work/part" ! -type d -o -name '*usm*')
[ -z "$left" ] || fail "uninstall left $left"
echo "a part of it: installed, and removed again"

# --- modules -------------------------------------------------------------------------------------------
# loads PROGRAM FOLDER: PROGRAM loads the OpenCL module, from a folder whose path ends with FOLDER.  The
# loader's own trace tells, as there may be no driver here that would make the module useful.
loads()
{
    rm -f "$work"/ld.*
    (
        unset USM_DEVICE_SELECTOR
        LD_DEBUG=files LD_DEBUG_OUTPUT=$work/ld "$1" >/dev/null 2>&1 || :
    )
    cat "$work"/ld.* | grep -q "$2/libusm_backend_opencl\.so.*generating link map" ||
        fail "${1#"$work"/} did not load the module from $2"
    echo "modules: found by ${1#"$work"/}"
}

module=$(find "$libdir" -path '*/usm-*/*' -name 'libusm_backend_opencl.so')
if [ -n "$module" ]; then
    # A program that holds the archive has no libusm.so beside which to look.
    [ "${library##*.}" != a ] || export USM_PLUGIN_PATH="${module%/*}"
    loads "$work/fp/consumer" 'usm-[0-9]*'
    unset USM_PLUGIN_PATH
    loads "$work/as/consumer" usm/lib
    # The tool that looks for devices when it is just started.
    [ ! -x "$prefix/bin/usm-info" ] || loads "$prefix/bin/usm-info" 'usm-[0-9]*'
fi
echo "3 consumers passed"
