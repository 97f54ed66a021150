#!/bin/sh
# run.sh CC GENERATED LIBRARY SOURCE [FLAG...]: the C++ face of libusm as its users meet it.  GENERATED is the
# build's include folder, FLAGs are what LIBRARY needs.  SOURCE is one of
#
#   all.cpp       of this folder: compiles without a warning as C++17, by the compiler that goes with CC,
#                 and each of its parts runs; threads.cpp likewise
#   compilers     it compiles without a warning as C++17 and C++20, by each compiler that is there
#   docs/sycl.md  the programs that the page tells
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

cc=$1
generated=$2
library=$3
source=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
case ${cc##*/} in
*clang*) cxx=$(printf '%s' "$cc" | sed 's/clang/clang++/') ;;
*gcc*) cxx=$(printf '%s' "$cc" | sed 's/\(.*\)gcc/\1g++/') ;;
*) cxx=${CXX:-c++} ;;
esac
if ! command -v "$cxx" >/dev/null 2>&1; then
    echo "no C++ compiler ($cxx)"
    exit 77
fi
if [ "$source" = docs/sycl.md ]; then
    command -v python3 >/dev/null 2>&1 || {
        echo "no python3"
        exit 77
    }
    exec python3 "$here/../check_sycl_page.py" --cc "$cc" --cxx "$cxx" \
        --include "$root/include" --include "$generated" --library "$library" \
        --sycl "${USM_CI_CACHE:-${HOME:-/tmp}/.cache/usm-ci}/intel" -- "$@"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-cpp.XXXXXX")
trap 'rm -rf "$work"' EXIT
flags="-Wall -Wextra -Wpedantic -Wshadow -Wundef -Wconversion -Werror"
failed=0
passed=0

check()
{
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $*"
        failed=$((failed + 1))
    fi
}

if [ "$source" = compilers ]; then
    seen=
    for compiler in "$cxx" g++ clang++; do
        found=$(readlink -f "$(command -v "$compiler" 2>/dev/null)" 2>/dev/null) || continue
        case " $seen " in *" $found "*) continue ;; esac
        seen="$seen $found"
        for standard in c++17 c++20; do
            # shellcheck disable=SC2086  # flags
            check "$found" "-std=$standard" $flags -I "$root/include" -I "$generated" -fsyntax-only \
                "$here/all.cpp"
        done
    done
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
fi
program=$work/$(basename "$source" .cpp)
# shellcheck disable=SC2086
check "$cxx" -std=c++17 $flags -I "$root/include" -I "$generated" -g "$here/$source" -o "$program" \
    "$library" "$@" "-Wl,-rpath,$(dirname "$library")" -pthread
if [ -x "$program" ]; then
    for name in $("$program"); do
        TMPDIR=$work check timeout 120 "$program" "$name"
    done
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
