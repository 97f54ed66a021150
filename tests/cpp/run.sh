#!/bin/sh
# run.sh CC GENERATED LIBRARY [FLAG...]: usm/usm.hpp as its users meet it: tests/cpp/*.cpp compiles
# without a warning as C++17 and C++20, with the compiler that goes with CC and with any other that
# is there, and runs.  GENERATED is the build's include folder, FLAGs are what LIBRARY needs.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

cc=$1
generated=$2
library=$3
shift 3
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
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-cpp.XXXXXX")
trap 'rm -rf "$work"' EXIT
flags="-Wall -Wextra -Wpedantic -Wshadow -Wundef -Wconversion -Werror -I $root/include -I $generated"
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

for source in "$here"/*.cpp; do
    for compiler in "$cxx" g++ clang++; do
        command -v "$compiler" >/dev/null 2>&1 || continue
        for standard in c++17 c++20; do
            # shellcheck disable=SC2086  # flags
            check "$compiler" "-std=$standard" $flags -fsyntax-only "$source"
        done
    done
    program=$work/$(basename "$source" .cpp)
    # shellcheck disable=SC2086
    check "$cxx" -std=c++17 $flags -g "$source" -o "$program" "$library" "$@" \
        "-Wl,-rpath,$(dirname "$library")" -pthread
    [ -x "$program" ] && TMPDIR=$work check timeout 120 "$program"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
