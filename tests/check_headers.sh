#!/bin/sh
# check_headers.sh CC GENERATED: every public header compiles alone, as C11 and as C++17, without a
# warning.  GENERATED is the build's include folder (usm/version.h).
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

cc=$1
generated=$2
root=$(cd "$(dirname "$0")/.." && pwd)
# The C++ compiler that goes with cc.
case ${cc##*/} in
*clang*) cxx=$(printf '%s' "$cc" | sed 's/clang/clang++/') ;;
*gcc*) cxx=$(printf '%s' "$cc" | sed 's/\(.*\)gcc/\1g++/') ;;
*) cxx=${CXX:-c++} ;;
esac
if ! command -v "$cxx" >/dev/null 2>&1; then
    echo "no C++ compiler ($cxx): headers checked as C only"
    cxx=
fi

flags="-fsyntax-only -Wall -Wextra -Wpedantic -Wundef -Wshadow -Werror"
checked=0
failed=0

# check LANGUAGE COMPILER STANDARD HEADER
check()
{
    checked=$((checked + 1))
    # Twice: the second time its guard must hold.
    if ! printf '#include <usm/%s>\n#include <usm/%s>\nint main(void);\n' "$4" "$4" |
        "$2" -x "$1" "-std=$3" $flags -I "$root/include" -I "$generated" -; then
        echo "usm/$4 does not compile alone as $3"
        failed=$((failed + 1))
    fi
}

for header in "$root"/include/usm/*.h "$root"/include/usm/*.hpp "$generated"/usm/*.h; do
    [ -e "$header" ] || continue
    case $header in
    *.h) check c "$cc" c11 "${header##*/}" ;;
    esac
    [ -n "$cxx" ] && check c++ "$cxx" c++17 "${header##*/}"
done
echo "$((checked - failed)) passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$checked" -gt 0 ]
