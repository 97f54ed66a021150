#!/bin/sh
# check_kernels.sh CMAKE GENERATOR CC: usm_add_kernels() makes bundles of the documented format, with
# SPIR-V where the tools are and without where they are not, in C and in C++ projects.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

cmake=$1
generator=$2
CC=$3
export CC
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm kernels.XXXXXX") # with a space in it
trap 'rm -rf "$work"' EXIT

mkdir "$work/src"
cat >"$work/src/scale.h" <<'END'
#define OFFSET 1.0f
END
cat >"$work/src/scale.cl" <<'END'
#include "scale.h"
__kernel void scale(__global float *x)
{
    x[get_global_id(0)] = x[get_global_id(0)] * FACTOR + OFFSET;
}
END
cat >"$work/src/plain.cl" <<'END'
__kernel void plain(__global int *x) { x[get_global_id(0)] = 1; }
END
cat >"$work/src/main.c" <<'END'
/* Reads both bundles as the documentation describes them. */
#include "again_kernels.h"
#include "plain_kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int entries(const char *name, const unsigned char *bundle, size_t size, const char *text)
{
    char   type[2][16] = {"", ""};
    size_t bytes[2] = {0, 0}, at = 0;
    int    n = 0, used = 0;
    char   head[256] = "";

    memcpy(head, bundle, size < 255 ? size : 255);
    if (sscanf(head, "USMK1 %d\n%n", &n, &used) != 1 || n < 1 || n > 2)
        exit(1);
    at = (size_t)used;
    for (int i = 0; i < n; i++) {
        if (sscanf(head + at, "%15s %zu\n", type[i], &bytes[i]) != 2)
            exit(2);
        at += strcspn(head + at, "\n") + 1;
    }
    if (head[at++] != '\n' || at + bytes[0] + bytes[1] != size)
        exit(3);
    if (strcmp(type[0], "opencl_c") != 0)
        exit(4);
    char *copy = (char *)calloc(1, bytes[0] + 1);
    memcpy(copy, bundle + at, bytes[0]);
    if (strstr(copy, text) == NULL || strstr(copy, "#include") != NULL)
        exit(5);
    free(copy);
    if (n == 2 && (strcmp(type[1], "spirv") != 0 ||
                   memcmp(bundle + at + bytes[0], "\x03\x02\x23\x07", 4) != 0))
        exit(6);
    printf("%s: %d %s\n", name, n, n == 1 ? "entry" : "entries");
    return n;
}

int main(void)
{
    int n = entries("again", again_kernels, again_kernels_size, "#define FACTOR 2.0f\n");
    if (entries("plain", plain_kernels, plain_kernels_size, "__kernel void plain(") != n)
        return 7;
    return n == 2 ? 20 : 10;
}
END
cp "$work/src/main.c" "$work/src/main.cpp"
cat >"$work/src/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(kernels LANGUAGES ${LANGUAGE})
include("${USM_CMAKE}/UsmKernels.cmake")
add_executable(prog main.${SUFFIX})
usm_add_kernels(prog scale.cl NAME again OPTIONS -DFACTOR=2.0f -cl-fast-relaxed-math)
usm_add_kernels(prog plain.cl)
END

# try NAME LANGUAGE SUFFIX [OPTION...]: builds it and says how the program exited.
try()
{
    name=$1 language=$2 suffix=$3
    shift 3
    if ! {
        "$cmake" -S "$work/src" -B "$work/$name" -G "$generator" "-DUSM_CMAKE=$root/cmake" \
            "-DLANGUAGE=$language" "-DSUFFIX=$suffix" "$@" && "$cmake" --build "$work/$name"
    } >"$work/log" 2>&1; then
        cat "$work/log" >&2
        echo "failed to build: $name" >&2
        exit 1
    fi
    grep 'usm_add_kernels:' "$work/log"
    rc=0
    "$work/$name/prog" || rc=$?
    case $rc in
    10) "$cmake" -E echo "$name: text" ;;
    20) "$cmake" -E echo "$name: text and SPIR-V" ;;
    *)
        echo "$name: the bundle is wrong ($rc)" >&2
        exit 1
        ;;
    esac
}

try native C c
native=$rc
try text C c -DUSM_CLANG=/bin/false
[ "$rc" -eq 10 ] || exit 1
if [ -n "$(find "$work/native" -name '*.spv')" ]; then
    [ "$native" -eq 20 ] || exit 1
fi
if command -v c++ >/dev/null 2>&1; then
    unset CC
    try cxx CXX cpp
    [ "$rc" -eq "$native" ] || exit 1
fi

# A header that changes is noticed, with SPIR-V and without; nothing is rebuilt for nothing.
for name in native text; do
    "$cmake" --build "$work/$name" >"$work/log" 2>&1
    if grep -q 'Embedding' "$work/log"; then
        echo "$name: rebuilt without a change" >&2
        exit 1
    fi
done
sleep 1.1 # make looks at whole seconds
echo '#define OFFSET 3.0f' >"$work/src/scale.h"
for name in native text; do
    "$cmake" --build "$work/$name" >"$work/log" 2>&1
    if ! grep -q 'Embedding again' "$work/log" || grep -q 'Embedding plain' "$work/log"; then
        cat "$work/log" >&2
        echo "$name: not just what includes the changed header was rebuilt" >&2
        exit 1
    fi
done
