#!/bin/sh
# check_reference.sh DOXYGEN DOXYFILE: doxygen understands every comment of the public headers, and the reference
# has a page for each of them.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-reference.XXXXXX")
trap 'rm -rf "$work"' EXIT

# What comes later counts.
{
    cat "$2"
    echo "OUTPUT_DIRECTORY = \"$work\""
    echo "WARN_LOGFILE = \"$work/warnings\""
} >"$work/Doxyfile"
"$1" "$work/Doxyfile"
if [ -s "$work/warnings" ]; then
    cat "$work/warnings"
    exit 1
fi
pages=0
for header in "$root"/include/usm/*.h; do
    page=$(basename "$header" .h | sed 's/_/__/g')_8h.html
    [ -s "$work/html/$page" ] || {
        echo "$(basename "$header") has no page"
        exit 1
    }
    pages=$((pages + 1))
done
grep -q usm_alloc_shared "$work/html/memory_8h.html"
echo "$pages headers, no warning"
